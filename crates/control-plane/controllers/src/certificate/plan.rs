//! The next step for a certificate request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{CertificateAsk, ReviewedRequest, SignerError};

const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CertificateStep {
    Nothing,
    /// Approve it if it is for the one who asks.
    Consider {
        reviewed: ReviewedRequest,
        claim: NodeClaim,
    },
    Sign,
    Refuse {
        message: String,
    },
}

/// The requester of a node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeClaim {
    /// A requester that is not that node yet.
    New,
    /// The node itself, once more.
    Own,
    /// The node itself, for its endpoint.
    OwnEndpoint,
}

/// The parts of a request that a signer examines, decoded.
#[derive(Debug)]
pub(super) struct Parts {
    request: String,
    signer: String,
    usages: Vec<String>,
    seconds: Option<i64>,
}

impl Parts {
    pub(super) fn of(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let request = STANDARD.decode(spec["request"].as_str()?).ok()?;
        let usages = spec["usages"].as_array().into_iter().flatten();
        Some(Self {
            request: String::from_utf8(request).ok()?,
            signer: spec["signerName"].as_str()?.to_owned(),
            usages: usages.filter_map(Value::as_str).map(str::to_owned).collect(),
            seconds: spec["expirationSeconds"].as_i64(),
        })
    }

    pub(super) fn ask(&self) -> CertificateAsk<'_> {
        CertificateAsk {
            request: &self.request,
            signer: &self.signer,
            usages: &self.usages,
            seconds: self.seconds,
        }
    }
}

fn is(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind)
}

/// `reviewed` is the signer's answer: the reviewed request, `None` if another signer is named, or
/// the reason of a refusal.
pub(super) fn step(
    object: &Value,
    reviewed: &Result<Option<ReviewedRequest>, SignerError>,
) -> CertificateStep {
    let signed = object["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty());
    if signed || is(object, "Denied") || is(object, "Failed") {
        return CertificateStep::Nothing;
    }
    match (reviewed, is(object, "Approved")) {
        (Ok(None), _) | (Err(_), false) => CertificateStep::Nothing,
        (Err(error), true) => {
            CertificateStep::Refuse { message: base::Chain(&**error).to_string() }
        }
        (Ok(Some(_)), true) => CertificateStep::Sign,
        // Only nodes get theirs without a manual approval.
        (Ok(Some(asked)), false) => {
            let is_own = object["spec"]["username"] == asked.common_name.as_str();
            let claim = match object["spec"]["signerName"].as_str() {
                Some(NODE_CLIENT) if is_own => NodeClaim::Own,
                Some(NODE_CLIENT) => NodeClaim::New,
                Some(NODE_SERVING) if is_own => NodeClaim::OwnEndpoint,
                _ => return CertificateStep::Nothing,
            };
            CertificateStep::Consider { reviewed: asked.clone(), claim }
        }
    }
}

/// The question whether the one who asks may have it.
pub(super) fn review(object: &Value, subresource: &str) -> Value {
    let spec = &object["spec"];
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec["username"], "uid": spec["uid"], "groups": spec["groups"],
            "extra": spec["extra"],
            "resourceAttributes": {
                "group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                "verb": "create", "subresource": subresource, "version": "*",
            },
        },
    })
}

/// Adds a condition to those that are there; a merge patch replaces the list.
fn with(object: &Value, condition: Value) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.push(condition);
    json!({
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "status": {"conditions": conditions},
    })
}

pub(super) fn approval(object: &Value) -> Value {
    with(
        object,
        json!({
            "type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": "Auto approving kubelet client certificate after SubjectAccessReview.",
        }),
    )
}

pub(super) fn denial(object: &Value, message: &str) -> Value {
    with(
        object,
        json!({
            "type": "Denied", "status": "True", "reason": "JoinRefused", "message": message,
        }),
    )
}

pub(super) fn failure(object: &Value, message: &str, now: &str) -> Value {
    with(
        object,
        json!({
            "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
            "message": message, "lastUpdateTime": now, "lastTransitionTime": now,
        }),
    )
}

pub(super) fn encoded(pem: &str) -> String {
    STANDARD.encode(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(signer: &str, user: &str, conditions: &[&str]) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        json!({
            "spec": {"signerName": signer, "username": user},
            "status": {"conditions": conditions},
        })
    }

    #[test]
    fn nodes_are_considered_and_what_is_approved_is_signed() {
        let asked = ReviewedRequest {
            common_name: "system:node:a".to_owned(),
            key: "k".to_owned(),
            is_own_endpoint: true,
        };
        let fits = Ok(Some(asked.clone()));
        let considered = |claim| CertificateStep::Consider { reviewed: asked.clone(), claim };
        let wrong = Err("usages did not match".into());
        let client = "kubernetes.io/kube-apiserver-client";
        for (object, reviewed, expected) in [
            (request(client, "jane", &[]), &fits, CertificateStep::Nothing),
            (request(client, "jane", &["Approved"]), &fits, CertificateStep::Sign),
            (request(client, "jane", &["Approved", "Failed"]), &fits, CertificateStep::Nothing),
            (request(client, "jane", &["Denied"]), &fits, CertificateStep::Nothing),
            (request(client, "jane", &["Approved"]), &Ok(None), CertificateStep::Nothing),
            (request(client, "jane", &[]), &wrong, CertificateStep::Nothing),
            (
                request(client, "jane", &["Approved"]),
                &wrong,
                CertificateStep::Refuse { message: "usages did not match".to_owned() },
            ),
            (request(NODE_CLIENT, "system:bootstrap:abc", &[]), &fits, considered(NodeClaim::New)),
            (request(NODE_CLIENT, "system:node:a", &[]), &fits, considered(NodeClaim::Own)),
            (
                request(NODE_SERVING, "system:node:a", &[]),
                &fits,
                considered(NodeClaim::OwnEndpoint),
            ),
            // A node does not get the endpoint of another.
            (request(NODE_SERVING, "system:node:b", &[]), &fits, CertificateStep::Nothing),
        ] {
            assert_eq!(step(&object, reviewed), expected, "{object}");
        }
        let mut done = request(client, "jane", &["Approved"]);
        done["status"]["certificate"] = "LS0t".into();
        assert_eq!(step(&done, &fits), CertificateStep::Nothing);
    }

    #[test]
    fn conditions_are_added_to_those_that_are_there() {
        let object = request("s", "u", &["Approved"]);
        let patch = failure(&object, "why", "2026-01-01T00:00:00Z");
        let kinds: Vec<_> = patch["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| condition["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["Approved", "Failed"]);
    }
}
