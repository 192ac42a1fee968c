//! Reading and patching machines, instances and claims as plain JSON, so that unknown fields are
//! preserved.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request};
use kube::Client;
use serde_json::Value;

use crate::answer::GatewayError;
use crate::route::ObjectRoute;

pub(crate) const MACHINES: &str = "apis/kubevirt.io/v1";

/// One object, or nothing if there is none.
pub(crate) async fn find(client: &Client, path: &str) -> Result<Option<Value>, GatewayError> {
    let request = Request::get(path).body(Vec::new()).map_err(GatewayError::internal)?;
    match client.request::<Value>(request).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(GatewayError::from_api(error)),
    }
}

pub(crate) fn machine_path(at: &ObjectRoute) -> String {
    format!("/{MACHINES}/namespaces/{}/virtualmachines/{}", at.namespace, at.name)
}

pub(crate) fn instance_path(at: &ObjectRoute) -> String {
    format!("/{MACHINES}/namespaces/{}/virtualmachineinstances/{}", at.namespace, at.name)
}

pub(crate) fn claim_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

pub(crate) async fn machine(client: &Client, at: &ObjectRoute) -> Result<Value, GatewayError> {
    let found = find(client, &machine_path(at)).await?;
    found.ok_or_else(|| GatewayError::not_found("virtualmachine", &at.name))
}

pub(crate) async fn instance(client: &Client, at: &ObjectRoute) -> Result<Value, GatewayError> {
    let found = find(client, &instance_path(at)).await?;
    found.ok_or_else(|| GatewayError::not_found("virtualmachineinstance", &at.name))
}

/// Applies a JSON patch; an operation that does not fit any more is the API's to refuse.
pub(crate) async fn patch(
    client: &Client,
    path: &str,
    patch: &Value,
) -> Result<Value, GatewayError> {
    send(client, Method::PATCH, path, "application/json-patch+json", patch).await
}

pub(crate) async fn merge(
    client: &Client,
    path: &str,
    patch: &Value,
) -> Result<Value, GatewayError> {
    send(client, Method::PATCH, path, "application/merge-patch+json", patch).await
}

pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: &Value,
) -> Result<Value, GatewayError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, content_type)
        .body(serde_json::to_vec(body).expect("a tree always encodes"))
        .map_err(GatewayError::internal)?;
    client.request::<Value>(request).await.map_err(GatewayError::from_api)
}

/// Creates an object in the name of the user whom the headers name.
pub(crate) async fn post_as(
    impersonator: &Client,
    headers: HeaderMap,
    path: &str,
    body: &Value,
) -> Result<Value, GatewayError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .body(serde_json::to_vec(body).expect("a tree always encodes"))
        .map_err(GatewayError::internal)?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    impersonator.request::<Value>(request).await.map_err(GatewayError::from_api)
}
