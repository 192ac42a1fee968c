//! The content of `/version`: the version of Kubernetes that this behaves like, and that of Sheaf.

use serde_json::{Value, json};

/// The version of Kubernetes whose API this server speaks.
pub const KUBERNETES: (&str, &str) = ("1", "35");

/// The build of this server.
#[derive(Debug, Clone)]
pub struct BuildVersion {
    /// The release of Sheaf, `0.1.0`.
    pub sheaf: &'static str,
    pub commit: &'static str,
    pub build_date: &'static str,
}

impl BuildVersion {
    /// The body of `/version`. Clients parse `gitVersion` as a semantic version of Kubernetes;
    /// the build part after the plus is ours.
    pub fn to_value(&self) -> Value {
        let (major, minor) = KUBERNETES;
        json!({
            "major": major,
            "minor": minor,
            "gitVersion": format!("v{major}.{minor}.0+sheaf-{}", self.sheaf),
            "gitCommit": self.commit,
            "gitTreeState": "clean",
            "buildDate": self.build_date,
            "goVersion": "none (Rust)",
            "compiler": "rustc",
            "platform": concat!("linux/", "amd64"),
        })
    }
}
