//! Rules of the list of revoked client certificates: its writers, and its content.
//! The public keys that tokens are verified with are written by API servers only.

use apiserver::extension::{Attempt, Denial, ExtensionOperation, ExtensionRules, Review};
use auth::revocation::{NAME, NAMESPACE, check_entry};
use auth::token::rotation;
use serde_json::Value;

use crate::command::server::identities;

/// Those who may approve client certificates may revoke them.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) struct RevocationRules;

impl ExtensionRules for RevocationRules {
    fn concern(&self, group: &str, resource: &str) -> bool {
        (group, resource) == ("", "configmaps")
    }

    fn complete(&self, _: &Review<'_>, _: &mut Value, _: Option<&Value>) -> Result<(), Denial> {
        Ok(())
    }

    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        _: Option<&Value>,
    ) -> Result<Vec<String>, Denial> {
        match (review.namespace, review.name) {
            (rotation::NAMESPACE, rotation::NAME) if !identities::is_component(review.user) => {
                let message = "is forbidden: only API servers write the keys of tokens";
                let message = format!("configmaps {:?} {message}", review.name);
                return Err(denial(403, "Forbidden", message));
            }
            (NAMESPACE, NAME) => {}
            _ => return Ok(Vec::new()),
        }
        let approve = Attempt {
            verb: "approve",
            group: "certificates.k8s.io",
            plural: "signers",
            subresource: "",
            namespace: "",
            name: SIGNER,
        };
        let user = review.user;
        if !identities::is_component(user) && !review.access.may(user, &approve) {
            return Err(denial(
                403,
                "Forbidden",
                format!(
                    "configmaps {NAME:?} is forbidden: user not permitted to approve requests with \
                     signerName {SIGNER:?}, and so not to revoke their certificates"
                ),
            ));
        }
        let object = object.filter(|_| review.act != ExtensionOperation::Delete);
        let data = object.and_then(|object| object["data"].as_object()).into_iter().flatten();
        for (key, value) in data {
            check_entry(key, value.as_str().unwrap_or_default())
                .map_err(|error| denial(422, "Invalid", error.to_string()))?;
        }
        Ok(Vec::new())
    }
}

fn denial(code: u16, reason: &'static str, message: String) -> Denial {
    Denial { code, reason, message, causes: Vec::new() }
}
