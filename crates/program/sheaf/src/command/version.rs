//! `sheaf version`.

use anyhow::Result;

use crate::cli::{VersionArgs, VersionOutput};

/// The version and commit that this binary was built from.
pub(crate) const VERSION: apiserver::BuildVersion = apiserver::BuildVersion {
    sheaf: env!("CARGO_PKG_VERSION"),
    commit: env!("SHEAF_COMMIT"),
    build_date: env!("SHEAF_BUILD_DATE"),
};

pub(super) fn run(args: &VersionArgs) -> Result<()> {
    let (major, minor) = apiserver::KUBERNETES;
    match args.output {
        VersionOutput::Text => super::print(&format!(
            "sheaf {} ({}), Kubernetes API v{major}.{minor}\n",
            VERSION.sheaf,
            &VERSION.commit[..VERSION.commit.len().min(12)],
        )),
        VersionOutput::Json => {
            let mut value = VERSION.to_value();
            value["sheafVersion"] = VERSION.sheaf.into();
            super::print(&format!("{value:#}\n"))
        }
    }
}
