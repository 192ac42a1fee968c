//! The authorizer for nodes: the rights of the role of nodes, but of secrets, config maps and
//! claims only those that a pod on the node uses.
//!
//! Where the nodes run machines instead of pods, an extension says what their role is called and
//! what a machine on a node uses; then nodes also have to exist.

use std::sync::Arc;

use auth::rbac::policy::RoleRef;
use auth::user::{MANAGEMENT_NODES, MASTERS, NODES};
use auth::{AccessTarget, Attributes, Decision, ResourceRequest, User};
use serde_json::Value;

use crate::access::rights;
use crate::api::Api;
use crate::extension::{NodeAccess, NodeObject};
use crate::schemas::refresh;
use crate::verbs::object;

const PREFIX: &str = "system:node:";
/// The table of nodes.
const TABLE: &str = "minions";
const UNRELATED: &str = "no relationship found between node and this object";

/// The name of the node that a user is. Members of `system:masters` are no nodes.
pub(crate) fn name(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX);
    name.filter(|_| user.is_in(NODES) && !user.is_in(MASTERS))
}

pub(super) fn decide(api: &Api, user: &User, attributes: &Attributes<'_>) -> Decision {
    let Some(node) = user.name.strip_prefix(PREFIX).filter(|_| user.is_in(NODES)) else {
        return Decision::NoOpinion(String::new());
    };
    match &api.extensions.nodes {
        Some(access) => decide_platform(api, &**access, (node, user), attributes),
        None => decide_kubelet(api, node, attributes),
    }
}

/// A node of this platform.
fn decide_platform(
    api: &Api,
    access: &dyn NodeAccess,
    (node, user): (&str, &User),
    attributes: &Attributes<'_>,
) -> Decision {
    // A management node is here before its Node is.
    let is_management = user.is_in(MANAGEMENT_NODES);
    if !is_management && api.store.get(TABLE, &object::key("", node)).is_none() {
        return Decision::NoOpinion(format!("node {node:?} is not part of the cluster"));
    }
    if let AccessTarget::Resource(request) = &attributes.target
        && let Some(related) = related(request, attributes.verb)
    {
        let is_used = related.is_some_and(|object| access.relates(node, object, api));
        return if is_used { allowed() } else { Decision::NoOpinion(UNRELATED.to_owned()) };
    }
    by_role(api, access.role(node, api), attributes)
}

/// The object of a request that needs a relationship: nothing if its kind does not, and no object
/// if no relationship allows the request.
#[expect(clippy::option_option, reason = "a kind that needs none is not one that has none")]
fn related<'a>(request: &ResourceRequest<'a>, verb: &str) -> Option<Option<NodeObject<'a>>> {
    let ResourceRequest { group, resource, subresource, namespace, name, .. } = *request;
    let reads = matches!(verb, "get" | "list" | "watch") && subresource.is_empty();
    let object = match (group, resource) {
        // The role decides whether nodes create any, and admission which ones.
        ("", "secrets") if verb == "create" => return None,
        ("", "secrets") => reads.then_some(NodeObject::Secret { namespace, name }),
        ("", "configmaps") => reads.then_some(NodeObject::ConfigMap { namespace, name }),
        ("", "serviceaccounts") => (reads || verb == "create" && subresource == "token")
            .then_some(NodeObject::ServiceAccount { namespace, name }),
        _ => return None,
    };
    Some(object.filter(|_| !name.is_empty() && !namespace.is_empty()))
}

/// A kubelet.
fn decide_kubelet(api: &Api, node: &str, attributes: &Attributes<'_>) -> Decision {
    if let AccessTarget::Resource(request) = &attributes.target
        && request.group.is_empty()
        && let Some(uses) = uses_of(request.resource)
    {
        let named = !request.name.is_empty() && request.subresource.is_empty();
        let reads = matches!(attributes.verb, "get" | "list" | "watch");
        let used = named && reads && is_used(api, node, request.namespace, request.name, uses);
        return if used { allowed() } else { Decision::NoOpinion(UNRELATED.to_owned()) };
    }
    by_role(api, "system:node", attributes)
}

fn by_role(api: &Api, name: &str, attributes: &Attributes<'_>) -> Decision {
    let role = RoleRef {
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
        api_group: auth::rbac::GROUP.to_owned(),
    };
    let rules = rights::policy(api).resolve(&role, "");
    let may = rules.is_ok_and(|rules| rules.iter().any(|rule| rule.allows(attributes)));
    if may { allowed() } else { Decision::NoOpinion(String::new()) }
}

