//! The data of images from a client, as Harvester's dashboard and Terraform send it:
//!
//!   POST /v1/harvester/harvesterhci.io.virtualmachineimages/{namespace}/{name}?action=upload&size=N
//!
//! with a form whose field `chunk` is the file, or with the file itself as the body. The answer
//! comes when the image is complete. With `&offset=N` the body is a part of the file, which may
//! end anywhere; a GET of the same path says where to go on. And out of the cluster, compressed by gzip
//! as Harvester's clients expect it, or with `?format=raw` as it is:
//!
//!   GET /v1/harvester/harvesterhci.io.virtualmachineimages/{namespace}/{name}/download

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode, request};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::answer::{self, GatewayError, GatewayResult};
use crate::form::MultipartForm;
use crate::{Body, Gateway, GatewayRequest, node, objects};

const PREFIX: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/";
const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
/// The end of a path that requests the data.
const DOWNLOAD: &str = "/download";
/// The field of the form that the file is in.
const FIELD: &str = "chunk";
/// For an image that was just made to be ready for its data.
const IMAGE_READY_TIMEOUT: Duration = Duration::from_secs(60);
const IMAGE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The image that a path outside of the API names: namespace and name.
pub fn image_of(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix(PREFIX)?.trim_end_matches('/');
    let (namespace, name) = path.strip_suffix(DOWNLOAD).unwrap_or(path).split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some((namespace, name))
}

/// Whether a path reads the content of an image, instead of writing it.
pub fn is_download(path: &str) -> bool {
    image_of(path).is_some() && path.trim_end_matches('/').ends_with(DOWNLOAD)
}

pub(crate) async fn answer(gateway: &Gateway, asked: GatewayRequest) -> GatewayResult {
    let GatewayRequest { parts, mut body, .. } = asked;
    if parts.method == Method::GET {
        return read(gateway, &parts).await;
    }
    match target(gateway, &parts).await {
        Ok((node, path)) => {
            let file = content(&parts, body)?;
            let sent = node::pass(gateway.requester(), &node, &path, None, file).await;
            sent.map_err(|failure| match failure.code {
                // The client is to go on elsewhere.
                StatusCode::CONFLICT => failure,
                _ => GatewayError::internal_plain(format!("upload failed: {}", failure.message)),
            })?;
            Ok(answer::empty(StatusCode::OK))
        }
        Err(failure) => {
            drain(&mut body).await;
            Err(failure)
        }
    }
}

/// The data of an image, or how much of it was uploaded.
async fn read(gateway: &Gateway, parts: &request::Parts) -> GatewayResult {
    let path = decoded(parts)?;
    let (namespace, name) = image_of(&path).ok_or_else(GatewayError::no_such_path)?;
    let image = image(gateway, namespace, name).await?;
    let backing = backing_of(&image);
    if is_download(&path) {
        check_download(&image)?;
        let node = wait(gateway, &backing, "ready").await?;
        let is_raw = parameter(parts, "format").as_deref() == Some("raw");
        let (format, end) = if is_raw { ("raw", "raw") } else { ("gzip", "gz") };
        let path = format!("/v1/images/{backing}/file?format={format}");
        let display = image["spec"]["displayName"].as_str().unwrap_or(name);
        return node::fetch(gateway.requester(), &node, &path, &format!("{display}.{end}")).await;
    }
    if parameter(parts, "action").as_deref() != Some("upload") {
        return Err(GatewayError::no_such_path());
    }
    check_upload(&image, namespace, name)?;
    let node = wait(gateway, &backing, "pending").await?;
    let path = format!("/v1/images/{backing}/upload");
    let reply = node::ask(gateway.requester(), &node, Method::GET, &path, Bytes::new()).await?;
    let reply: Value = serde_json::from_slice(&reply).map_err(GatewayError::internal)?;
    Ok(answer::json(StatusCode::OK, &reply))
}

