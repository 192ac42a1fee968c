use serde_json::json;

use super::super::place::tests::storage_node;
use super::*;

/// `name node flags tries predecessor`: `h` has been healthy, `f` failed, `e` says error, `m` that
/// its files are missing, `d` damaged, `l` is leaving; `+` is in sync, `-` given up, `~` being built.
pub(in super::super) fn check<T>(
    lines: &[&str],
    nodes: &[&str],
    read: impl FnOnce(&ReplicaSet<'_>, &ReplicaPlacements) -> T,
) -> T {
    let mut modes = json!({});
    let mut replicas = Vec::new();
    for line in lines {
        let parts: Vec<&str> = line.split(' ').collect();
        let (name, node, flags) = (parts[0], parts[1], parts.get(2).copied().unwrap_or_default());
        let set = |flag: char, value: &str| {
            if flags.contains(flag) { value.to_owned() } else { String::new() }
        };
        let fault = match flags {
            _ if flags.contains('m') => "ReplicaMissing",
            _ if flags.contains('d') => "ReplicaDamaged",
            _ => "",
        };
        let is_error = flags.contains('e') || !fault.is_empty();
        let state = if is_error { "error" } else { "running" };
        for (flag, mode) in [('+', "RW"), ('-', "ERR"), ('~', "WO")] {
            if flags.contains(flag) {
                modes[name] = json!(mode);
            }
        }
        replicas.push(json!({
            "metadata": {
                "name": name,
                "annotations": {"sheaf.io/replaces": parts.get(4).copied().unwrap_or_default()},
            },
            "spec": {
                "nodeID": node, "diskID": format!("disk-{node}"),
                "healthyAt": set('h', "1970-01-01T00:00:00Z"),
                "lastHealthyAt": set('h', "1970-01-01T00:00:00Z"),
                "rebuildRetryCount": parts.get(3).map_or(0, |tries| tries.parse::<i64>().unwrap()),
                "failedAt": set('f', "1970-01-01T00:00:00Z"),
                "evictionRequested": flags.contains('l'),
            },
            "status": {"currentState": state, "conditions": [{
                "type": "InstanceCreation", "status": if is_error { "False" } else { "True" },
                "reason": fault, "message": "",
            }]},
        }));
    }
    let engine = json!({"status": {"replicaModeMap": modes}});
    let storage: Vec<Value> = nodes.iter().map(|name| storage_node(name)).collect();
    let places = ReplicaPlacements::new(&storage, &[], &[], &json!({}));
    read(&ReplicaSet::new(&replicas, Some(&engine), &places), &places)
}

fn names(list: &[&Replica<'_>]) -> String {
    list.iter().map(|own| own.name).collect::<Vec<_>>().join(" ")
}

pub(in super::super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

#[test]
fn the_last_copy_is_never_given_up() {
    for (lines, up, expected) in [
        (&["a one h-"][..], true, ""),
        (&["a one h-", "b two h+"], true, "a"),
        (&["a one h-", "b two h-"], true, ""),
        (&["a one he", "b two h+"], true, "a"),
        (&["a one h+", "b gone h"], true, "b"),
        (&["a one h+", "b gone h"], false, ""),
        (&["a gone h", "b gone h"], true, ""),
        (&["a one e"], false, "a"),
        (&["a one", "b two e"], false, "b"),
        (&["a one h+", "b two -"], true, "b"),
        (&["a one he", "b two h~"], true, ""),
    ] {
        let found = check(lines, &["one", "two"], |census, _| names(&census.faults(up)));
        assert_eq!(found, expected, "{lines:?} {up}");
    }
}

#[test]
fn spent_replicas_are_removed() {
    let stale = SignedDuration::from_mins(30);
    for (lines, asked, wanted, now, expected) in [
        (&["a one h+"][..], 1, 1, 0, ""),
        (&["a one h+", "b two hf"], 2, 2, 60, ""),
        (&["a one h+", "b two hf"], 2, 2, 3600, "b"),
        (&["a one h+", "b two h+", "c three hf"], 2, 2, 60, "c"),
        (&["a one hf"], 1, 1, 360_000, ""),
        (&["a one f"], 1, 1, 10, ""),
        (&["a one f"], 1, 1, 31, "a"),
        (&["a one h+", "b two h+l"], 1, 1, 0, "b"),
        (&["a one h+l"], 1, 1, 0, ""),
        (&["a one h+", "b two h+"], 1, 1, 0, "b"),
        (&["a one h+", "b one h+", "c two h+"], 2, 2, 0, "b"),
        (&["a one h+", "b two h+"], 3, 2, 0, ""),
    ] {
        let found = check(lines, &["one", "two"], |census, _| {
            let unreadable = false;
            names(&census.surplus(Retention { asked, wanted, stale, unreadable, now: at(now) }))
        });
        assert_eq!(found, expected, "{lines:?} asked {asked} wanted {wanted} at {now}");
    }
}

#[test]
fn a_missing_copy_is_reused_awaited_or_made() {
    for (lines, nodes, wanted, since, now, expected) in [
        (&["a one h+"][..], &["one"][..], 1, 0, 0, "enough"),
        (&["a one h+"], &["one", "two"], 2, 0, 0, "make two"),
        (&["a one h+", "b two ~"], &["one", "two", "three"], 3, 0, 0, "enough"),
        (&["a one h+", "b two hf"], &["one", "two"], 2, 0, 0, "reuse b"),
        (&["a one h+", "b two hf-"], &["one", "two"], 2, 0, 0, "wait until 5"),
        (&["a one h+", "b two hf 2"], &["one", "two"], 2, 0, 0, "wait until 60"),
        (&["a one h+", "b two hf 2"], &["one", "two"], 2, 0, 60, "reuse b"),
        (&["a one h+", "b two hfe"], &["one", "two"], 2, 0, 0, "wait until 600"),
        (&["a one h+", "b two hfe"], &["one", "two"], 2, 0, 600, "make two"),
        (&["a one h+", "b gone hf"], &["one", "two"], 2, 0, 0, "make two"),
        (&["a one h+l"], &["one", "two"], 1, 0, 0, "make two"),
        (
            &["a one h+", "b two h+"],
            &["one", "two"],
            3,
            0,
            0,
            "replicas cannot be scheduled apart from each other",
        ),
    ] {
        let found = check(lines, nodes, |census, places| {
            let wish = PlacementRequest { size: 1 << 30, ..PlacementRequest::default() };
            match census.supply(wanted, &wish, places, Some(at(since)), at(now)) {
                ReplicaAction::Enough => "enough".to_owned(),
                ReplicaAction::Reuse(name) => format!("reuse {name}"),
                ReplicaAction::Make(copy) => format!("make {}", copy.place.node),
                ReplicaAction::Wait(until) => format!("wait until {}", until.as_second()),
                ReplicaAction::NoPlace(obstacle) => obstacle.text().to_owned(),
            }
        });
        assert_eq!(found, expected, "{lines:?} on {nodes:?}");
    }
}

#[test]
fn a_replica_on_a_silent_node_is_awaited_for_a_while() {
    let mut silent = storage_node("two");
    silent["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let storage = [storage_node("one"), silent, storage_node("three")];
    let places = ReplicaPlacements::new(&storage, &[], &[], &json!({}));
    let replica = |name: &str, node: &str, failed: &str| json!({"metadata": {"name": name}, "spec": {"nodeID": node, "healthyAt": "x", "failedAt": failed}});
    let replicas = [replica("a", "one", ""), replica("b", "two", "1970-01-01T00:00:00Z")];
    let engine = json!({"status": {"replicaModeMap": {"a": "RW"}}});
    let census = ReplicaSet::new(&replicas, Some(&engine), &places);
    let wish = PlacementRequest { size: 1 << 30, ..PlacementRequest::default() };
    let supply = |now| census.supply(2, &wish, &places, Some(at(0)), at(now));
    assert_eq!(supply(10), ReplicaAction::Wait(at(600)));
    assert!(matches!(supply(601), ReplicaAction::Make(copy) if copy.place.node == "three"));
}

#[test]
fn first_copies_go_apart_and_as_many_as_fit() {
    let first = |nodes: &[&str], wanted: usize| {
        check(&[], nodes, |census, places| {
            let wish = PlacementRequest { size: 1 << 30, ..PlacementRequest::default() };
            let (found, obstacle) = census.first(wanted, &wish, places);
            (found.into_iter().map(|own| own.node).collect::<Vec<_>>().join(" "), obstacle)
        })
    };
    assert_eq!(first(&["one", "two"], 2), ("one two".into(), None));
    assert_eq!(first(&["one"], 2), ("one".into(), Some(PlacementError::AntiAffinity)));
    assert_eq!(first(&[], 1), (String::new(), Some(PlacementError::NoNodes)));
    let again = check(&["a one f"], &["one"], |census, places| {
        census
            .first(1, &PlacementRequest { size: 1 << 30, ..PlacementRequest::default() }, places)
            .0
            .len()
    });
    assert_eq!(again, 0, "a failed replica is not made again before it is removed");
}
