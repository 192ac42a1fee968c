mod metadata;
mod volumes;

use serde_json::json;

use super::*;
use crate::cluster::MANAGEMENT_ROLE;

/// The objects that exist beside the one that is written.
struct World;

impl Objects for World {
    fn get(&self, group: &str, plural: &str, _: &str, name: &str) -> Option<Value> {
        match (group, plural, name) {
            ("", "persistentvolumes", "pv-a") => Some(local("a")),
            ("", "persistentvolumes", "pv-r") => {
                Some(json!({"spec": {"csi": {"volumeHandle": "vol-a"}}}))
            }
            ("", "persistentvolumeclaims", "used" | "foreign") => {
                Some(json!({"spec": {"volumeName": format!("pv-{name}")}}))
            }
            ("", "persistentvolumeclaims", "mine") => Some(json!({
                "metadata": {"uid": "uid-mine",
                    "annotations": {"volume.kubernetes.io/selected-node": "a"}},
                "spec": {"storageClassName": "local"}})),
            ("longhorn.io", "volumes", "vol-m") => Some(json!({"spec": {"migrationNodeID": "a"}})),
            ("longhorn.io", "nodes", "a") => {
                Some(json!({"status": {"diskStatus": {"d": {"diskUUID": "disk-a"}}}}))
            }
            _ => None,
        }
    }

    fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Value> {
        match plural {
            "engines" => vec![
                json!({"spec": {"volumeName": "vol-a", "nodeID": "a"}}),
                json!({"spec": {"volumeName": "vol-b", "nodeID": "b"}}),
                json!({"spec": {"volumeName": "vol-n", "nodeID": ""}}),
            ],
            "replicas" => vec![json!({"spec": {"volumeName": "vol-n", "nodeID": "a"}})],
            "persistentvolumes" => ["used", "foreign"].map(replicated).into(),
            "virtualmachineinstances" => vec![
                json!({"status": {"nodeName": "a"},
                    "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "used"}}]}}),
                json!({"status": {"nodeName": "b"},
                    "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "foreign"}}]}}),
            ],
            "nodes" => vec![json!({"metadata": {"name": "b"},
                "status": {"diskStatus": {"d": {"diskUUID": "disk-b"}}}})],
            _ => vec![],
        }
    }
}

/// The volume of a claim, with a replicated volume behind it.
fn replicated(claim: &str) -> Value {
    json!({"metadata": {"name": format!("pv-{claim}")}, "spec": {
        "csi": {"volumeHandle": format!("vol-{claim}")},
        "claimRef": {"namespace": "n", "name": claim}}})
}

fn local(node: &str) -> Value {
    json!({"spec": {"local": {"path": "/v"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In",
            "values": [node]}]}]}}}})
}

/// A write of the node `a`.
fn write(kind: (&str, &str), name: &str, object: Value, old: Value) -> Result<(), NodeDenial> {
    write_as(false, kind, name, &object, &old)
}

fn write_as(
    is_management: bool,
    kind: (&str, &str),
    name: &str,
    object: &Value,
    old: &Value,
) -> Result<(), NodeDenial> {
    let present = |value: &Value| !value.is_null();
    check(&NodeWrite {
        node: "a",
        is_management,
        group: kind.0,
        resource: kind.1,
        namespace: "kube-node-lease",
        name,
        object: Some(object).filter(|it| present(it)),
        old: Some(old).filter(|it| present(it)),
        objects: &World,
    })
}

const NODES: (&str, &str) = ("", "nodes");
const VMIS: (&str, &str) = ("kubevirt.io", "virtualmachineinstances");
const ENGINES: (&str, &str) = ("longhorn.io", "engines");
const SNAPSHOTS: (&str, &str) = ("longhorn.io", "snapshots");
const IMAGES: (&str, &str) = ("longhorn.io", "backingimages");
const TICKETS: (&str, &str) = ("longhorn.io", "volumeattachments");
const PVS: (&str, &str) = ("", "persistentvolumes");
const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");