fn decoded(parts: &request::Parts) -> Result<String, GatewayError> {
    let path = percent_decode_str(parts.uri.path()).decode_utf8();
    let path = path.map_err(|_| GatewayError::bad_request("the path is not valid UTF-8"))?;
    Ok(path.into_owned())
}

/// Most clients only read an answer after they have sent everything.
async fn drain(body: &mut Body) {
    let mut left: usize = 64 << 20;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

/// The node that takes the data, and where there.
async fn target(
    gateway: &Gateway,
    parts: &request::Parts,
) -> Result<(String, String), GatewayError> {
    let path = decoded(parts)?;
    let (namespace, name) = image_of(&path).ok_or_else(GatewayError::no_such_path)?;
    let action = parameter(parts, "action").unwrap_or_default();
    // The right to a download is that to read.
    if parts.method != Method::POST || is_download(&path) {
        return Err(GatewayError::method_not_allowed());
    }
    if action != "upload" {
        return Err(GatewayError::bad_request(format!(
            "action {action:?} is not possible with an image: only upload is"
        )));
    }
    let mut query = String::new();
    for key in ["size", "offset"] {
        let Some(text) = parameter(parts, key) else { continue };
        let number = text.parse::<u64>().map_err(|_| {
            GatewayError::bad_request(format!("{key} {text:?} is not a number of bytes"))
        })?;
        let mark = if query.is_empty() { '?' } else { '&' };
        query.push_str(&format!("{mark}{key}={number}"));
    }
    if query.starts_with("?offset") {
        return Err(GatewayError::bad_request(
            "offset needs size: how many bytes there are in all",
        ));
    }
    let image = image(gateway, namespace, name).await?;
    check_upload(&image, namespace, name)?;
    let backing = backing_of(&image);
    let node = wait(gateway, &backing, "pending").await?;
    Ok((node, format!("/v1/images/{backing}/upload{query}")))
}

fn parameter(parts: &request::Parts, wanted: &str) -> Option<String> {
    let pairs = parts.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(key, _)| *key == wanted)?.1;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

async fn image(gateway: &Gateway, namespace: &str, name: &str) -> Result<Value, GatewayError> {
    let path =
        format!("/apis/harvesterhci.io/v1beta1/namespaces/{namespace}/virtualmachineimages/{name}");
    objects::find(&gateway.client, &path).await?.ok_or_else(|| {
        let message = format!("virtualmachineimages.harvesterhci.io {name:?} not found");
        GatewayError::with_message(StatusCode::NOT_FOUND, message)
    })
}

fn check_upload(image: &Value, namespace: &str, name: &str) -> Result<(), GatewayError> {
    match &image["spec"]["sourceType"] {
        kind if kind == "upload" => Ok(()),
        kind => Err(GatewayError::bad_request(format!(
            "image {namespace}/{name} is not to be uploaded: its spec.sourceType is {kind}"
        ))),
    }
}

/// Refuses as Harvester does: in plain text and with 500.
fn check_download(image: &Value) -> Result<(), GatewayError> {
    if image["spec"]["securityParameters"]["cryptoOperation"] == "encrypt" {
        return Err(GatewayError::text("encrypted image is not supported for download"));
    }
    let conditions = image["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    if conditions.any(|own| own["type"] == "Imported" && own["status"] == "True") {
        return Ok(());
    }
    Err(not_imported())
}

fn not_imported() -> GatewayError {
    GatewayError::text("please wait until the image has been imported")
}

fn backing_of(image: &Value) -> String {
    format!("vmi-{}", image["metadata"]["uid"].as_str().unwrap_or_default())
}

/// Waits until a node expects the data, or has it, and names the node.
async fn wait(gateway: &Gateway, backing: &str, wanted: &str) -> Result<String, GatewayError> {
    let path = format!("{LONGHORN}/backingimages/{backing}");
    let deadline = tokio::time::Instant::now() + IMAGE_READY_TIMEOUT;
    loop {
        let found = objects::find(&gateway.client, &path).await?.unwrap_or_default();
        let files = found["status"]["diskFileStatusMap"].as_object();
        let files: Vec<(&String, &Value)> = files.into_iter().flatten().collect();
        let is = |state: &str| files.iter().find(|(_, file)| file["state"] == state);
        if let Some((disk, _)) = is(wanted) {
            return node_of(gateway, disk).await;
        }
        if wanted == "ready" {
            return Err(not_imported());
        }
        if is("ready").is_some() {
            return Err(GatewayError::with_message(
                StatusCode::CONFLICT,
                "the image is complete".into(),
            ));
        }
        if tokio::time::Instant::now() > deadline {
            let state = files
                .first()
                .map_or("unknown", |(_, file)| file["state"].as_str().unwrap_or("unknown"));
            return Err(GatewayError::unavailable(format!(
                "the image is not ready for an upload (its state is {state}); is there a disk for it?"
            )));
        }
        tokio::time::sleep(IMAGE_POLL_INTERVAL).await;
    }
}

async fn node_of(gateway: &Gateway, disk: &str) -> Result<String, GatewayError> {
    let nodes = objects::find(&gateway.client, &format!("{LONGHORN}/nodes")).await?;
    let nodes = nodes.unwrap_or_default();
    let has = |node: &&Value| {
        let disks = node["status"]["diskStatus"].as_object();
        disks.into_iter().flatten().any(|(_, own)| own["diskUUID"] == disk)
    };
    let found = nodes["items"].as_array().into_iter().flatten().find(has);
    found
        .and_then(|node| node["metadata"]["name"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| GatewayError::unavailable(format!("the disk {disk} is on no node")))
}

/// The file in a body.
fn content(parts: &request::Parts, body: Body) -> Result<Body, GatewayError> {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with("multipart/form-data") {
        return Ok(body);
    }
    let form = MultipartForm::new(kind, FIELD).ok_or_else(|| {
        GatewayError::bad_request("Content-Type multipart/form-data has to name a boundary")
    })?;
    let pieces =
        stream::try_unfold((body, form, Vec::new()), |(mut body, mut form, mut left)| async {
            loop {
                if let Some(piece) = next(&mut left) {
                    return Ok(Some((Frame::data(piece), (body, form, left))));
                }
                match body.frame().await {
                    Some(frame) => {
                        let Ok(data) = frame?.into_data() else { continue };
                        left = form.take(&data).map_err(io::Error::other)?;
                        left.reverse();
                    }
                    None => {
                        form.finish().map_err(io::Error::other)?;
                        return Ok(None);
                    }
                }
            }
        });
    Ok(StreamBody::new(pieces).boxed_unsync())
}

fn next(left: &mut Vec<Bytes>) -> Option<Bytes> {
    left.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_image() {
        let at = |rest: &str| image_of(&format!("{PREFIX}{rest}")).map(|(a, b)| format!("{a} {b}"));
        assert_eq!(at("n/i").as_deref(), Some("n i"));
        assert_eq!(at("n/i/download").as_deref(), Some("n i"));
        assert!(is_download(&format!("{PREFIX}n/i/download")));
        assert!(!is_download(&format!("{PREFIX}n/download")));
        for wrong in ["", "n", "n/", "/i", "n/i/other"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
        assert_eq!(image_of("/v1/harvester/nodes/n/i"), None);
    }

    #[test]
    fn only_plain_and_complete_images_are_downloaded() {
        let image = |operation: &str, imported: &str| {
            serde_json::json!({
                "spec": {"securityParameters": {"cryptoOperation": operation}},
                "status": {"conditions": [{"type": "Imported", "status": imported}]},
            })
        };
        for (operation, imported, refusal) in [
            ("", "True", None),
            ("decrypt", "True", None),
            ("encrypt", "True", Some("encrypted image is not supported for download")),
            ("", "Unknown", Some("please wait until the image has been imported")),
        ] {
            let checked = check_download(&image(operation, imported)).err();
            let message = checked.as_ref().map(|failure| &*failure.message);
            assert_eq!(message, refusal, "{operation} {imported}");
            assert!(checked.is_none_or(|failure| failure.code == 500));
        }
    }
}
