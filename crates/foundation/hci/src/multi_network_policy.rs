//! MultiNetworkPolicies of `k8s.cni.cncf.io`: NetworkPolicies for interfaces on networks that machines
//! have beside the guest network. Types and names, pure.
//!
//! The fields are those of a NetworkPolicy. An annotation names the networks.

use std::collections::BTreeSet;

use crd::atom::{IntOrString, LabelSelector, ObjectMeta};
use crd::record::record;
use serde_json::Value;

pub const GROUP: &str = "k8s.cni.cncf.io";
pub const VERSION: &str = "v1beta1";
pub const KIND: &str = "MultiNetworkPolicy";
pub const PLURAL: &str = "multi-networkpolicies";

/// Names the networks of a policy: a list of NetworkAttachmentDefinitions with commas in between,
/// each as NAMESPACE/NAME, or as NAME in the policy's namespace.
pub const POLICY_FOR: &str = "k8s.v1.cni.cncf.io/policy-for";

/// Why a text does not name networks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyForError {
    #[error("must name a NetworkAttachmentDefinition, as NAME or NAMESPACE/NAME")]
    Empty,
    #[error("{name:?} is no name of a NetworkAttachmentDefinition: {why}")]
    Name { name: String, why: String },
    #[error("{namespace:?} is no namespace: {why}")]
    Namespace { namespace: String, why: String },
}

/// The networks that the annotation names, as NAMESPACE/NAME.
pub fn networks(policy_for: &str, namespace: &str) -> Result<BTreeSet<String>, PolicyForError> {
    policy_for.split(',').map(|name| network(name.trim(), namespace)).collect()
}

fn network(text: &str, own: &str) -> Result<String, PolicyForError> {
    let (namespace, name) = text.split_once('/').unwrap_or((own, text));
    if name.is_empty() {
        return Err(PolicyForError::Empty);
    }
    if let Some(why) = kinds::syntax::label(namespace).into_iter().next() {
        return Err(PolicyForError::Namespace { namespace: namespace.to_owned(), why });
    }
    match kinds::syntax::subdomain(name).into_iter().next() {
        Some(why) => Err(PolicyForError::Name { name: name.to_owned(), why }),
        None => Ok(format!("{namespace}/{name}")),
    }
}

/// The policies of a namespace that select one of its instances, as KIND NAME: NetworkPolicies, and
/// MultiNetworkPolicies of a network that it is on. Such a policy drops what no rule allows.
pub fn selecting(policies: &[Value], multi: &[Value], instance: &Value) -> Vec<String> {
    let namespace = instance["metadata"]["namespace"].as_str().unwrap_or_default();
    let labels = &instance["metadata"]["labels"];
    let all = instance["spec"]["networks"].as_array().into_iter().flatten();
    let definitions = all.clone().filter_map(|own| own["multus"]["networkName"].as_str());
    let own: BTreeSet<_> = definitions.filter_map(|name| network(name, namespace).ok()).collect();
    let is_on_guest_network = all.into_iter().any(|own| own.get("pod").is_some());
    let selects = |policy: &&Value| {
        policy["metadata"]["namespace"] == namespace
            && kinds::labels::matches(&policy["spec"]["podSelector"], labels)
    };
    let is_for_own = |policy: &&Value| {
        let policy_for = policy["metadata"]["annotations"][POLICY_FOR].as_str();
        let named = policy_for.and_then(|text| networks(text, namespace).ok());
        named.is_some_and(|named| !named.is_disjoint(&own))
    };
    let name = |kind: &str, policy: &Value| {
        format!("{kind} {}", policy["metadata"]["name"].as_str().unwrap_or_default())
    };
    let guest = policies.iter().filter(|_| is_on_guest_network).filter(selects);
    let guest = guest.map(|policy| name("NetworkPolicy", policy));
    let others = multi.iter().filter(selects).filter(is_for_own);
    guest.chain(others.map(|policy| name(KIND, policy))).collect()
}

record! {
    /// Rules of a namespace for the connections of its machines on networks beside the guest network.
    MultiNetworkPolicy {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Machines that the policy selects, and the connections that it allows them.
        spec: MultiNetworkPolicySpec,
    }

