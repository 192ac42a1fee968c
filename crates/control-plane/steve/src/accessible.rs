//! The namespaces in which a caller may list machines. Kubernetes has no question for that, and
//! who may not list namespaces could not find their own.

use http::StatusCode;
use serde_json::json;

use crate::Steve;
use crate::caller::Session;
use crate::reply::{self, SteveResult};
use crate::rights::{self, Rights};

/// `GET /v1/namespaces?link=accessible`: `{"data": ["web"]}`.
pub(crate) async fn answer(steve: &Steve, session: &Session<'_>) -> SteveResult {
    let mut found = Vec::new();
    for namespace in steve.namespaces().await? {
        let (path, body) = rights::question(&namespace);
        let rights = Rights::read(&session.post(path, &body).await?);
        if rights.may("list", "kubevirt.io", "virtualmachines", "") {
            found.push(namespace);
        }
    }
    Ok(reply::json(StatusCode::OK, &json!({"data": found})))
}
