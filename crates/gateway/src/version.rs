//! Which KubeVirt we speak, for `virtctl version` and its check after a failure.

use http::StatusCode;
use serde_json::json;

use crate::answer::{Reply, json};

/// The release of KubeVirt whose API this is.
const RELEASE: &str = "v1.9.0";

pub(crate) fn version() -> Reply {
    json(
        StatusCode::OK,
        &json!({
            "gitVersion": RELEASE, "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
            "goVersion": "", "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, virt::ARCHITECTURE),
        }),
    )
}

/// virtctl guestfs would start a pod with this image, which nothing here can run.
pub(crate) fn guestfs() -> Reply {
    json(
        StatusCode::OK,
        &json!({"registry": "", "tag": "", "digest": "", "imagePrefix": "", "gsImage": ""}),
    )
}

pub(crate) fn health() -> Reply {
    json(StatusCode::OK, &json!({"apiserver": {"connectivity": "ok", "version": RELEASE}}))
}
