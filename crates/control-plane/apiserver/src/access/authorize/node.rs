//! What a node may do: what the role `system:node` says, but of secrets, config maps and
//! claims only those that a pod on it uses.

use std::sync::Arc;

use auth::rbac::policy::RoleRef;
use auth::{AccessTarget, Attributes, Decision, User};
use serde_json::Value;

use crate::access::rights;
use crate::api::Api;
use crate::schemas::refresh;
use crate::verbs::object;

const NODES: &str = "system:nodes";
const PREFIX: &str = "system:node:";

pub(super) fn decide(api: &Api, user: &User, attributes: &Attributes<'_>) -> Decision {
    let Some(node) = user.name.strip_prefix(PREFIX).filter(|_| user.is_in(NODES)) else {
        return Decision::NoOpinion(String::new());
    };
    if let AccessTarget::Resource(request) = &attributes.target
        && request.group.is_empty()
        && let Some(uses) = uses_of(request.resource)
    {
        let named = !request.name.is_empty() && request.subresource.is_empty();
        let reads = matches!(attributes.verb, "get" | "list" | "watch");
        let used = named && reads && is_used(api, node, request.namespace, request.name, uses);
        let whose = "no relationship found between node and this object";
        return if used { allowed() } else { Decision::NoOpinion(whose.to_owned()) };
    }
    let role = RoleRef {
        kind: "ClusterRole".to_owned(),
        name: "system:node".to_owned(),
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
