//! The disk for the data of an image. Pure.

use serde_json::Value;

use crate::condition;
use crate::longhorn::record::{
    BackingImageFields, BackingImageSpec, DiskSpec, DiskStatus, StorageNodeFields,
};
use crate::object::{name, read};
use crate::record::condition::of_type;

/// Complaints that are reported of a choice that failed.
const MAX_COMPLAINTS: usize = 4;

/// Why no disk can take the data of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoDisk {
    #[error("no disk can take the image: no node has one")]
    NoneThere,
    #[error("no disk can take the image: {}{}", complaints.join("; "), and_more(*more))]
    NoneFits {
        complaints: Vec<String>,
        /// The number of complaints that are left out.
        more: usize,
    },
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!("; and {count} more") }
}

/// The disk with the most free space among those that are schedulable and have the wanted tags. An
/// image that is made from another is placed on that one's disk.
pub(super) fn choose(
    backing: &Value,
    origin: Option<&Value>,
    nodes: &[Value],
) -> Result<String, NoDisk> {
    let (mut fitting, mut complaints) = (Vec::new(), Vec::new());
    let wanted = read::<BackingImageFields<'_>>(backing).spec;
    let unknown = DiskSpec::default();
    for node in nodes {
        let fields: StorageNodeFields<'_> = read(node);
        if let Some(why) = unusable(&wanted, origin, node, &fields) {
            complaints.push(format!("node {} {why}", name(node)));
            continue;
        }
        for (disk, status) in &fields.status.disk_status {
            match unfit(&wanted, fields.spec.disks.get(disk).unwrap_or(&unknown), status) {
                Some(why) => complaints.push(format!("disk {disk} of node {} {why}", name(node))),
                None => fitting.push((status.storage_available, status.uuid)),
            }
        }
    }
    let best = fitting.into_iter().max().map(|(_, uuid)| uuid.to_owned());
    best.ok_or_else(|| {
        let more = complaints.len().saturating_sub(MAX_COMPLAINTS);
        complaints.truncate(MAX_COMPLAINTS);
        if complaints.is_empty() {
            NoDisk::NoneThere
        } else {
            NoDisk::NoneFits { complaints, more }
        }
    })
}

fn unusable(
    backing: &BackingImageSpec<'_>,
    origin: Option<&Value>,
    node: &Value,
    fields: &StorageNodeFields<'_>,
) -> Option<String> {
    let has_origin = origin.is_none_or(|origin| is_somewhere(origin, std::slice::from_ref(node)));
    if !condition::is(node, "Ready", "True") {
        Some("is not ready".into())
    } else if fields.spec.allow_scheduling != Some(true) {
        Some("is not schedulable: its spec.allowScheduling is false".into())
    } else if fields.spec.eviction_requested {
        Some("is being emptied".into())
    } else if !has_origin {
        Some("does not have the image that this one is made of".into())
    } else {
        missing(&backing.node_selector, &fields.spec.tags)
    }
}

fn unfit(
    backing: &BackingImageSpec<'_>,
    disk: &DiskSpec<'_>,
    status: &DiskStatus<'_>,
) -> Option<String> {
    let schedulable = of_type(&status.conditions, "Schedulable");
    if status.uuid.is_empty() {
        Some("is not ready".into())
    } else if disk.allow_scheduling != Some(true) {
        Some("is not schedulable: its allowScheduling is false".into())
    } else if disk.eviction_requested {
        Some("is being emptied".into())
    } else if schedulable.is_none_or(|own| own.status != "True") {
        let why = schedulable.map_or("", |own| own.message);
        let why = if why.is_empty() { "no reason is reported" } else { why };
        Some(format!("is not schedulable: {why}"))
    } else {
        missing(&backing.disk_selector, &disk.tags)
    }
}

/// The tags that are wanted and not there.
fn missing(wanted: &[&str], tags: &[&str]) -> Option<String> {
    let absent: Vec<&str> = wanted.iter().copied().filter(|tag| !tags.contains(tag)).collect();
    (!absent.is_empty()).then(|| format!("does not have the tag {}", absent.join(", ")))
}

