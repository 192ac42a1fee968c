//! Owners, finalizers and labels.

use super::*;

/// The garbage collector deletes objects whose owners are gone, with its own rights.
#[test]
fn a_node_gives_no_object_to_an_owner_and_holds_none() {
    let with = |mut object: Value, field: &str, value: Value| {
        object["metadata"][field] = value;
        object
    };
    let (owners, hold) = (json!([{"uid": "gone"}]), json!(["evil.example/hold"]));
    let mark = json!({"app": "db"});
    let (placed, stored) = (json!({"status": {"nodeName": "a"}}), json!({"spec": {"nodeID": "a"}}));
    let snapshot = json!({"spec": {"volume": "vol-a"}});
    let claim = json!({"spec": {"volumeName": "pv-a"}});
    let ticket = json!({"spec": {"volume": "v"}});
    for (kind, name, object) in [
        (NODES, "a", json!({})),
        (VMIS, "m", placed.clone()),
        (ENGINES, "e", stored),
        (SNAPSHOTS, "s", snapshot.clone()),
        (IMAGES, "i", json!({})),
        (TICKETS, "v", ticket.clone()),
        (("longhorn.io", "nodes"), "a", json!({})),
        (PVS, "pv-a", local("a")),
        (CLAIMS, "c", claim),
    ] {
        assert_eq!(write(kind, name, object.clone(), object.clone()), Ok(()), "{kind:?}");
        let held = with(object.clone(), "finalizers", hold.clone());
        assert_eq!(write(kind, name, object.clone(), held.clone()), Ok(()), "released: {kind:?}");
        let owned = with(object.clone(), "ownerReferences", owners.clone());
        for (new, old, part) in [
            (&owned, &object, "the ownerReferences of"),
            (&object, &owned, "the ownerReferences of"),
            (&held, &object, "the finalizers of"),
        ] {
            let denial = write(kind, name, new.clone(), old.clone()).unwrap_err().to_string();
            assert!(denial.contains(part), "{kind:?} {new} {old}: {denial}");
        }
    }
    for (kind, name, object) in [
        (VMIS, "m", placed.clone()),
        (SNAPSHOTS, "s", snapshot),
        (IMAGES, "i", json!({})),
        (TICKETS, "v", ticket),
    ] {
        let labelled = with(object.clone(), "labels", mark.clone());
        let denial = write(kind, name, labelled, object).unwrap_err().to_string();
        assert!(denial.contains("the label"), "{kind:?}: {denial}");
    }
    let moved = with(placed.clone(), "labels", json!({"kubevirt.io/nodeName": "a"}));
    assert_eq!(write(VMIS, "m", moved, placed), Ok(()));
}
