//! The version of KubeVirt that we report, for `virtctl version` and its check after a failure.

use http::StatusCode;
use serde_json::json;

use crate::answer::{GatewayReply, json};

/// The release of KubeVirt whose API this is.
const RELEASE: &str = "v1.9.0";

pub(crate) fn version() -> GatewayReply {
    json(
        StatusCode::OK,
        &json!({
            "gitVersion": RELEASE, "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
            "goVersion": "", "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, virt::ARCHITECTURE),
        }),
    )
}

pub(crate) fn health() -> GatewayReply {
    json(StatusCode::OK, &json!({"apiserver": {"connectivity": "ok", "version": RELEASE}}))
}
