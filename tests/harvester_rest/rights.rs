//! Actions that resources show to users with different rights.

use serde_json::{Value, json};

use super::{PASSWORD, client_of, server};
use crate::harness::{Http, Sheaf};

const MACHINES: &str = "/v1/harvester/kubevirt.io.virtualmachines/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A user with a role in the namespace `default`.
fn user(sheaf: &Sheaf, name: &str, kind: &str, role: &str) -> Http {
    sheaf.run(&format!("user create {name} --password {PASSWORD}"));
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": name}],
    });
    sheaf.http().post(&format!("{RBAC}/rolebindings"), &binding).ok();
    client_of(sheaf, name, PASSWORD)
}

fn actions(resource: &Value) -> Vec<String> {
    resource["actions"].as_object().unwrap().keys().cloned().collect()
}

fn has(resource: &Value, action: &str) -> bool {
    actions(resource).iter().any(|own| own == action)
}

fn machine(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"resources": {"limits": {"cpu": 1, "memory": "128Mi"}}, "devices": {}},
        }}},
    })
}

#[test]
fn an_operator_sees_start_and_an_editor_sees_no_action_that_is_forbidden() {
    let sheaf = server();
    let admin = client_of(&sheaf, "admin", PASSWORD);
    admin.post(MACHINES, &machine("web")).ok();
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "operator"},
        "rules": [
            {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"],
                "verbs": ["get", "list"]},
            {"apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachines/start"],
                "verbs": ["update"]},
        ],
    });
    sheaf.http().post(&format!("{RBAC}/roles"), &role).ok();
    let operator = user(&sheaf, "operator", "Role", "operator");
    let web = format!("{MACHINES}/web");
    let shown = operator.get(&web).ok();
    assert_eq!(actions(&shown), ["start"], "{shown}");
    assert_eq!(shown["links"].get("update"), None);
    let list = operator.get(MACHINES).ok();
    assert_eq!(actions(&list["data"][0]), ["start"], "{list}");
    // All namespaces are those in which the operator may list.
    let list = operator.get("/v1/harvester/kubevirt.io.virtualmachines").ok();
    assert_eq!(actions(&list["data"][0]), ["start"], "{list}");
    let reply = operator.post(&format!("{web}?action=start"), &json!({}));
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_ne!(operator.get(&web).ok()["spec"]["runStrategy"], "Halted");
    assert_eq!(operator.post(&format!("{web}?action=stop"), &json!({})).status, 403);

    let editor = user(&sheaf, "editor", "ClusterRole", "edit");
    let shop = format!("{MACHINES}/shop");
    admin.post(MACHINES, &machine("shop")).ok();
    let shown = editor.get(&shop).ok();
    assert!(has(&shown, "start") && has(&shown, "clone"), "{shown}");
    for action in actions(&shown) {
        let reply = editor.post(&format!("{shop}?action={action}"), &json!({}));
        assert_ne!(reply.status, 403, "{action}: {}", reply.text());
    }
    let keys = "/v1/harvester/harvesterhci.io.keypairs/default";
    assert!(has(&editor.get(keys).ok(), "keygen"));
    let images = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";
    let image = json!({"metadata": {"name": "up"},
        "spec": {"displayName": "up", "sourceType": "upload"}});
    assert!(has(&editor.post(images, &image).ok(), "upload"));
}