fn allowed() -> Decision {
    Decision::Allow(Arc::from(""))
}

type Uses = fn(&Value, &str) -> bool;

fn uses_of(resource: &str) -> Option<Uses> {
    match resource {
        "secrets" => Some(uses_secret),
        "configmaps" => Some(uses_config_map),
        "persistentvolumeclaims" => Some(uses_claim),
        _ => None,
    }
}

fn is_used(api: &Api, node: &str, namespace: &str, name: &str, uses: Uses) -> bool {
    let pods = refresh::entries(api, "pods").into_iter().map(|entry| entry.item.to_value());
    pods.filter(|pod| pod["spec"]["nodeName"] == node && object::namespace(pod) == namespace)
        .any(|pod| uses(&pod["spec"], name))
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|field| list(spec, field))
}

/// Whether the environment of a container takes from the object of a source.
fn environment(spec: &Value, whole: &str, key: &str, name: &str) -> bool {
    containers(spec).any(|container| {
        list(container, "envFrom").any(|from| from[whole]["name"] == name)
            || list(container, "env").any(|env| env["valueFrom"][key]["name"] == name)
    })
}

fn projected<'a>(spec: &'a Value, source: &'a str) -> impl Iterator<Item = &'a Value> {
    list(spec, "volumes")
        .flat_map(|volume| list(&volume["projected"], "sources"))
        .map(move |projected| &projected[source])
}

fn uses_secret(spec: &Value, name: &str) -> bool {
    list(spec, "imagePullSecrets").any(|secret| secret["name"] == name)
        || list(spec, "volumes").any(|volume| volume["secret"]["secretName"] == name)
        || projected(spec, "secret").any(|secret| secret["name"] == name)
        || environment(spec, "secretRef", "secretKeyRef", name)
}

fn uses_config_map(spec: &Value, name: &str) -> bool {
    list(spec, "volumes").any(|volume| volume["configMap"]["name"] == name)
        || projected(spec, "configMap").any(|map| map["name"] == name)
        || environment(spec, "configMapRef", "configMapKeyRef", name)
}

fn uses_claim(spec: &Value, name: &str) -> bool {
    list(spec, "volumes").any(|volume| volume["persistentVolumeClaim"]["claimName"] == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_named_objects_can_have_a_relationship() {
        let request = |resource, subresource, namespace, name| ResourceRequest {
            group: "",
            version: "v1",
            resource,
            subresource,
            namespace,
            name,
        };
        let secret = NodeObject::Secret { namespace: "n", name: "x" };
        let account = NodeObject::ServiceAccount { namespace: "n", name: "x" };
        for (verb, asked, expected) in [
            ("get", request("secrets", "", "n", "x"), Some(Some(secret))),
            ("watch", request("secrets", "", "n", "x"), Some(Some(secret))),
            ("list", request("secrets", "", "n", ""), Some(None)),
            ("list", request("secrets", "", "", ""), Some(None)),
            ("list", request("secrets", "", "", "x"), Some(None)),
            ("update", request("secrets", "", "n", "x"), Some(None)),
            ("create", request("serviceaccounts", "token", "n", "x"), Some(Some(account))),
            ("create", request("serviceaccounts", "", "n", "x"), Some(None)),
            ("get", request("serviceaccounts", "token", "n", "x"), Some(None)),
            ("get", request("nodes", "", "", "x"), None),
        ] {
            assert_eq!(related(&asked, verb), expected, "{verb} {asked:?}");
        }
    }

    #[test]
    fn a_pod_uses_what_its_volumes_and_its_environment_name() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"secret": {"secretName": "mounted"}}, {"configMap": {"name": "settings"}},
                {"persistentVolumeClaim": {"claimName": "disk"}},
                {"projected": {"sources": [{"secret": {"name": "projected"}}]}},
            ],
            "containers": [{
                "envFrom": [{"configMapRef": {"name": "all"}}],
                "env": [{"valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}],
            }],
        });
        for (uses, name, expected) in [
            (uses_secret as Uses, "pull", true),
            (uses_secret, "mounted", true),
            (uses_secret, "projected", true),
            (uses_secret, "one", true),
            (uses_secret, "settings", false),
            (uses_config_map, "settings", true),
            (uses_config_map, "all", true),
            (uses_config_map, "one", false),
            (uses_claim, "disk", true),
            (uses_claim, "other", false),
        ] {
            assert_eq!(uses(&spec, name), expected, "{name}");
        }
    }
}
