//! Which objects an object belongs to, and which pods run it.

use client::Catalog;
use serde_json::{Value, json};

use super::state::summarize;
use crate::type_name;

/// The relationships of an object: its owners, what its selector selects, and the pods it owns.
pub(super) fn of(object: &Value, catalog: &Catalog, pods: &[Value]) -> Value {
    let mut found: Vec<Value> = Vec::new();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
        let [version, kind, name] =
            ["apiVersion", "kind", "name"].map(|field| owner[field].as_str().unwrap_or_default());
        let Some(kind) = catalog.find(version, kind) else { continue };
        let id = if kind.namespaced { format!("{namespace}/{name}") } else { name.to_owned() };
        found.push(json!({
            "fromId": id, "fromType": type_name::id(kind), "rel": "owner", "state": "",
            "message": "", "error": false, "transitioning": false,
        }));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    for pod in pods.iter().filter(|pod| !uid.is_empty() && is_owned(pod, uid)) {
        let summary = summarize(pod);
        let [namespace, name] =
            ["namespace", "name"].map(|field| pod["metadata"][field].as_str().unwrap_or_default());
        found.push(json!({
            "toId": format!("{namespace}/{name}"), "toType": "pod", "rel": "owner",
            "state": summary.name, "message": summary.message, "error": summary.error,
            "transitioning": summary.transitioning,
        }));
    }
    if let Some(selector) = object["spec"]["selector"]["matchLabels"].as_object() {
        let terms = selector
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        found.push(json!({
            "toType": "pod", "toNamespace": namespace, "rel": "selects",
            "selector": terms.collect::<Vec<_>>().join(","), "state": "", "message": "",
            "error": false, "transitioning": false,
        }));
    }
    Value::Array(found)
}

fn is_owned(pod: &Value, uid: &str) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_name::tests::catalog;

    #[test]
    fn owners_and_pods_are_related() {
        let owner =
            json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web"});
        let object = json!({
            "metadata": {"namespace": "n", "uid": "7", "ownerReferences": [owner]},
        });
        let pod = json!({
            "metadata": {"namespace": "n", "name": "p", "ownerReferences": [{"uid": "7"}]},
            "status": {"phase": "Succeeded"},
        });
        let other = json!({"metadata": {"namespace": "n", "name": "q"}});
        let found = of(&object, &catalog(), &[pod, other]);
        assert_eq!(found.as_array().unwrap().len(), 2);
        assert_eq!(found[0]["fromId"], "n/web");
        assert_eq!(found[0]["fromType"], "kubevirt.io.virtualmachine");
        assert_eq!((&found[1]["toId"], &found[1]["state"]), (&json!("n/p"), &json!("succeeded")));
    }
}
