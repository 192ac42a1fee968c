//! The disk for the data of an image. Pure.

use serde_json::{Value, json};

use crate::condition;
use crate::object::{entries, int, is_true, list, name, text};

/// Complaints that are told of a choice that failed.
const MOST_TOLD: usize = 4;

/// The disk with the most free space among those that are schedulable and have the wanted tags. An
/// image that is made from another is placed on that one's disk. If there is none, returns why.
pub(super) fn choose(
    backing: &Value,
    origin: Option<&Value>,
    nodes: &[Value],
) -> Result<String, String> {
    let (mut fitting, mut complaints) = (Vec::new(), Vec::new());
    for node in nodes {
        if let Some(why) = unusable(backing, origin, node) {
            complaints.push(format!("node {} {why}", name(node)));
            continue;
        }
        for (disk, told) in entries(node, "/status/diskStatus") {
            match unfit(backing, &node["spec"]["disks"][disk], told) {
                Some(why) => complaints.push(format!("disk {disk} of node {} {why}", name(node))),
                None => {
                    let room = int(told, "/storageAvailable").unwrap_or(0);
                    fitting.push((room, text(told, "/diskUUID")));
                }
            }
        }
    }
    let best = fitting.into_iter().max().map(|(_, uuid)| uuid.to_owned());
    best.ok_or_else(|| {
        let more = complaints.len().saturating_sub(MOST_TOLD);
        complaints.truncate(MOST_TOLD);
        match (complaints.is_empty(), more) {
            (true, _) => "no disk can take the image: no node has one".to_owned(),
            (false, 0) => format!("no disk can take the image: {}", complaints.join("; ")),
            (false, _) => {
                format!("no disk can take the image: {}; and {more} more", complaints.join("; "))
            }
        }
    })
}

fn unusable(backing: &Value, origin: Option<&Value>, node: &Value) -> Option<String> {
    let has_origin = origin.is_none_or(|origin| is_somewhere(origin, std::slice::from_ref(node)));
    if !condition::is(node, "Ready", "True") {
        Some("is not ready".into())
    } else if !is_true(node, "/spec/allowScheduling") {
        Some("takes no more: its spec.allowScheduling is false".into())
    } else if is_true(node, "/spec/evictionRequested") {
        Some("is being emptied".into())
    } else if !has_origin {
        Some("does not have the image that this one is made of".into())
    } else {
        missing(backing, "/spec/nodeSelector", &node["spec"])
    }
}

fn unfit(backing: &Value, disk: &Value, told: &Value) -> Option<String> {
    let told = json!({"status": told});
    if text(&told, "/status/diskUUID").is_empty() {
        Some("is not ready".into())
    } else if !is_true(disk, "/allowScheduling") {
        Some("takes no more: its allowScheduling is false".into())
    } else if is_true(disk, "/evictionRequested") {
        Some("is being emptied".into())
    } else if !condition::is(&told, "Schedulable", "True") {
        let all = condition::of(&told);
        let why = condition::find(&all, "Schedulable").map_or("", |own| text(own, "/message"));
        let why = if why.is_empty() { "nobody says why" } else { why };
        Some(format!("takes no more: {why}"))
    } else {
        missing(backing, "/spec/diskSelector", disk)
    }
}

/// The tags that are wanted and not there.
fn missing(backing: &Value, wanted: &str, place: &Value) -> Option<String> {
    let absent = list(backing, wanted).iter().filter(|tag| !list(place, "/tags").contains(tag));
    let absent: Vec<&str> = absent.filter_map(Value::as_str).collect();
    (!absent.is_empty()).then(|| format!("does not have the tag {}", absent.join(", ")))
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
    fn who_finds_no_disk_says_why() {
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
            (&any, None, full, "disk a of node one takes no more: it is full"),
            (&any, None, emptied, "disk a of node one is being emptied"),
            (&any, None, shut, "disk a of node one takes no more: its allowScheduling is false"),
            (&any, None, down, "node one is not ready"),
            (&any, None, closed, "node one takes no more: its spec.allowScheduling is false"),
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
            assert_eq!(choose(backing, origin, &[node]), Err(expected));
        }
        let none = "no disk can take the image: no node has one";
        assert_eq!(choose(&any, None, &[]), Err(none.to_owned()));
        let disks: Vec<_> =
            ["a", "b", "c", "d", "e", "f"].map(|disk| (disk, 1, "ssd", false)).into();
        let told = choose(&any, None, &[node(&disks)]).unwrap_err();
        assert!(told.ends_with("; and 2 more"), "{told}");
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
