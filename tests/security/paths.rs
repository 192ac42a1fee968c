//! Spellings of a path that would be authorized as one thing and carried out as another.

use serde_json::json;

use super::{bind, role, tenant};
use crate::harness::{Sheaf, assert_has};

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
