//! Admission of CertificateSigningRequests: upstream's plugins CertificateApproval,
//! CertificateSigning and CertificateSubjectRestriction.
//!
//! The right to update `/approval` or `/status` is not enough: the caller also needs the verb
//! `approve` or `sign` on the signer, and no request may ask for the group `system:masters`.

use auth::pki::CertificateRequest;
use auth::{AccessTarget, Attributes, Decision, ResourceRequest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Operation;
use crate::access::authorize;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

const TABLE: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) fn check(
    call: &Call<'_>,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if &*call.served.table != TABLE {
        return Ok(());
    }
    let refuse =
        |why: String| Err(ApiError::forbidden_because(call.served.subject(object::name(new)), why));
    let settings = &call.api.settings;
    match (operation, call.path.subresource, old) {
        (Operation::Create, "", _) if settings.admits("CertificateSubjectRestriction") => {
            restricted_group(new).map_or(Ok(()), refuse)
        }
        (Operation::Update, "approval", Some(old)) if settings.admits("CertificateApproval") => {
            may(call, "approve", old).map_or(Ok(()), refuse)
        }
        (Operation::Update, "status", Some(old))
            if settings.admits("CertificateSigning") && changes_verdict(new, old) =>
        {
            may(call, "sign", old).map_or(Ok(()), refuse)
        }
        _ => Ok(()),
    }
}

/// Why the request must not be made at all.
fn restricted_group(request: &Value) -> Option<String> {
    if request["spec"]["signerName"] != CLIENT_SIGNER {
        return None;
    }
    let encoded = request["spec"]["request"].as_str().unwrap_or("");
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    match CertificateRequest::parse(&String::from_utf8_lossy(&pem)) {
        Err(error) => Some(format!("failed to parse CSR: {}", base::Chain(&error))),
        Ok(parsed) => {
            let reserved = [auth::user::MASTERS, auth::user::PLATFORM];
            let groups = parsed.subject.organizations;
            let asked = groups.into_iter().find(|group| reserved.contains(&group.as_str()));
            asked.map(|group| {
                format!("use of {CLIENT_SIGNER} signer with {group} group is not allowed")
            })
        }
    }
}

fn changes_verdict(new: &Value, old: &Value) -> bool {
    let (new, old) = (&new["status"], &old["status"]);
    new["certificate"] != old["certificate"] || new["conditions"] != old["conditions"]
}

/// Why the caller may not `approve` or `sign` for the signer of the request, if so.
fn may(call: &Call<'_>, verb: &str, request: &Value) -> Option<String> {
    let signer = request["spec"]["signerName"].as_str().unwrap_or("");
    let allowed = signer_names(signer).iter().any(|name| {
        let target = AccessTarget::Resource(ResourceRequest {
            group: "certificates.k8s.io",
            version: "*",
            resource: "signers",
            subresource: "",
            namespace: "",
            name,
        });
        let attributes = Attributes { verb, target };
        matches!(authorize::decide(call.api, call.user, &attributes), Decision::Allow(_))
    });
    (!allowed).then(|| format!("user not permitted to {verb} requests with signerName {signer:?}"))
}

/// The names under which a right to a signer can be given: its own, and its whole domain.
fn signer_names(signer: &str) -> [String; 2] {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    [signer.to_owned(), format!("{domain}/*")]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_right_to_a_signer_is_given_by_name_or_by_domain() {
        assert_eq!(
            signer_names("kubernetes.io/kubelet-serving"),
            ["kubernetes.io/kubelet-serving", "kubernetes.io/*"]
        );
    }

    #[test]
    fn conditions_and_certificates_need_the_right_to_sign() {
        let old = json!({"status": {"conditions": [{"type": "Approved"}]}});
        let mut new = old.clone();
        new["metadata"]["labels"]["a"] = "b".into();
        assert!(!changes_verdict(&new, &old));
        new["status"]["certificate"] = "LS0t".into();
        assert!(changes_verdict(&new, &old));
        assert!(changes_verdict(&json!({}), &old));
    }

    #[test]
    fn other_signers_may_use_any_group() {
        let request = json!({"spec": {"signerName": "example.com/own", "request": "bm8="}});
        assert_eq!(restricted_group(&request), None);
        let request = json!({"spec": {"signerName": CLIENT_SIGNER, "request": "bm8="}});
        assert!(restricted_group(&request).unwrap().starts_with("failed to parse CSR: "));
    }
}
