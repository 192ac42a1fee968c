//! Images from a client into a volume, as CDI's upload proxy takes them.
//!
//! A client asks for a token for one claim, and sends the image with that token as its only
//! credential. The token's hash is kept on the claim, so any server of a cluster, and one
//! that was restarted, knows it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{Method, StatusCode, request};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::{Gateway, GatewayRequest, instance, node, objects};

/// As long as CDI's own.
const LIFETIME: SignedDuration = SignedDuration::from_mins(5);
/// Hash and end of the one token that is good for a claim.
const TICKET: &str = "sheaf.io/upload-token";
const TARGET: &str = "cdi.kubevirt.io/storage.upload.target";

/// The paths that clients upload to; forms are not among them.
const PATHS: [&str; 4] =
    ["/v1beta1/upload", "/v1beta1/upload-async", "/v1alpha1/upload", "/v1alpha1/upload-async"];

/// Whether a path outside of the API belongs to the upload proxy.
pub fn owns(path: &str) -> bool {
    PATHS.contains(&path)
}

/// Answers an UploadTokenRequest.
pub(crate) async fn ticket(
    gateway: &Gateway,
    namespace: &str,
    asked: GatewayRequest,
) -> GatewayResult {
    let body = instance::read(asked.body).await?;
    let mut request = instance::options(&body)?;
    let Some(claim) = request["spec"]["pvcName"].as_str().filter(|name| !name.is_empty()) else {
        return Err(GatewayError::bad_request(
            "spec.pvcName: Required value: the claim to upload to",
        ));
    };
    let path = objects::claim_path(namespace, claim);
    let found = objects::find(&gateway.client, &path).await?;
    let found = found.ok_or_else(|| GatewayError::not_found("persistentvolumeclaim", claim))?;
    is_target(&found)?;
    let token = mint(namespace, claim);
    let ends = base::clock::now() + LIFETIME;
    let annotation = format!("{}@{}", hash(&token), ends.as_second());
    let note = json!({"metadata": {"annotations": {TICKET: annotation}}});
    objects::merge(&gateway.client, &path, &note).await?;
    request["apiVersion"] = "upload.cdi.kubevirt.io/v1beta1".into();
    request["kind"] = "UploadTokenRequest".into();
    request["metadata"]["namespace"] = namespace.into();
    request["metadata"]["creationTimestamp"] = base::clock::now_rfc3339().into();
    request["status"] = json!({"token": token});
    Ok(answer::json(StatusCode::CREATED, &request))
}

/// An image, or the question whether this way of sending one exists.
pub(crate) async fn answer(gateway: &Gateway, asked: GatewayRequest) -> GatewayResult {
    let parts = &asked.parts;
    match parts.method {
        Method::HEAD | Method::POST | Method::PUT => {}
        _ => return Err(GatewayError::method_not_allowed()),
    }
    let token =
        bearer(parts).ok_or_else(|| GatewayError::unauthorized("a bearer token is needed"))?;
    let stale = || GatewayError::unauthorized("the upload token is not valid, or not any more");
    let (namespace, name) = subject(token).ok_or_else(stale)?;
    let claim = objects::find(&gateway.client, &objects::claim_path(&namespace, &name)).await?;
    let claim = claim.ok_or_else(stale)?;
    if !is_good(token, &claim, base::clock::now()) {
        return Err(stale());
    }
    if parts.method == Method::HEAD {
        return Ok(answer::empty(StatusCode::OK));
    }
    let volume = bound_volume(gateway, &claim).await?.ok_or_else(|| {
        GatewayError::unavailable(format!(
            "the claim {namespace}/{name} has no volume yet; try again when it is bound"
        ))
    })?;
    let node = node_of_volume(gateway, &volume).await?;
    let volume = volume_name(&volume);
    let length = parts.headers.get(CONTENT_LENGTH).cloned();
    let path = format!("/v1/volumes/{volume}/upload");
    node::pass(gateway.requester(), &node, &path, length, asked.body).await?;
    Ok(answer::empty(StatusCode::OK))
}

