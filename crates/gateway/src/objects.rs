//! Reading and patching machines, instances and claims as plain JSON: what is not
//! understood here must survive.

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::Client;
use serde_json::Value;

use crate::answer::Failure;
use crate::route::At;

pub(crate) const MACHINES: &str = "apis/kubevirt.io/v1";

/// One object, or nothing if there is none.
pub(crate) async fn find(client: &Client, path: &str) -> Result<Option<Value>, Failure> {
    let request = Request::get(path).body(Vec::new()).map_err(Failure::internal)?;
    match client.request::<Value>(request).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(Failure::from_api(error)),
    }
}

pub(crate) fn machine_path(at: &At) -> String {
    format!("/{MACHINES}/namespaces/{}/virtualmachines/{}", at.namespace, at.name)
}

pub(crate) fn instance_path(at: &At) -> String {
    format!("/{MACHINES}/namespaces/{}/virtualmachineinstances/{}", at.namespace, at.name)
}

pub(crate) fn claim_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

pub(crate) async fn machine(client: &Client, at: &At) -> Result<Value, Failure> {
    let found = find(client, &machine_path(at)).await?;
    found.ok_or_else(|| Failure::not_found("virtualmachine", &at.name))
}

pub(crate) async fn instance(client: &Client, at: &At) -> Result<Value, Failure> {
    let found = find(client, &instance_path(at)).await?;
    found.ok_or_else(|| Failure::not_found("virtualmachineinstance", &at.name))
}

/// Applies a JSON patch; an operation that does not fit any more is the API's to refuse.
pub(crate) async fn patch(client: &Client, path: &str, patch: &Value) -> Result<Value, Failure> {
    send(client, Method::PATCH, path, "application/json-patch+json", patch).await
}

pub(crate) async fn merge(client: &Client, path: &str, patch: &Value) -> Result<Value, Failure> {
    send(client, Method::PATCH, path, "application/merge-patch+json", patch).await
}

pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: &Value,
) -> Result<Value, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, content_type)
        .body(serde_json::to_vec(body).expect("a tree always encodes"))
        .map_err(Failure::internal)?;
    client.request::<Value>(request).await.map_err(Failure::from_api)
}
