//! Attacks that must fail, each with an answer that says why. The attacker is `mallory`, a tenant
//! with the role `edit` in namespace `team`; the targets are in namespace `victim`.

mod connections;
mod disks;
mod files;
mod imports;
mod paths;
mod references;
mod services;
mod trust;

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, eventually};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Creates both namespaces and answers with the tenant's access.
fn tenant(sheaf: &Sheaf) -> Http {
    let admin = sheaf.http();
    for name in ["team", "victim"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        admin.post("/api/v1/namespaces", &namespace).ok();
    }
    bind(&admin, "team", "ClusterRole/edit", "User", "mallory");
    let mallory = sheaf.http().with("impersonate-user", "mallory");
    // The role is put together of others after the start.
    for (verb, group, resource) in [
        ("watch", "", "configmaps"),
        ("create", "", "persistentvolumeclaims"),
        ("create", "cdi.kubevirt.io", "datavolumes"),
        ("create", "cdi.kubevirt.io", "datasources"),
        ("create", "upload.cdi.kubevirt.io", "uploadtokenrequests"),
        ("create", "kubevirt.io", "virtualmachines"),
        ("create", "harvesterhci.io", "virtualmachineimages"),
        ("list", "harvesterhci.io", "keypairs"),
    ] {
        let attributes =
            json!({"namespace": "team", "verb": verb, "group": group, "resource": resource});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        eventually("the role edit is complete", || {
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            mallory.post(path, &review).ok()["status"]["allowed"] == true
        });
    }
    mallory
}

/// Binds a role, `KIND/NAME`, in a namespace.
fn bind(admin: &Http, namespace: &str, role: &str, kind: &str, name: &str) {
    let (role_kind, role_name) = role.split_once('/').unwrap();
    let mut subject = json!({"kind": kind, "name": name});
    match kind {
        "ServiceAccount" => subject["namespace"] = "team".into(),
        _ => subject["apiGroup"] = "rbac.authorization.k8s.io".into(),
    }
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"generateName": "test-"},
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role_name},
        "subjects": [subject],
    });
    admin.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).ok();
}

/// A role in a namespace with one rule.
fn role(admin: &Http, namespace: &str, name: &str, rule: Value) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [rule],
    });
    admin.post(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).ok();
}