#[test]
fn a_node_reports_about_what_is_on_it() {
    let gone = Value::Null;
    let vmi = |node: &str, phase: &str| json!({"spec": {"x": 1}, "status": {"nodeName": node, "phase": phase}});
    let engine = |node: &str| json!({"spec": {"nodeID": node}, "status": {"ownerID": "a"}});
    let leaving =
        json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"nodeID": ""}, "status": {}});
    let snapshot = |volume: &str| json!({"spec": {"volume": volume}});
    let mut released = leaving.clone();
    released["metadata"]["finalizers"] = json!([]);
    let image = |disk: &str| json!({"status": {"diskFileStatusMap": {disk: {"state": "ready"}}}});
    let tickets = |volume: &str, node: &str| json!({"spec": {"volume": volume, "attachmentTickets": {"t": {"nodeID": node}}}});
    let disk = |id: &str| json!({"status": {"diskStatus": {"d": {"diskUUID": id}}}});
    let claim = |volume: &str, selected: &str| {
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": selected}},
            "spec": {"volumeName": volume}})
    };
    for (kind, name, object, old) in [
        (NODES, "a", json!({"status": {"x": 1}}), json!({})),
        (
            NODES,
            "a",
            json!({"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}}),
            gone.clone(),
        ),
        (("coordination.k8s.io", "leases"), "a", json!({}), gone.clone()),
        (VMIS, "m", vmi("a", "Running"), vmi("a", "Scheduled")),
        (ENGINES, "e", engine("a"), engine("a")),
        (ENGINES, "e", leaving.clone(), leaving.clone()),
        (SNAPSHOTS, "s", snapshot("vol-a"), snapshot("vol-a")),
        (SNAPSHOTS, "s", snapshot("vol-n"), snapshot("vol-n")),
        (SNAPSHOTS, "s", released.clone(), leaving.clone()),
        (IMAGES, "i", image("disk-a"), json!({"status": {}})),
        // Its own replica or engine, and the disk of a machine that runs here.
        (TICKETS, "vol-a", tickets("vol-a", "a"), gone.clone()),
        (TICKETS, "vol-used", tickets("vol-used", "a"), gone.clone()),
        (TICKETS, "v", json!({"spec": {"volume": "v"}}), tickets("v", "a")),
        (("longhorn.io", "nodes"), "a", disk("disk-a"), json!({})),
        (PVS, "pv-a", local("a"), local("a")),
        (PVS, "pv-a", gone.clone(), local("a")),
        (CLAIMS, "c", claim("", "a"), claim("", "a")),
        (CLAIMS, "c", claim("pv-a", ""), claim("pv-a", "")),
        (CLAIMS, "c", claim("pv-r", ""), claim("pv-r", "")),
    ] {
        let outcome = write(kind, name, object.clone(), old.clone());
        assert_eq!(outcome, Ok(()), "{kind:?} {object} {old}");
    }
}

#[test]
fn a_node_gives_machines_away_only_to_the_node_that_they_migrate_to() {
    let vmi =
        |node: &str, state: Value| json!({"status": {"nodeName": node, "migrationState": state}});
    let asked = json!({"migrationUid": "m", "targetNode": "b"});
    let given = json!({"migrationUid": "m", "targetNode": "b", "completed": true});
    let write_vmi = |object, old| write(VMIS, "m", object, old);
    assert_eq!(write_vmi(vmi("b", given.clone()), vmi("a", asked.clone())), Ok(()));
    let post_copy = json!({"migrationUid": "m", "targetNode": "b", "mode": "PostCopy"});
    assert_eq!(write_vmi(vmi("b", post_copy.clone()), vmi("a", asked.clone())), Ok(()));
    for (object, old) in [
        (vmi("b", asked.clone()), vmi("a", asked.clone())),
        (vmi("b", given.clone()), vmi("a", Value::Null)),
        (vmi("c", post_copy), vmi("a", asked.clone())),
        (vmi("c", given.clone()), vmi("a", asked.clone())),
        (vmi("a", given.clone()), vmi("b", asked.clone())),
        (
            vmi("b", given),
            vmi("a", json!({"migrationUid": "m", "targetNode": "b", "failed": true})),
        ),
    ] {
        assert!(write_vmi(object.clone(), old.clone()).is_err(), "{object} {old}");
    }
    // The engine of a volume that moves to the node is its to claim.
    let engine = |volume: &str| json!({"spec": {"nodeID": "b", "volumeName": volume}});
    assert_eq!(write(ENGINES, "e", engine("vol-m"), engine("vol-m")), Ok(()));
    assert!(write(ENGINES, "e", engine("vol-b"), engine("vol-b")).is_err());
    // Tickets of a migration that failed are taken back by the source.
    let ticket = |parameters: Value| json!({"spec": {"attachmentTickets": {"t": {"nodeID": "b", "parameters": parameters}}}});
    let moving = ticket(json!({"sheaf.io/migration": "true"}));
    let none = json!({"spec": {"attachmentTickets": {}}});
    assert_eq!(write(TICKETS, "vol-a", none.clone(), moving.clone()), Ok(()));
    assert!(write(TICKETS, "vol-b", none.clone(), moving).is_err());
    assert!(write(TICKETS, "vol-a", none, ticket(json!({}))).is_err());
}

#[test]
fn a_node_changes_nothing_else() {
    let gone = Value::Null;
    let vmi = |node: &str, wish: u32| json!({"spec": {"x": wish}, "status": {"nodeName": node}});
    let labels = |key: &str| json!({"metadata": {"labels": {key: "true"}}});
    let notes = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
    let engine = |node: &str, size: u32| json!({"spec": {"nodeID": node, "size": size}});
    let tickets = |node: &str| json!({"spec": {"attachmentTickets": {"t": {"nodeID": node}}}});
    let ticket = |volume: &str| json!({"spec": {"volume": volume, "attachmentTickets": {"t": {"nodeID": "a"}}}});
    let noted = |key: &str| json!({"metadata": {"annotations": {key: "x"}}, "spec": {"volumeName": "pv-a"}});
    let image = |disk: &str| json!({"status": {"diskFileStatusMap": {disk: {"state": "ready"}}}});
    let claim = |volume: &str| json!({"spec": {"volumeName": volume}});
    let detached = json!({"spec": {"volume": "vol-o"}});
    for (kind, name, object, old, part) in [
        (NODES, "b", json!({}), json!({}), "not allowed to modify node \"b\""),
        (NODES, "a", gone.clone(), json!({}), "delete nodes"),
        (NODES, "a", json!({"spec": {"unschedulable": false}}), json!({"spec": {}}), "the spec"),
        (NODES, "a", json!({"spec": {"taints": []}}), gone.clone(), "taints"),
        (NODES, "a", labels("node-role.kubernetes.io/control-plane"), json!({}), "the label"),
        (NODES, "a", json!({}), labels("node-role.harvesterhci.io/worker"), "the label"),
        (NODES, "a", labels("topology.kubernetes.io/other"), json!({}), "the label"),
        (NODES, "a", notes(NODE_KEY), json!({}), "the annotation sheaf.io/node-key"),
        (("coordination.k8s.io", "leases"), "b", json!({}), json!({}), "not placed on it"),
        (VMIS, "m", vmi("b", 1), vmi("b", 1), "not placed on it"),
        (VMIS, "m", vmi("b", 1), vmi("a", 1), "the placement"),
        (VMIS, "m", vmi("a", 1), vmi("b", 1), "not placed on it"),
        (VMIS, "m", vmi("a", 2), vmi("a", 1), "the spec of"),
        (VMIS, "m", vmi("a", 1), gone.clone(), "create or delete"),
        (VMIS, "m", gone.clone(), vmi("a", 1), "create or delete"),
        (ENGINES, "e", engine("b", 1), engine("b", 1), "not placed on it"),
        (ENGINES, "e", engine("a", 1), engine("b", 1), "not placed on it"),
        (ENGINES, "e", engine("a", 2), engine("a", 1), "the spec of"),
        (
            SNAPSHOTS,
            "s",
            json!({"spec": {"volume": "vol-b"}}),
            json!({"spec": {"volume": "vol-b"}}),
            "not placed",
        ),
        // Detached, with its data on other nodes.
        (SNAPSHOTS, "s", detached.clone(), detached.clone(), "not placed"),
        (IMAGES, "i", image("disk-b"), json!({}), "on the disk disk-b"),
        (TICKETS, "v", tickets("b"), gone.clone(), "not placed on it"),
        (TICKETS, "v", tickets("a"), tickets("b"), "not placed on it"),
        (TICKETS, "v", json!({"spec": {}}), tickets("b"), "not placed on it"),
        // The disk of a machine elsewhere, under its own name and under another.
        (TICKETS, "vol-foreign", ticket("vol-foreign"), gone.clone(), "not placed on it"),
        (TICKETS, "vol-a", ticket("vol-foreign"), gone.clone(), "not placed on it"),
        (
            ("longhorn.io", "nodes"),
            "a",
            json!({"status": {"diskStatus": {"x": {"diskUUID": "disk-b"}}}}),
            json!({}),
            "the disk disk-b, which is on another node",
        ),
        (
            ("longhorn.io", "nodes"),
            "a",
            json!({"spec": {"allowScheduling": true}}),
            json!({"spec": {"allowScheduling": false}}),
            "the spec of nodes \"a\"",
        ),
        (
            ("longhorn.io", "nodes"),
            "a",
            json!({"spec": {"disks": {"d": {"tags": ["secure"]}}, "tags": []}}),
            gone.clone(),
            "the tags of its storage",
        ),
        (
            CLAIMS,
            "c",
            noted("cdi.kubevirt.io/storage.import.certConfigMap"),
            json!({"spec": {"volumeName": "pv-a"}}),
            "certConfigMap of a claim",
        ),
        (
            CLAIMS,
            "c",
            noted("sheaf.io/clone-source"),
            json!({"spec": {"volumeName": "pv-a"}}),
            "the annotation sheaf.io/clone-source of a claim",
        ),
        (PVS, "pv", local("b"), gone.clone(), "not placed on it"),
        (PVS, "pv", gone.clone(), local("b"), "not placed on it"),
        (PVS, "pv", json!({"spec": {"csi": {}}}), gone.clone(), "not placed on it"),
        (CLAIMS, "c", claim("pv-b"), claim("pv-b"), "not placed on it"),
        (("", "pods"), "p", json!({}), gone.clone(), "create or delete pods"),
        (("", "secrets"), "s", json!({}), json!({}), "create or delete secrets"),
        (("kubevirt.io", "virtualmachines"), "m", json!({}), json!({}), "create or delete"),
        (("longhorn.io", "volumes"), "v", json!({}), json!({}), "create or delete"),
        (("longhorn.io", "nodes"), "b", json!({}), json!({}), "not allowed to modify node"),
    ] {
        let denial = write(kind, name, object.clone(), old.clone()).unwrap_err().to_string();
        assert!(denial.contains(part), "{kind:?} {object} {old}: {denial}");
        assert!(denial.starts_with("node \"a\" is not allowed to "), "{denial}");
    }
}

#[test]
fn a_management_node_labels_itself_and_nothing_more() {
    let node = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
    let control_plane = node(json!({"node-role.kubernetes.io/control-plane": "true"}));
    assert_eq!(write_as(true, NODES, "a", &control_plane, &Value::Null), Ok(()));
    assert!(write_as(false, NODES, "a", &control_plane, &Value::Null).is_err());
    let server = json!({"metadata": {"name": "a", "annotations": {API_URL: "https://a:1"}}});
    assert_eq!(write_as(true, NODES, "a", &server, &Value::Null), Ok(()));
    assert!(write_as(false, NODES, "a", &server, &Value::Null).is_err());
    // The label for which keys of the cluster are handed out.
    let management = node(json!({MANAGEMENT_ROLE: "true"}));
    assert!(write_as(true, NODES, "a", &management, &Value::Null).is_err());
    let etcd = node(json!({"node-role.kubernetes.io/etcd": "true"}));
    assert!(write_as(true, NODES, "a", &etcd, &Value::Null).is_err());
    assert!(write_as(true, NODES, "b", &control_plane, &Value::Null).is_err());
}

#[test]
fn a_management_node_writes_what_it_saw_of_the_source_of_an_import_cron() {
    let crons = ("cdi.kubevirt.io", "dataimportcrons");
    let cron = |notes: Value, schedule: &str| json!({"metadata": {"name": "c", "annotations": notes}, "spec": {"schedule": schedule}});
    let old = cron(json!({"team": "x"}), "@daily");
    let seen = json!({"team": "x", SOURCE_DIGEST: "sha256:1", LAST_CRON_TIME: "t"});
    let seen = cron(seen, "@daily");
    assert_eq!(write_as(true, crons, "c", &seen, &old), Ok(()));
    assert!(write_as(false, crons, "c", &seen, &old).is_err(), "a worker");
    assert!(write_as(true, crons, "c", &cron(json!({}), "@daily"), &old).is_err());
    assert!(write_as(true, crons, "c", &cron(json!({"team": "x"}), "@hourly"), &old).is_err());
    assert!(write_as(true, crons, "c", &seen, &Value::Null).is_err(), "creation");
    assert!(write_as(true, crons, "c", &Value::Null, &old).is_err(), "deletion");
}

#[test]
fn a_node_says_where_it_is_until_its_first_report() {
    let zone = |zone: &str, version: &str| {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        json!({"metadata": {"name": "a", "labels": labels},
            "status": {"nodeInfo": {"kubeletVersion": version}}})
    };
    let made = json!({"metadata": {"name": "a"}});
    assert_eq!(write(NODES, "a", zone("x", "v1"), Value::Null), Ok(()));
    assert_eq!(write(NODES, "a", zone("x", ""), made), Ok(()));
    assert!(write(NODES, "a", zone("y", "v1"), zone("x", "v1")).is_err());
    assert_eq!(write(NODES, "a", zone("x", "v1"), zone("x", "v1")), Ok(()));
    assert!(may_label_itself("rack") && may_label_itself("topology.kubernetes.io/zone"));
    assert!(!may_label_itself("node-role.kubernetes.io/control-plane"));
    assert!(!may_label_itself("topology.kubernetes.io/other"));
}

#[test]
fn a_node_reports_its_own_links_only() {
    let monitors = ("network.harvesterhci.io", "linkmonitors");
    let monitor = |rule: &str, links: Value| json!({"metadata": {"name": "nic"}, "spec": {"rule": rule}, "status": {"linkStatus": links}});
    let was = || monitor("x", json!({"b": [{"name": "eth0"}]}));
    for (object, old, is_allowed) in [
        (monitor("x", json!({"a": [], "b": [{"name": "eth0"}]})), was(), true),
        (was(), monitor("x", json!({"a": [], "b": [{"name": "eth0"}]})), true),
        (
            monitor("x", json!({"a": []})),
            json!({"metadata": {"name": "nic"}, "spec": {"rule": "x"}}),
            true,
        ),
        (monitor("x", json!({"b": []})), was(), false),
        (monitor("x", json!({})), was(), false),
        (monitor("y", json!({"b": [{"name": "eth0"}]})), was(), false),
        (was(), Value::Null, false),
        (Value::Null, was(), false),
    ] {
        let outcome = write(monitors, "nic", object.clone(), old);
        assert_eq!(outcome.is_ok(), is_allowed, "{object}: {outcome:?}");
    }
    let mut judged = was();
    judged["status"]["conditions"] = json!([{"type": "ready"}]);
    assert!(write(monitors, "nic", judged, was()).is_err());
}

#[test]
fn a_node_reports_its_own_uplinks_and_whether_networks_are_ready() {
    let reports = ("network.harvesterhci.io", "vlanstatuses");
    let report = |node: &str| json!({"status": {"node": node, "clusterNetwork": "lan"}});
    for (object, old, is_allowed) in [
        (report("a"), Value::Null, true),
        (report("a"), report("a"), true),
        (Value::Null, report("a"), true),
        (report("b"), Value::Null, false),
        (report("a"), report("b"), false),
        (Value::Null, report("b"), false),
    ] {
        assert_eq!(write(reports, "lan-a", object, old).is_ok(), is_allowed);
    }
    let networks = ("network.harvesterhci.io", "clusternetworks");
    let network = |mtu: &str, ready: &str| json!({"metadata": {"name": "lan", "annotations": {"mtu": mtu}}, "status": {"ready": ready}});
    let was = || network("1500", "False");
    assert!(write(networks, "lan", network("1500", "True"), was()).is_ok());
    assert!(write(networks, "lan", network("9000", "False"), was()).is_err());
    assert!(write(networks, "lan", was(), Value::Null).is_err());
    assert!(write(networks, "lan", Value::Null, was()).is_err());
    assert!(write(("network.harvesterhci.io", "vlanconfigs"), "vc", was(), was()).is_err());
}

#[test]
fn a_node_renews_and_gives_back_addresses_that_it_holds() {
    let address = std::net::Ipv4Addr::new(10, 0, 0, 9);
    let held_by = |node: &str| AnnouncementLease::object(address, node, "t");
    let with = |pointer: &str, value: Value| {
        let mut lease = held_by("a");
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        lease.pointer_mut(parent).unwrap()[field] = value;
        lease
    };
    for (object, old, allowed) in [
        (with("/spec/renewTime", json!("u")), held_by("a"), true),
        (with("/spec/holderIdentity", Value::Null), held_by("a"), true),
        (with("/spec/holderIdentity", json!("b")), held_by("a"), false),
        (with("/spec/leaseTransitions", json!(7)), held_by("a"), false),
        (with("/metadata/annotations", json!({})), held_by("a"), false),
        (held_by("a"), held_by("b"), false),
        (held_by("a"), Value::Null, false),
        (Value::Null, held_by("a"), false),
    ] {
        let outcome = check(&NodeWrite {
            node: "a",
            is_management: false,
            group: "coordination.k8s.io",
            resource: "leases",
            namespace: announcement::NAMESPACE,
            name: "announce-10.0.0.9",
            object: Some(&object).filter(|own| !own.is_null()),
            old: Some(&old).filter(|own| !own.is_null()),
            objects: &World,
        });
        assert_eq!(outcome.is_ok(), allowed, "{object} from {old}: {outcome:?}");
    }
}
