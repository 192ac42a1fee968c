//! MultiNetworkPolicies: the rules of NetworkPolicies, and that they name networks.
//!
//! As upstream, a network need not exist: the policy has no effect until it does. Upstream ignores a
//! policy that names none; it is refused here.

use schema::{FieldError, Path};
use serde_json::Value;

use super::{AdmissionResult, Refusal, Write};
use crate::multi_network_policy::{POLICY_FOR, networks};

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    if let Some(error) = policy_for(object, write.namespace) {
        return Err(Refusal::invalid("metadata.annotations", error.to_string()));
    }
    let mut errors = Vec::new();
    kinds::validate_network_policy(object, &mut errors);
    match errors.first() {
        None => Ok(()),
        Some(error) => Err(Refusal::invalid("spec", error.to_string())),
    }
}

fn policy_for(object: &Value, namespace: &str) -> Option<FieldError> {
    let metadata = Path::Root.field("metadata");
    let annotations = metadata.field("annotations");
    let path = annotations.key(POLICY_FOR);
    match object["metadata"]["annotations"][POLICY_FOR].as_str() {
        None => Some(FieldError::required(path, "names the networks that the policy is for")),
        Some(text) => {
            let error = networks(text, namespace).err()?;
            Some(FieldError::invalid(path, text, error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;
    use crate::multi_network_policy::{GROUP, PLURAL};

    fn judge(annotations: Value, spec: Value) -> Option<String> {
        let cluster = Cluster(Vec::new());
        let object = json!({"metadata": {"name": "p", "namespace": "n",
            "annotations": annotations}, "spec": spec});
        let write = Write {
            group: GROUP,
            resource: PLURAL,
            namespace: "n",
            name: "p",
            object: Some(&object),
            old: None,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        super::super::validate(&write).err().map(|refusal| refusal.message)
    }

    #[test]
    fn networks_that_do_not_exist_are_accepted_and_bad_references_are_not() {
        let path = "metadata.annotations[k8s.v1.cni.cncf.io/policy-for]";
        for (annotations, refused) in [
            (json!({POLICY_FOR: "lan,default/other"}), None),
            (Value::Null, Some("Required value")),
            (json!({POLICY_FOR: ""}), Some("Invalid value")),
            (json!({POLICY_FOR: "lan,"}), Some("Invalid value")),
            (json!({POLICY_FOR: "a/b/c"}), Some("Invalid value")),
        ] {
            let judged = judge(annotations.clone(), json!({"podSelector": {}}));
            let expected = refused.map(|reason| format!("{path}: {reason}"));
            match (&judged, &expected) {
                (None, None) => {}
                (Some(message), Some(expected)) if message.contains(expected) => {}
                _ => panic!("{annotations}: {judged:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let rule = |port: Value| json!({"podSelector": {}, "ingress": [{"ports": [port]}]});
        let block = |cidr: &str, except: &str| {
            json!({"podSelector": {}, "egress": [
                {"to": [{"ipBlock": {"cidr": cidr, "except": [except]}}]}]})
        };
        for (spec, refused) in [
            (rule(json!({"port": 80, "endPort": 90, "protocol": "UDP"})), None),
            (rule(json!({"port": "http"})), None),
            (block("fd00::/64", "fd00::/80"), None),
            (rule(json!({"port": 80, "endPort": 79})), Some("spec.ingress[0].ports[0].endPort")),
            (
                rule(json!({"port": 80, "protocol": "ICMP"})),
                Some("spec.ingress[0].ports[0].protocol"),
            ),
            (rule(json!({"port": 70000})), Some("spec.ingress[0].ports[0].port")),
            (
                block("192.0.2.0/24", "198.51.100.0/25"),
                Some("spec.egress[0].to[0].ipBlock.except[0]"),
            ),
            (block("192.0.2.0", "192.0.2.0/25"), Some("spec.egress[0].to[0].ipBlock.cidr")),
            (json!({"podSelector": {}, "policyTypes": ["Both"]}), Some("spec.policyTypes[0]")),
            (
                json!({"podSelector": {}, "ingress": [{"from": [{}]}]}),
                Some("spec.ingress[0].from[0]"),
            ),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
                Some("spec.podSelector.matchExpressions[0].operator"),
            ),
        ] {
            let judged = judge(json!({POLICY_FOR: "lan"}), spec.clone());
            match (&judged, refused) {
                (None, None) => {}
                (Some(message), Some(path)) if message.contains(&format!("{path}: ")) => {}
                _ => panic!("{spec}: {judged:?}, expected {refused:?}"),
            }
        }
    }
}
