//! Attacks that must fail, each with an answer that says why. The attacker is `mallory`, a tenant
//! with the role `edit` in namespace `team`; the targets are in namespace `victim`.

mod backups;
mod certificates;
mod confinement;
mod connections;
mod disks;
mod files;
mod grants;
mod guest_clusters;
mod host_disks;
mod images;
mod imports;
mod nodes;
mod paths;
mod quotas;
mod references;
mod services;
mod sessions;
mod snapshots;
mod trust;

use std::ops::Deref;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, eventually, poll};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The tenant's access. When the test ends, each of its requests that was refused has to have a line
/// in the audit log.
struct Tenant {
    http: Http,
    log: PathBuf,
}

impl Deref for Tenant {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for (id, code) in self.http.refusals() {
            poll(&format!("the refusal {id} is in the audit log"), || {
                let text = std::fs::read_to_string(&self.log).unwrap_or_default();
                let events = text.lines().filter(|line| line.contains(&id));
                let mut events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
                let is_known = events.any(|event| {
                    event["user"]["username"] == "system:admin"
                        && event["impersonatedUser"]["username"] == "mallory"
                        && event["responseStatus"]["code"] == code
                });
                if is_known { Ok(()) } else { Err(text) }
            });
        }
    }
}

/// Creates both namespaces and answers with the tenant's access.
fn tenant(sheaf: &Sheaf) -> Tenant {
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
        ("create", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
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
    Tenant { http: mallory, log: sheaf.data().join("audit/audit.log") }
}

/// A controller of the cluster.
fn controller(sheaf: &Sheaf) -> Http {
    sheaf
        .http()
        .with("impersonate-user", "system:sheaf-controller:machines")
        .with("impersonate-group", "system:sheaf-platform")
        .with("impersonate-group", "system:masters")
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
