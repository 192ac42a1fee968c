//! Local volumes that a node makes.

use super::*;

/// A local volume of node `a` with a class and a reference to a claim.
fn local_for(class: &str, reference: &Value) -> Value {
    let mut volume = local("a");
    volume["spec"]["storageClassName"] = json!(class);
    volume["spec"]["claimRef"] = reference.clone();
    volume
}

#[test]
fn a_node_makes_volumes_only_for_claims_that_are_for_it() {
    let claim = |name: &str, uid: &str| json!({"namespace": "n", "name": name, "uid": uid});
    let mine = claim("mine", "uid-mine");
    assert_eq!(write(PVS, "pv", local_for("local", &mine), Value::Null), Ok(()));
    for (class, reference) in [
        // Any claim of the class that fits would be bound to it.
        ("local", Value::Null),
        ("local", json!({})),
        // A later claim of the same name would be bound to it.
        ("local", json!({"namespace": "n", "name": "mine"})),
        ("local", claim("mine", "")),
        ("local", claim("mine", "uid-former")),
        ("replicated", mine),
        // Claims of other nodes, and those that do not exist yet.
        ("local", claim("foreign", "uid-foreign")),
        ("local", claim("absent", "uid-absent")),
    ] {
        let denial = write(PVS, "pv", local_for(class, &reference), Value::Null).unwrap_err();
        let expected = "the claimRef of a volume: it must have the uid of a claim for this node";
        assert!(denial.to_string().contains(expected), "{class} {reference}: {denial}");
    }
}

#[test]
fn a_replica_alone_does_not_give_a_node_the_passphrase_of_its_volume() {
    for (volume, stored, attached) in [
        ("vol-a", true, true),
        ("vol-n", true, false),
        ("vol-m", false, true),
        ("vol-b", false, false),
    ] {
        let found = (is_stored_on("a", volume, &World), is_attached_to("a", volume, &World));
        assert_eq!(found, (stored, attached), "{volume}");
    }
}

#[test]
fn a_node_does_not_move_volumes() {
    use crate::local_volume::{PREVIOUS_NODES, VOLUME_MOVE};
    for note in [VOLUME_MOVE, PREVIOUS_NODES] {
        let mut moved = local("a");
        moved["metadata"]["annotations"] = json!({note: "b"});
        for (object, old) in [(&moved, &local("a")), (&local("a"), &moved)] {
            let denial = write(PVS, "pv-a", object.clone(), old.clone()).unwrap_err();
            assert!(denial.to_string().contains(note), "{denial}");
        }
        assert_eq!(write(PVS, "pv-a", moved.clone(), moved), Ok(()), "it is kept");
    }
    let denial = write(PVS, "pv-a", local("b"), local("a")).unwrap_err();
    assert!(matches!(denial, NodeDenial::NotPlaced { .. }), "{denial}");
    assert!(write(PVS, "pv-a", local("a"), local("b")).is_err(), "it is another node's");
}

#[test]
fn a_claim_follows_its_volume_and_not_the_node_that_was_selected_first() {
    let claim = |volume: &str| {
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}},
            "spec": {"volumeName": volume}})
    };
    assert!(claim_concerns("a", &claim("pv-a"), &World));
    assert!(!claim_concerns("b", &claim("pv-a"), &World), "it has left this node");
    assert!(claim_concerns("b", &claim(""), &World), "it is being made");
}
