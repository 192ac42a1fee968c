//! Selectors of ClusterNetworkPolicies: the schema leaves operators and labels open, and a rule whose
//! selector cannot be evaluated would deny everything.

use schema::{FieldError, Path};
use serde_json::Value;

use super::{AdmissionResult, Refusal, Write};

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let (spec, mut errors) = (Path::Root.field("spec"), Vec::new());
    validate_peer(&object["spec"]["subject"], &spec.field("subject"), &mut errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = spec.field(direction);
        let rules = object["spec"][direction].as_array().into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            let (path, all) = (list.index(index), rule[peers].as_array().into_iter().flatten());
            let path = path.field(peers);
            for (index, peer) in all.enumerate() {
                validate_peer(peer, &path.index(index), &mut errors);
            }
        }
    }
    match errors.first() {
        None => Ok(()),
        Some(error) => Err(Refusal::invalid("spec", error.to_string())),
    }
}

/// A subject or a peer.
fn validate_peer(peer: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let pods = path.field("pods");
    for (selector, path) in [
        (peer.get("namespaces"), path.field("namespaces")),
        (peer.pointer("/pods/namespaceSelector"), pods.field("namespaceSelector")),
        (peer.pointer("/pods/podSelector"), pods.field("podSelector")),
    ] {
        kinds::labels::validate_selector(selector, &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    #[test]
    fn selectors_must_be_ones_that_can_be_evaluated() {
        let cluster = Cluster(Vec::new());
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        let pods = |selector: &Value| json!({"pods": {"podSelector": selector}});
        let all = json!({"namespaces": {}});
        for (spec, refused) in [
            (json!({"subject": all, "ingress": [{"from": [pods(&json!({}))]}]}), None),
            (json!({"subject": {"namespaces": odd}}), Some("spec.subject.namespaces")),
            (
                json!({"subject": all, "ingress": [{"from": [all, pods(&odd)]}]}),
                Some("spec.ingress[0].from[1].pods.podSelector.matchExpressions[0].operator"),
            ),
            (
                json!({"subject": all, "egress": [{"to": [
                    {"pods": {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a b": "c"}}}}]}]}),
                Some("spec.egress[0].to[0].pods.namespaceSelector"),
            ),
        ] {
            let object = json!({"metadata": {"name": "p"}, "spec": spec});
            let write = Write {
                group: crate::cluster_network_policy::GROUP,
                resource: crate::cluster_network_policy::PLURAL,
                namespace: "",
                name: "p",
                object: Some(&object),
                old: None,
                trusted: false,
                objects: &cluster,
                writer: &cluster,
                uuid: &uuid,
            };
            let judged = validate(&write).err().map(|refusal| refusal.message);
            match (judged, refused) {
                (None, None) => {}
                (Some(message), Some(path)) if message.contains(path) => {}
                (judged, refused) => panic!("{spec}: {judged:?}, expected {refused:?}"),
            }
        }
    }
}
