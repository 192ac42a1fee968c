//! Spellings of a path that would be authorized as one thing and carried out as another.

use serde_json::{Value, json};

use super::{bind, role, tenant};
use crate::harness::{Http, Sheaf, assert_has};

const INSTANCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/team/virtualmachineinstances";

#[test]
fn no_spelling_of_a_subresource_gets_past_authorization() {
    let sheaf = Sheaf::start();
    let (admin, _) = (sheaf.http(), tenant(&sheaf));
    let rule = json!({
        "apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachineinstances"],
        "verbs": ["*"],
    });
    role(&admin, "team", "instances", rule);
    bind(&admin, "team", "Role/instances", "User", "eve");
    let eve = sheaf.http().with("impersonate-user", "eve");
    for (tail, subresource) in [
        ("vm/vnc/screenshot", "vnc/screenshot"),
        ("v%6D/vnc/screenshot", "vnc/screenshot"),
        ("v%6d/portforward/22", "portforward"),
        ("vm/portforwar%64/22/tcp", "portforward"),
        ("vm%2Fportforward/22", "portforward"),
        ("vm/portforward/vm/22", "portforward"),
        ("vm/vnc/screenshot/", "vnc/screenshot"),
        ("vm/vnc//screenshot", "vnc//screenshot"),
        ("vm;x/vnc", "vnc"),
        ("/vnc", "vnc"),
    ] {
        let refused = eve.get(&format!("{INSTANCES}/{tail}")).refused(403);
        assert_has(refused, &format!("resource \"virtualmachineinstances/{subresource}\""));
    }
    for tail in ["vm/../vm/vnc", "vm/%2e%2e/vm/vnc", "./vm/vnc"] {
        let refused = eve.get(&format!("{INSTANCES}/{tail}")).refused(400);
        assert_has(refused, "the path contains the segment");
    }
}

/// The paths of all kinds of the cluster as if they were in the namespace of the attacker.
fn misplaced(admin: &Http) -> Vec<String> {
    let mut paths = Vec::new();
    let groups = admin.get("/apis").ok();
    let groups = groups["groups"].as_array().unwrap().iter();
    let versions = groups.flat_map(|group| group["versions"].as_array().unwrap());
    let roots =
        versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    for root in roots.chain(["/api/v1".to_owned()]) {
        let resources = admin.get(&root).ok();
        let resources = resources["resources"].as_array().unwrap().iter();
        let of_cluster = resources.filter(|resource| resource["namespaced"] == false);
        let names = of_cluster.filter_map(|resource| resource["name"].as_str());
        paths.extend(names.map(|name| format!("{root}/namespaces/team/{name}")));
    }
    paths
}

/// The owner of a namespace may do everything in it, to resources of any name.
#[test]
fn rights_in_a_namespace_are_no_rights_to_the_cluster() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    bind(&admin, "team", "ClusterRole/cluster-admin", "User", "olga");
    let olga = sheaf.http().with("impersonate-user", "olga");
    olga.get("/api/v1/namespaces/team").ok();
    let paths = misplaced(&admin);
    assert!(paths.iter().any(|path| path.ends_with("/team/nodes")), "{paths:?}");
    for path in &paths {
        for path in [path.clone(), format!("{path}/victim")] {
            let reply = olga.get(&path);
            assert!([404, 405].contains(&reply.status), "{path}: {}", reply.text());
        }
    }
    // Namespaces are kinds of the cluster whose own path looks like one of a namespace.
    let (all, victim) =
        ("/api/v1/namespaces/team/namespaces", "/api/v1/namespaces/team/namespaces/victim");
    let key = "sheaf.io/network-isolation";
    let shared = json!({"metadata": {"annotations": {key: "none"}}});
    let created = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}});
    for user in [&olga, &*mallory] {
        user.get(all).refused(404);
        user.get(victim).refused(404);
    }
    olga.merge(victim, &shared).refused(404);
    olga.put(&format!("{victim}/finalize"), &created).refused(404);
    olga.post(all, &created).refused(404);
    olga.delete(victim).refused(404);
    let own: Value = admin.get("/api/v1/namespaces/victim").ok();
    assert_eq!(own["status"]["phase"], "Active");
    assert_ne!(own["metadata"]["annotations"][key], "none");
    admin.get("/api/v1/namespaces/extra").refused(404);
}
