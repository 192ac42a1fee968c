//! Whether a joining machine gets the certificate of a node, and the records of that. Pure.
//!
//! ```text
//!   Reserve ─► CreateNode ─► Complete ─► Approve        each step can be repeated after a crash
//!      └─────────┴────► Deny
//! ```
//!
//! The token counts the nodes that came with it. The Node is created here, with the pin of the
//! key that asks: from then on no other key gets a certificate for its name.

use std::collections::BTreeMap;

use hci::cluster::{
    ETCD_ROLE, JOIN_TOKEN, MANAGED, MANAGEMENT_ROLE, NODE_KEY, WITNESS_ROLE, WORKER_ROLE,
    is_node_name,
};
use k8s_openapi::api::core::v1::{Node, Secret};
use serde_json::{Value, json};

/// Entries of the token's Secret.
const ROLE: &str = "role";
const NODE_NAME: &str = "node-name";
const USES: &str = "uses";
const USED_BY: &str = "used-by";
const JOINING: &str = "joining";

/// The requester, and the existing objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinFacts<'a> {
    /// ID of the token, and its Secret if it exists.
    pub(super) token: &'a str,
    pub(super) secret: Option<&'a Secret>,
    /// Name that the node would have, and the Node of that name.
    pub(super) name: &'a str,
    pub(super) node: Option<&'a Node>,
    /// Pin of the key that asks.
    pub(super) key: &'a str,
    /// The witness of the cluster, if it has one.
    pub(super) witness: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum JoinStep {
    /// A token that is not for joining: its rights decide alone.
    NotOurs,
    /// Counts the node, before anything is made for it. A merge patch of the Secret.
    Reserve(Value),
    CreateNode(Value),
    /// Records that the node has come. A merge patch of the Secret.
    Complete(Value),
    Approve,
    Deny {
        message: String,
    },
}

pub(super) fn step(facts: &JoinFacts<'_>) -> JoinStep {
    let JoinFacts { token, name, key, .. } = *facts;
    let deny = |message: String| JoinStep::Deny { message };
    let Some(secret) = facts.secret else {
        return deny(format!("token {token} was revoked; create another: sheaf token create"));
    };
    let Some(role) = entry(secret, ROLE) else { return other_key(facts) };
    let role_label = match role.as_str() {
        "worker" => WORKER_ROLE,
        "management" => MANAGEMENT_ROLE,
        "witness" => WITNESS_ROLE,
        _ => return deny(format!("token {token} has the role {role:?}, which is not supported")),
    };
    if let Some(message) = objection(facts, secret, role_label) {
        return deny(message);
    }
    let (used, joining) = (list(secret, USED_BY), list(secret, JOINING));
    let own = format!("{name}={key}");
    if joining.contains(&own) {
        return match facts.node {
            None => JoinStep::CreateNode(new_node(name, key, token, role_label)),
            Some(_) => JoinStep::Complete(completed(secret, &used, &joining, name, &own)),
        };
    }
    if facts.node.is_some() {
        // The same machine again, with whatever valid token.
        return JoinStep::Approve;
    }
    let limit = entry(secret, USES).and_then(|uses| uses.parse::<usize>().ok());
    if limit.is_some_and(|limit| used.len() + joining.len() >= limit) {
        let by: Vec<&str> =
            used.iter().chain(&joining).map(|it| it.split('=').next().unwrap_or(it)).collect();
        return deny(format!(
            "token {token} is used up: it was used by {}; create another: sheaf token create",
            by.join(", ")
        ));
    }
    let all: Vec<&str> = joining.iter().map(String::as_str).chain([own.as_str()]).collect();
    JoinStep::Reserve(patch(secret, &[(JOINING, all.join(","))]))
}