    MultiNetworkPolicySpec {
        /// Labels of the machines in the policy's namespace that it selects; all if it is empty or
        /// missing.
        pod_selector: Option<LabelSelector>,
        /// Directions that the policy restricts: Ingress, Egress. By default Ingress, and Egress if
        /// there are rules of it.
        policy_types: Vec<String>,
        /// Connections that are allowed to the selected machines.
        ingress: Vec<MultiIngressRule>,
        /// Connections that are allowed from the selected machines.
        egress: Vec<MultiEgressRule>,
    }

    MultiIngressRule {
        /// Ports of the selected machines; all if it is missing, also protocols without ports.
        ports: Vec<MultiPolicyPort>,
        /// Sources of the connections; all if it is missing.
        from: Vec<MultiPolicyPeer>,
    }

    MultiEgressRule {
        /// Ports of the destinations; all if it is missing, also protocols without ports.
        ports: Vec<MultiPolicyPort>,
        /// Destinations of the connections; all if it is missing.
        to: Vec<MultiPolicyPeer>,
    }

    MultiPolicyPort {
        /// Protocol: TCP (the default), UDP or SCTP.
        protocol: Option<String>,
        /// Number of the port, or its name among the `ports` of the interface of the machine that
        /// serves it; all ports of the protocol if it is missing.
        port: Option<IntOrString>,
        /// Last port of a range that begins with `port`.
        end_port: Option<i32>,
    }

    MultiPolicyPeer {
        /// Labels of machines, in the policy's namespace or in those of `namespaceSelector`.
        pod_selector: Option<LabelSelector>,
        /// Labels of namespaces; all of their machines if `podSelector` is missing.
        namespace_selector: Option<LabelSelector>,
        /// Addresses inside and outside the cluster.
        ip_block: Option<MultiPolicyBlock>,
    }

    MultiPolicyBlock {
        /// Range of addresses: 192.0.2.0/24 or fd00::/64.
        cidr: String,
        /// Parts of the range that do not belong to it.
        except: Vec<String>,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_that_select_an_instance_are_named() {
        let policy = |namespace: &str, name: &str, app: &str, policy_for: &str| {
            json!({"metadata": {"namespace": namespace, "name": name,
                "annotations": {POLICY_FOR: policy_for}},
                "spec": {"podSelector": {"matchLabels": {"app": app}}}})
        };
        let plain = [policy("n", "a", "web", ""), policy("n", "b", "db", "")];
        let multi = [
            policy("n", "c", "web", "default/lan"),
            policy("n", "d", "web", "default/other"),
            policy("m", "e", "web", "default/lan"),
            policy("n", "f", "db", "default/lan"),
        ];
        let lan = json!({"name": "lan", "multus": {"networkName": "default/lan"}});
        for (networks, expected) in [
            (json!([{"name": "default", "pod": {}}, lan]), "NetworkPolicy a, MultiNetworkPolicy c"),
            (json!([lan]), "MultiNetworkPolicy c"),
            (json!([{"name": "default", "pod": {}}]), "NetworkPolicy a"),
        ] {
            let instance = json!({"metadata": {"namespace": "n", "labels": {"app": "web"}},
                "spec": {"networks": networks}});
            assert_eq!(selecting(&plain, &multi, &instance).join(", "), expected);
        }
    }

    #[test]
    fn networks_are_named_with_or_without_a_namespace() {
        for (text, expected) in [
            ("lan", Ok("n/lan")),
            ("default/lan, back,n/lan", Ok("default/lan n/back n/lan")),
            ("", Err("must name")),
            ("lan,", Err("must name")),
            ("default/", Err("must name")),
            ("/lan", Err("\"\" is no namespace")),
            ("a.b/lan", Err("\"a.b\" is no namespace")),
            ("Lan", Err("\"Lan\" is no name of")),
            ("a/b/c", Err("\"b/c\" is no name of")),
        ] {
            match (networks(text, "n"), expected) {
                (Ok(all), Ok(expected)) => {
                    assert_eq!(all.into_iter().collect::<Vec<_>>().join(" "), expected, "{text:?}");
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{text:?}: {error}");
                }
                (got, expected) => panic!("{text:?}: {got:?}, expected {expected:?}"),
            }
        }
    }
}