/// Whether a node has one of the disks that the data is said to be on.
pub(super) fn is_somewhere(backing: &Value, nodes: &[Value]) -> bool {
    let wanted = read::<BackingImageFields<'_>>(backing).spec.disk_file_spec_map;
    nodes.iter().any(|node| {
        let disks = read::<StorageNodeFields<'_>>(node).status.disk_status;
        disks.values().any(|disk| wanted.contains_key(disk.uuid))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(disks: &[(&str, i64, &str, bool)]) -> Value {
        let mut node = json!({
            "metadata": {"name": "one"},
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

    fn wish(disk: &[&str], node: &[&str]) -> Value {
        json!({"spec": {"diskSelector": disk, "nodeSelector": node}})
    }

    #[test]
    fn data_goes_where_there_is_most_room_and_the_tags_fit() {
        let nodes = [node(&[("a", 1, "ssd", true), ("b", 3, "hdd", true), ("c", 9, "ssd", false)])];
        let found = |wish: Value| choose(&wish, None, &nodes).ok();
        assert_eq!(found(wish(&[], &[])).as_deref(), Some("b"));
        assert_eq!(found(wish(&["ssd"], &["fast"])).as_deref(), Some("a"));
        let origin = |disk: &str| json!({"spec": {"diskFileSpecMap": {disk: {}}}});
        let beside = choose(&wish(&[], &[]), Some(&origin("a")), &nodes);
        assert_eq!(beside.as_deref(), Ok("b"), "another disk of the same node");
    }

    #[test]
    fn an_image_without_a_disk_says_why() {
        let mut full = node(&[("a", 1, "ssd", false)]);
        full["status"]["diskStatus"]["a"]["conditions"][0]["message"] = json!("it is full");
        let good = || node(&[("a", 1, "ssd", true)]);
        let changed = |pointer: &str, value: Value| {
            let mut node = good();
            *node.pointer_mut(pointer).expect("it is there") = value;
            node
        };
        let mut emptied = good();
        emptied["spec"]["disks"]["a"]["evictionRequested"] = json!(true);
        let (any, tagged) = (wish(&[], &[]), wish(&["ssd", "big"], &[]));
        let elsewhere = json!({"spec": {"diskFileSpecMap": {"z": {}}}});
        let closed = changed("/spec/allowScheduling", json!(false));
        let shut = changed("/spec/disks/a/allowScheduling", json!(false));
        let down = changed("/status/conditions/0/status", json!("False"));
        for (backing, origin, node, expected) in [
            (&any, None, full, "disk a of node one is not schedulable: it is full"),
            (&any, None, emptied, "disk a of node one is being emptied"),
            (
                &any,
                None,
                shut,
                "disk a of node one is not schedulable: its allowScheduling is false",
            ),
            (&any, None, down, "node one is not ready"),
            (&any, None, closed, "node one is not schedulable: its spec.allowScheduling is false"),
            (&tagged, None, good(), "disk a of node one does not have the tag big"),
            (&wish(&[], &["slow"]), None, good(), "node one does not have the tag slow"),
            (
                &any,
                Some(&elsewhere),
                good(),
                "node one does not have the image that this one is made of",
            ),
        ] {
            let expected = format!("no disk can take the image: {expected}");
            assert_eq!(choose(backing, origin, &[node]).unwrap_err().to_string(), expected);
        }
        let none = "no disk can take the image: no node has one";
        assert_eq!(choose(&any, None, &[]).unwrap_err().to_string(), none);
        let disks: Vec<_> =
            ["a", "b", "c", "d", "e", "f"].map(|disk| (disk, 1, "ssd", false)).into();
        let message = choose(&any, None, &[node(&disks)]).unwrap_err().to_string();
        assert!(message.ends_with("; and 2 more"), "{message}");
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