/// The persistent volume that a claim is bound to. The name of a volume in a claim is not
/// enough: its user may choose it.
pub(crate) async fn bound_volume(
    gateway: &Gateway,
    claim: &Value,
) -> Result<Option<Value>, GatewayError> {
    let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let path = format!("/api/v1/persistentvolumes/{name}");
    let found = objects::find(&gateway.client, &path).await?;
    Ok(found.filter(|volume| virt::claim_binding::are_bound(claim, volume)))
}

pub(crate) fn volume_name(volume: &Value) -> &str {
    volume["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) async fn node_of_volume(
    gateway: &Gateway,
    found: &Value,
) -> Result<String, GatewayError> {
    let volume = volume_name(found);
    if let Some(handle) = found["spec"]["csi"]["volumeHandle"].as_str() {
        return node_of_replicas(gateway, handle).await;
    }
    let terms = &found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let expressions = terms.as_array().into_iter().flatten();
    expressions
        .flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten())
        .find(|one| one["key"] == "kubernetes.io/hostname")
        .and_then(|one| one["values"][0].as_str())
        .map(str::to_owned)
        .ok_or_else(|| GatewayError::internal(format!("the volume {volume} is on no node")))
}

/// Of the nodes with a copy of a replicated volume the first in order fills it.
async fn node_of_replicas(gateway: &Gateway, volume: &str) -> Result<String, GatewayError> {
    let path = format!(
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/replicas\
         ?labelSelector=longhornvolume%3D{volume}"
    );
    let found = objects::find(&gateway.client, &path).await?.unwrap_or_default();
    let replicas = found["items"].as_array().into_iter().flatten();
    let nodes = replicas.filter_map(|replica| replica["spec"]["nodeID"].as_str());
    let first = nodes.filter(|node| !node.is_empty()).min();
    first.map(str::to_owned).ok_or_else(|| {
        GatewayError::unavailable(format!("the volume {volume} is on no node yet; try again later"))
    })
}

fn is_target(claim: &Value) -> Result<(), GatewayError> {
    if claim["metadata"]["annotations"].get(TARGET).is_some() {
        return Ok(());
    }
    let name = claim["metadata"]["name"].as_str().unwrap_or("");
    Err(GatewayError::bad_request(format!("PVC {name} is not an upload target: it lacks {TARGET}")))
}

fn bearer(parts: &request::Parts) -> Option<&str> {
    let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}

/// The claim in plain, and 122 random bits.
fn mint(namespace: &str, claim: &str) -> String {
    let subject = URL_SAFE_NO_PAD.encode(format!("{namespace}/{claim}"));
    format!("{subject}.{}", uuid::Uuid::new_v4().simple())
}

fn subject(token: &str) -> Option<(String, String)> {
    let bytes = URL_SAFE_NO_PAD.decode(token.split_once('.')?.0).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (namespace, claim) = text.split_once('/')?;
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
    };
    (plain(namespace) && plain(claim)).then(|| (namespace.to_owned(), claim.to_owned()))
}

fn hash(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes are compared, so the time reveals nothing about the token.
fn is_good(token: &str, claim: &Value, now: Timestamp) -> bool {
    let annotation = claim["metadata"]["annotations"][TICKET].as_str().unwrap_or("");
    let Some((known, ends)) = annotation.split_once('@') else { return false };
    let Ok(ends) = ends.parse::<i64>() else { return false };
    known == hash(token) && now.as_second() < ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_claim_until_it_ends() {
        let token = mint("ns", "disk");
        let note = format!("{}@{}", hash(&token), 1000);
        let claim = json!({"metadata": {"annotations": {TICKET: note}}});
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(subject(&token), Some(("ns".to_owned(), "disk".to_owned())));
        assert!(is_good(&token, &claim, at(999)));
        assert!(!is_good(&token, &claim, at(1000)));
        assert!(!is_good(&mint("ns", "disk"), &claim, at(999)));
        assert!(!is_good(&token, &json!({}), at(999)));
    }

    #[test]
    fn a_token_cannot_point_outside_of_claims() {
        for text in ["../x/y", "ns/a/b", "ns/", "/x", "ns/a?b"] {
            let token = format!("{}.abc", URL_SAFE_NO_PAD.encode(text));
            assert_eq!(subject(&token), None, "{text}");
        }
        assert_eq!(subject("no dots"), None);
    }
}
