//! Limits that an owner of a namespace would like to have lifted.

use serde_json::json;

use super::{bind, tenant};
use crate::harness::{Sheaf, assert_has, eventually};

/// A write to the status of a Namespace changes its annotations as well, and one has its quota.
#[test]
fn the_quota_of_a_project_is_not_raised_through_a_subresource() {
    let sheaf = Sheaf::start();
    let (admin, _) = (sheaf.http(), tenant(&sheaf));
    bind(&admin, "team", "ClusterRole/cluster-admin", "User", "olga");
    let limit = |cpu: &str| json!({"limit": {"limitsCpu": cpu}});
    let project = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Project",
        "metadata": {"name": "p-team"},
        "spec": {"displayName": "team", "clusterName": "local", "resourceQuota": limit("2"),
            "namespaceDefaultResourceQuota": limit("1")},
    });
    admin.post("/apis/management.cattle.io/v3/namespaces/local/projects", &project).ok();
    let member =
        json!({"metadata": {"annotations": {"field.cattle.io/projectId": "local:p-team"}}});
    admin.merge("/api/v1/namespaces/team", &member).ok();
    let quotas = "/api/v1/namespaces/team/resourcequotas";
    let hard = || admin.get(quotas).ok()["items"][0]["spec"]["hard"]["limits.cpu"].clone();
    eventually("the namespace has the quota of its project", || hard() == "1");
    let raised = limit("100").to_string();
    let raised = json!({"metadata": {"annotations": {"field.cattle.io/resourceQuota": raised}}});
    let olga = sheaf.http().with("impersonate-user", "olga");
    for path in ["", "/status"] {
        let reply = olga.merge(&format!("/api/v1/namespaces/team{path}"), &raised);
        assert_has(reply.refused(422), "exceeds projectLimit on fields: limitsCpu=100");
    }
    let mut whole = admin.get("/api/v1/namespaces/team").ok();
    whole["metadata"]["annotations"]["field.cattle.io/resourceQuota"] =
        raised["metadata"]["annotations"]["field.cattle.io/resourceQuota"].clone();
    let finalized = olga.put("/api/v1/namespaces/team/finalize", &whole).ok();
    let key = "field.cattle.io/resourceQuota";
    assert_eq!(finalized["metadata"]["annotations"].get(key), None, "it changes finalizers only");
    assert_eq!(hard(), "1");
}