/// Why no machine may join under the name of the request with this token.
fn objection(facts: &JoinFacts<'_>, secret: &Secret, role_label: &str) -> Option<String> {
    let JoinFacts { token, name, key, .. } = *facts;
    if !is_node_name(name) {
        return Some(format!(
            "{name:?} cannot be the name of a node: at most 63 lower-case letters, digits, '-' and \
             '.'; choose another with --node-name"
        ));
    }
    if let Some(only) = entry(secret, NODE_NAME).filter(|only| only != name) {
        return Some(format!(
            "token {token} is for the node {only:?}, not for {name:?}; use --node-name {only}, or \
             create another token: sheaf token create --node {name}"
        ));
    }
    if facts.node.is_some_and(|node| recorded_key(node) != Some(key)) {
        return Some(name_taken(name));
    }
    if let Some(other) = facts.node.and_then(|node| other_role(node, role_label)) {
        return Some(format!(
            "node {name:?} is a {other}; remove it first, sheaf node remove {name}, and join with \
             another --data-dir"
        ));
    }
    let other = facts.witness.filter(|own| role_label == WITNESS_ROLE && *own != name)?;
    Some(format!(
        "the cluster has a witness, the node {other:?}: a second one would not vote, since an \
             even number of voters survives no more failures. Add a management node instead, sheaf \
             token create --role management, or remove the other first: sheaf node remove {other}"
    ))
}

/// The role of an existing node if it differs from the requested one; joining again cannot change a
/// role, since a worker holds no keys of the cluster and a witness runs no machines.
fn other_role(node: &Node, wanted: &str) -> Option<&'static str> {
    let labels = node.metadata.labels.as_ref();
    let has = |role: &str| labels.is_some_and(|labels| labels.contains_key(role));
    match wanted {
        _ if has(WITNESS_ROLE) => (wanted != WITNESS_ROLE).then_some("witness"),
        WITNESS_ROLE if has(MANAGEMENT_ROLE) => Some("management node"),
        WITNESS_ROLE | MANAGEMENT_ROLE if has(WORKER_ROLE) => Some("worker"),
        _ => None,
    }
}

/// Whether a node may renew its certificate: it exists, and asks with its own key.
pub(super) fn may_renew(node: Option<&Node>, key: &str) -> bool {
    node.is_some_and(|node| recorded_key(node).is_none_or(|recorded| recorded == key))
}

/// A token of another user joins the nodes that its rights allow, but takes over no name.
fn other_key(facts: &JoinFacts<'_>) -> JoinStep {
    let recorded = facts.node.and_then(recorded_key);
    if recorded.is_some_and(|recorded| recorded != facts.key) {
        return JoinStep::Deny { message: name_taken(facts.name) };
    }
    JoinStep::NotOurs
}

fn name_taken(name: &str) -> String {
    format!(
        "another machine is the node {name:?}; choose another name with --node-name, or, if this \
         machine replaces it, remove the other first: sheaf node remove {name}"
    )
}

fn recorded_key(node: &Node) -> Option<&str> {
    node.metadata.annotations.as_ref()?.get(NODE_KEY).map(String::as_str)
}

fn entry(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.is_empty())
}

