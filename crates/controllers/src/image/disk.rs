//! On which disk the data of an image goes. Pure.

use serde_json::{Value, json};

use crate::condition;
use crate::object::{entries, int, is_true, list, text};

/// The disk with the most room among those that take more and have the wanted tags. What is made
/// of another image is made where that is.
pub(super) fn choose(backing: &Value, origin: Option<&Value>, nodes: &[Value]) -> Option<String> {
    let has_all = |wanted: &str, tags: &Value| {
        list(backing, wanted).iter().all(|tag| list(tags, "/tags").contains(tag))
    };
    let usable = nodes.iter().filter(|node| {
        is_true(node, "/spec/allowScheduling")
            && !is_true(node, "/spec/evictionRequested")
            && condition::is(node, "Ready", "True")
            && has_all("/spec/nodeSelector", &node["spec"])
            && origin.is_none_or(|origin| is_somewhere(origin, std::slice::from_ref(*node)))
    });
    let disks = usable.flat_map(|node| {
        entries(node, "/status/diskStatus").filter_map(|(name, told)| {
            let disk = &node["spec"]["disks"][name];
            let is_open = is_true(disk, "/allowScheduling") && !is_true(disk, "/evictionRequested");
            let takes_more = condition::is(&json!({"status": told}), "Schedulable", "True");
            let fits = is_open && takes_more && has_all("/spec/diskSelector", disk);
            let uuid = Some(text(told, "/diskUUID")).filter(|uuid| fits && !uuid.is_empty())?;
            Some((int(told, "/storageAvailable").unwrap_or(0), uuid))
        })
    });
    disks.max().map(|(_, uuid)| uuid.to_owned())
}

/// Whether a node has one of the disks that the data is said to be on.
pub(super) fn is_somewhere(backing: &Value, nodes: &[Value]) -> bool {
    let known = |uuid: &String| {
        let mut disks = nodes.iter().flat_map(|node| entries(node, "/status/diskStatus"));
        disks.any(|(_, disk)| text(disk, "/diskUUID") == uuid)
    };
    entries(backing, "/spec/diskFileSpecMap").any(|(uuid, _)| known(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(disks: &[(&str, i64, &str, bool)]) -> Value {
        let mut node = json!({
            "spec": {"allowScheduling": true, "tags": ["fast"], "disks": {}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "diskStatus": {}},
        });
        for (uuid, room, tag, schedulable) in disks {
            let status = if *schedulable { "True" } else { "False" };
            node["spec"]["disks"][uuid] = json!({"allowScheduling": true, "tags": [tag]});
            node["status"]["diskStatus"][uuid] = json!({
                "diskUUID": uuid, "storageAvailable": room,
                "conditions": [{"type": "Schedulable", "status": status}],
            });
        }
        node
    }

    #[test]
    fn data_goes_where_there_is_most_room_and_the_tags_fit() {
        let nodes = [node(&[("a", 1, "ssd", true), ("b", 3, "hdd", true), ("c", 9, "ssd", false)])];
        let wish = |disk: &[&str], node: &[&str]| json!({"spec": {"diskSelector": disk, "nodeSelector": node}});
        assert_eq!(choose(&wish(&[], &[]), None, &nodes).as_deref(), Some("b"));
        assert_eq!(choose(&wish(&["ssd"], &["fast"]), None, &nodes).as_deref(), Some("a"));
        assert_eq!(choose(&wish(&[], &["slow"]), None, &nodes), None);
        assert_eq!(choose(&wish(&[], &[]), None, &[]), None);
        let origin = |disk: &str| json!({"spec": {"diskFileSpecMap": {disk: {}}}});
        let beside = choose(&wish(&[], &[]), Some(&origin("a")), &nodes);
        assert_eq!(beside.as_deref(), Some("b"), "another disk of the same node");
        assert_eq!(choose(&wish(&[], &[]), Some(&origin("z")), &nodes), None);
    }

    #[test]
    fn a_disk_that_left_the_cluster_holds_nothing() {
        let on = |uuid: &str| json!({"spec": {"diskFileSpecMap": {uuid: {}}}});
        let nodes = [node(&[("a", 1, "", true)])];
        assert!(is_somewhere(&on("a"), &nodes));
        assert!(!is_somewhere(&on("x"), &nodes));
        assert!(!is_somewhere(&json!({"spec": {}}), &nodes));
    }
}
