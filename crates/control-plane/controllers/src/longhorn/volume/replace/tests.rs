use hci::placement::PlacementRequest;

use super::super::replica::ReplicaAction;
use super::super::replica::tests::{at, check};
use super::*;

#[test]
fn unusable_replicas_are_replaced_once_and_with_growing_pauses() {
    // Failures are at 0; see `check` for the flags.
    for (lines, now, expected) in [
        // A good one is needed to build from.
        (&["a one h+"][..], 0, "none"),
        (&["a one hfd"], 0, "none"),
        (&["a one h~", "b two hfd"], 0, "none"),
        (&["a one h+", "b two hfd"], 0, "of b"),
        // The disk may not be mounted.
        (&["a one h+", "b two hfm"], 0, "wait until 60"),
        (&["a one h+", "b two hfm"], 60, "of b"),
        // Not marked as failed yet; its node or disk is not there; leaving anyway or just an error.
        (&["a one h+", "b two hd"], 0, "none"),
        (&["a one h+", "b gone hfd"], 0, "none"),
        (&["a one h+", "b two hfe"], 0, "none"),
        // It has a successor, which is built, in sync, or failed.
        (&["a one h+", "b two hfd", "c two ~ 1 b"], 0, "none"),
        (&["a one h+", "b two hfd", "c two h+ 0 b"], 0, "none"),
        (&["a one h+", "b two hfd", "c two f 1 b"], 29, "wait until 30"),
        (&["a one h+", "b two hfd", "c two f 1 b"], 30, "of b"),
        (&["a one h+", "b two hfd", "d two f 3 b"], 30, "wait until 120"),
        (&["a one h+", "b two hfd", "d two f 60 b"], 30, "wait until 3600"),
        // Two at once: the first one first.
        (&["a one h+", "b two hfd", "c three hfd"], 0, "of b"),
        (&["a one h+", "b two hfd", "c three hfd", "d two h+ 0 b"], 0, "of c"),
    ] {
        let found = check(lines, &["one", "two", "three"], |set, places| {
            match next(set, places, at(now)) {
                Replacement::None => "none".to_owned(),
                Replacement::Wait(until) => format!("wait until {}", until.as_second()),
                Replacement::Of(name) => format!("of {name}"),
            }
        });
        assert_eq!(found, expected, "{lines:?} at {now}");
    }
}

#[test]
fn a_replacement_takes_the_same_node_only_if_no_other_is_better() {
    for (lines, nodes, now, expected) in [
        (
            &["a one h+", "b two h+", "c three hfd"][..],
            &["one", "two", "three"][..],
            0,
            "three 1 c",
        ),
        (&["a one h+", "b two hfd 0"], &["one", "two"], 0, "two 1 b"),
        // A disk where an attempt failed is avoided if there is another.
        (&["a one h+", "b two hfd", "c two fe 1 b"], &["one", "two", "four"], 30, "four 2 b"),
        (&["a one h+", "b two hfd", "c two fe 1 b"], &["one", "two"], 30, "two 2 b"),
    ] {
        let found = check(lines, nodes, |set, places| {
            let wish = PlacementRequest { size: 1 << 30, ..PlacementRequest::default() };
            // The failed attempt is not tried again: its node says that it cannot be made.
            match set.supply(nodes.len().min(3), &wish, places, Some(at(0)), at(now)) {
                ReplicaAction::Make(copy) => {
                    let replaces = copy.replaces.unwrap_or_default();
                    format!("{} {} {replaces}", copy.place.node, copy.tries)
                }
                other => format!("{other:?}"),
            }
        });
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn unusable_files_go_only_when_no_other_copy_is_doubtful() {
    let stale = SignedDuration::from_mins(30);
    for (lines, wanted, unreadable, now, expected) in [
        (&["a one h+", "b two h+", "c two hfd"][..], 2, false, 0, "c"),
        (&["a one h+", "c two hfd"], 2, false, 360_000, ""),
        (&["a one h+", "b two h~", "c two hfd"], 2, false, 360_000, ""),
        (&["a one h+", "b two h+", "d three ~", "c two hfd"], 2, false, 0, ""),
        (&["a one h+", "b two h+", "c two hfd"], 2, true, 360_000, ""),
        (&["a one h+l", "b two h+", "c two hfd"], 2, false, 0, ""),
        (&["a one hfd"], 1, false, 360_000, ""),
        // An attempt that was never in sync holds nothing, but counts until there is another.
        (&["a one h+", "b two hfd", "c two fd 1"], 2, false, 0, ""),
        (&["a one h+", "b two hfd", "c two fd 1", "d two ~ 2"], 2, false, 0, "c"),
    ] {
        let found = check(lines, &["one", "two", "three"], |set, _| {
            let retention = Retention { asked: wanted, wanted, stale, unreadable, now: at(now) };
            let spent = set.surplus(retention);
            spent.iter().map(|own| own.name).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(found, expected, "{lines:?} {unreadable} at {now}");
    }
}