fn list(secret: &Secret, key: &str) -> Vec<String> {
    let text = entry(secret, key).unwrap_or_default();
    text.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn completed(secret: &Secret, used: &[String], joining: &[String], name: &str, own: &str) -> Value {
    let others: Vec<&str> = joining.iter().map(String::as_str).filter(|it| *it != own).collect();
    let all: Vec<&str> = used.iter().map(String::as_str).chain([name]).collect();
    patch(secret, &[(JOINING, others.join(",")), (USED_BY, all.join(","))])
}

/// Only onto the Secret as it was read: two nodes never get one use.
fn patch(secret: &Secret, entries: &[(&str, String)]) -> Value {
    let data: BTreeMap<&str, &String> = entries.iter().map(|(key, text)| (*key, text)).collect();
    json!({
        "metadata": {"resourceVersion": secret.metadata.resource_version},
        "stringData": data,
    })
}

fn new_node(name: &str, key: &str, token: &str, role: &str) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                role: "true",
                MANAGED: "true",
                "kubernetes.io/hostname": name,
            },
            "annotations": {NODE_KEY: key, JOIN_TOKEN: token},
        },
    });
    if role == WITNESS_ROLE {
        node["metadata"]["labels"][ETCD_ROLE] = "true".into();
        let taint = json!({"key": ETCD_ROLE, "value": "true", "effect": "NoExecute"});
        node["spec"] = json!({"taints": [taint]});
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(entries: &[(&str, &str)]) -> Secret {
        let entries = entries.iter().map(|(key, text)| {
            ((*key).to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec()))
        });
        let mut secret = Secret { data: Some(entries.collect()), ..Secret::default() };
        secret.metadata.resource_version = Some("7".to_owned());
        secret
    }

    fn node(key: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.annotations =
            key.map(|key| BTreeMap::from([(NODE_KEY.to_owned(), key.to_owned())]));
        node
    }

    fn decide(secret: Option<&Secret>, name: &str, node: Option<&Node>) -> JoinStep {
        step(&JoinFacts { token: "abcdef", secret, name, node, key: "k1", witness: None })
    }

    fn denial(step: JoinStep) -> String {
        match step {
            JoinStep::Deny { message } => message,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn a_node_is_counted_created_recorded_and_approved() {
        let fresh = secret(&[(ROLE, "worker"), (USES, "1")]);
        let reserved = decide(Some(&fresh), "n2", None);
        let expected = json!({"metadata": {"resourceVersion": "7"},
            "stringData": {"joining": "n2=k1"}});
        assert_eq!(reserved, JoinStep::Reserve(expected));
        let joining = secret(&[(ROLE, "worker"), (USES, "1"), (JOINING, "n2=k1")]);
        let JoinStep::CreateNode(made) = decide(Some(&joining), "n2", None) else { panic!() };
        assert_eq!(made["metadata"]["annotations"][NODE_KEY], "k1");
        assert_eq!(made["metadata"]["labels"][WORKER_ROLE], "true");
        let JoinStep::Complete(patch) = decide(Some(&joining), "n2", Some(&node(Some("k1"))))
        else {
            panic!()
        };
        assert_eq!(patch["stringData"], json!({"joining": "", "used-by": "n2"}));
        let done = secret(&[(ROLE, "worker"), (USES, "1"), (USED_BY, "n2")]);
        assert_eq!(decide(Some(&done), "n2", Some(&node(Some("k1")))), JoinStep::Approve);
    }

    #[test]
    fn refusals_name_their_remedy() {
        let worker = |more: &[(&str, &str)]| {
            let mut all = vec![(ROLE, "worker")];
            all.extend_from_slice(more);
            secret(&all)
        };
        let other = node(Some("k2"));
        for (token, name, node, part) in [
            (None, "n2", None, "was revoked; create another: sheaf token create"),
            (Some(worker(&[(USES, "1"), (USED_BY, "n3")])), "n2", None, "used by n3; create"),
            (Some(worker(&[(USES, "1"), (JOINING, "n3=k9")])), "n2", None, "used by n3; create"),
            // A node that was removed does not come back with the token it used.
            (Some(worker(&[(USES, "1"), (USED_BY, "n2")])), "n2", None, "used by n2; create"),
            (Some(worker(&[(NODE_NAME, "n3")])), "n2", None, "use --node-name n3"),
            (Some(worker(&[])), "n2", Some(&other), "sheaf node remove n2"),
            (Some(worker(&[])), "N2", None, "choose another with --node-name"),
            (Some(secret(&[(ROLE, "spare")])), "n2", None, "not supported"),
            (Some(secret(&[])), "n2", Some(&other), "sheaf node remove n2"),
        ] {
            let message = denial(decide(token.as_ref(), name, node));
            assert!(message.contains(part), "{message}");
        }
        // A node that was not joined has no key, and its name cannot be taken over.
        let message = denial(decide(Some(&worker(&[])), "n1", Some(&node(None))));
        assert!(message.contains("another machine is the node"), "{message}");
    }

    #[test]
    fn only_a_management_token_makes_a_management_node() {
        let management = secret(&[(ROLE, "management"), (JOINING, "n2=k1")]);
        let JoinStep::CreateNode(made) = decide(Some(&management), "n2", None) else { panic!() };
        assert_eq!(made["metadata"]["labels"][MANAGEMENT_ROLE], "true");
        assert_eq!(made["metadata"]["labels"][WORKER_ROLE], Value::Null);
        // A worker does not become one with its key.
        let mut worker = node(Some("k1"));
        worker.metadata.labels = Some(BTreeMap::from([(WORKER_ROLE.to_owned(), "true".into())]));
        let message = denial(decide(Some(&management), "n2", Some(&worker)));
        assert!(message.contains("is a worker; remove it first"), "{message}");
        let plain = secret(&[(ROLE, "worker")]);
        assert_eq!(decide(Some(&plain), "n2", Some(&worker)), JoinStep::Approve);
    }

    #[test]
    fn a_cluster_has_one_witness_on_which_nothing_runs() {
        let token = secret(&[(ROLE, "witness"), (JOINING, "x1=k1")]);
        let of = |witness, node| {
            let secret = Some(&token);
            step(&JoinFacts { token: "abcdef", secret, name: "x1", node, key: "k1", witness })
        };
        let JoinStep::CreateNode(made) = of(None, None) else { panic!() };
        let labels = &made["metadata"]["labels"];
        assert_eq!((&labels[WITNESS_ROLE], &labels[ETCD_ROLE]), (&json!("true"), &json!("true")));
        assert_eq!(labels[MANAGEMENT_ROLE], Value::Null);
        let taint = json!({"key": ETCD_ROLE, "value": "true", "effect": "NoExecute"});
        assert_eq!(made["spec"]["taints"], json!([taint]));
        let mut own = node(Some("k1"));
        own.metadata.labels = Some(BTreeMap::from([(WITNESS_ROLE.to_owned(), "true".into())]));
        assert!(matches!(of(Some("x1"), Some(&own)), JoinStep::Complete(_)), "the same again");
        let message = denial(of(Some("x0"), None));
        assert!(
            message.contains("has a witness, the node \"x0\"") && message.contains("remove x0")
        );
    }

    #[test]
    fn a_node_keeps_its_role() {
        let of = |label: &str| {
            let mut own = node(Some("k1"));
            own.metadata.labels = Some(BTreeMap::from([(label.to_owned(), "true".into())]));
            own
        };
        for (label, token, refused) in [
            (WITNESS_ROLE, "worker", Some("is a witness")),
            (WITNESS_ROLE, "management", Some("is a witness")),
            (WITNESS_ROLE, "witness", None),
            (WORKER_ROLE, "witness", Some("is a worker")),
            (MANAGEMENT_ROLE, "witness", Some("is a management node")),
            (MANAGEMENT_ROLE, "worker", None),
        ] {
            let found = decide(Some(&secret(&[(ROLE, token)])), "n2", Some(&of(label)));
            match refused {
                None => assert_eq!(found, JoinStep::Approve, "{label} {token}"),
                Some(part) => assert!(denial(found).contains(part), "{label} {token}"),
            }
        }
    }

    #[test]
    fn tokens_of_others_are_left_to_their_rights() {
        assert_eq!(decide(Some(&secret(&[])), "n2", None), JoinStep::NotOurs);
        assert_eq!(decide(Some(&secret(&[])), "n2", Some(&node(None))), JoinStep::NotOurs);
    }

    #[test]
    fn a_node_renews_with_its_own_key_while_it_exists() {
        for (node, expected) in [
            (None, false),
            (Some(node(None)), true),
            (Some(node(Some("k1"))), true),
            (Some(node(Some("k2"))), false),
        ] {
            assert_eq!(may_renew(node.as_ref(), "k1"), expected, "{node:?}");
        }
    }
}
