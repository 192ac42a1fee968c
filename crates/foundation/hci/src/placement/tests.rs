//! Tables of places.

use super::{
    Disk, ExistingReplica, PlacementError, PlacementPolicy, PlacementRequest, StorageNode, explain,
    place, wanted_replicas,
};

const GIB: i64 = 1 << 30;

fn disk(id: &str, free: i64) -> Disk {
    Disk {
        id: id.to_owned(),
        name: id.to_owned(),
        open: true,
        ready: true,
        maximum: 100 * GIB,
        available: free * GIB,
        ..Disk::default()
    }
}

fn node(name: &str, zone: &str, disks: Vec<Disk>) -> StorageNode {
    StorageNode {
        name: name.to_owned(),
        zone: zone.to_owned(),
        open: true,
        ready: true,
        disks,
        ..StorageNode::default()
    }
}

fn placed(node: &str, disk: &str) -> ExistingReplica {
    ExistingReplica { node: node.to_owned(), disk: disk.to_owned(), leaving: false }
}

fn wish() -> PlacementRequest {
    PlacementRequest { size: 10 * GIB, ..PlacementRequest::default() }
}

/// Three nodes in two zones; `a` has two disks.
fn three() -> Vec<StorageNode> {
    vec![
        node("a", "east", vec![disk("a1", 90), disk("a2", 60)]),
        node("b", "east", vec![disk("b1", 80)]),
        node("c", "west", vec![disk("c1", 70)]),
    ]
}

#[test]
fn the_first_replica_goes_where_it_leaves_things_most_even() {
    assert_eq!(place(&three(), &[], &wish(), PlacementPolicy::default()), Ok(("a", "a1")));
}

#[test]
fn replicas_are_apart_by_zone_first_then_by_node() {
    let nodes = three();
    let policy = PlacementPolicy::default();
    let first = [placed("a", "a1")];
    assert_eq!(place(&nodes, &first, &wish(), policy), Ok(("c", "c1")));
    let both = [placed("a", "a1"), placed("c", "c1")];
    assert_eq!(place(&nodes, &both, &wish(), policy), Ok(("b", "b1")));
    let hard_zone = PlacementPolicy { zone_soft: false, ..policy };
    assert_eq!(place(&nodes, &both, &wish(), hard_zone), Err(PlacementError::AntiAffinity));
    let all = [placed("a", "a1"), placed("b", "b1"), placed("c", "c1")];
    assert_eq!(place(&nodes, &all, &wish(), policy), Err(PlacementError::AntiAffinity));
    let soft = PlacementPolicy { node_soft: true, ..policy };
    assert_eq!(place(&nodes, &all, &wish(), soft), Ok(("a", "a2")));
}

#[test]
fn a_place_that_clears_is_better_than_none() {
    let nodes = three();
    let mut all = [placed("a", "a1"), placed("b", "b1"), placed("c", "c1")];
    all[1].leaving = true;
    assert_eq!(place(&nodes, &all, &wish(), PlacementPolicy::default()), Ok(("b", "b1")));
}

#[test]
fn a_disk_that_holds_a_replica_is_second_choice_or_none() {
    let nodes = vec![node("a", "", vec![disk("a1", 90), disk("a2", 60)])];
    let soft = PlacementPolicy { node_soft: true, ..PlacementPolicy::default() };
    assert_eq!(place(&nodes, &[placed("a", "a1")], &wish(), soft), Ok(("a", "a2")));
    let two = [placed("a", "a1"), placed("a", "a2")];
    assert!(place(&nodes, &two, &wish(), soft).is_ok());
    let hard_disk = PlacementPolicy { disk_soft: false, ..soft };
    assert_eq!(place(&nodes, &two, &wish(), hard_disk), Err(PlacementError::AntiAffinity));
}

#[test]
fn the_engine_s_own_node_comes_first_where_that_is_wished() {
    let near = PlacementRequest { near: Some("b".to_owned()), ..wish() };
    assert_eq!(place(&three(), &[], &near, PlacementPolicy::default()), Ok(("b", "b1")));
    let there = [placed("b", "b1")];
    assert_eq!(place(&three(), &there, &near, PlacementPolicy::default()), Ok(("c", "c1")));
    let only = PlacementRequest { only: Some("c".to_owned()), ..wish() };
    assert_eq!(place(&three(), &[], &only, PlacementPolicy::default()), Ok(("c", "c1")));
}

#[test]
fn the_obstacle_is_reported() {
    type Change = fn(&mut Vec<StorageNode>, &mut PlacementRequest);
    let cases: [(&str, Change, PlacementError); 8] = [
        ("no node", |nodes, _| nodes.clear(), PlacementError::NoNodes),
        (
            "none ready",
            |nodes, _| nodes.iter_mut().for_each(|node| node.ready = false),
            PlacementError::NoNodeReady,
        ),
        (
            "all closed",
            |nodes, _| nodes.iter_mut().for_each(|node| node.open = false),
            PlacementError::NoNodeReady,
        ),
        (
            "no node tag",
            |_, wish| wish.node_tags = vec!["fast".to_owned()],
            PlacementError::NodeTags,
        ),
        (
            "no disk tag",
            |_, wish| wish.disk_tags = vec!["ssd".to_owned()],
            PlacementError::DiskTags,
        ),
        (
            "no disk",
            |nodes, _| nodes.iter_mut().for_each(|node| node.disks.clear()),
            PlacementError::NoDisks,
        ),
        ("too large", |_, wish| wish.size = 101 * GIB, PlacementError::NoSpace),
        ("would fill the disks", |_, wish| wish.actual_size = 70 * GIB, PlacementError::NoSpace),
    ];
    for (what, change, obstacle) in cases {
        let (mut nodes, mut wish) = (three(), wish());
        change(&mut nodes, &mut wish);
        assert_eq!(place(&nodes, &[], &wish, PlacementPolicy::default()), Err(obstacle), "{what}");
    }
}

#[test]
fn space_is_counted_with_reservation_and_over_provisioning() {
    let mut small = disk("a1", 90);
    small.reserved = 50 * GIB;
    small.scheduled = 45 * GIB;
    let nodes = vec![node("a", "", vec![small])];
    let tight = PlacementPolicy::default();
    assert_eq!(place(&nodes, &[], &wish(), tight), Err(PlacementError::NoSpace));
    let generous = PlacementPolicy { over_provisioning: 200, ..tight };
    assert_eq!(place(&nodes, &[], &wish(), generous), Ok(("a", "a1")));
}

#[test]
fn tagged_disks_take_untagged_volumes_unless_configured_otherwise() {
    let mut tagged = disk("a1", 90);
    tagged.tags = vec!["ssd".to_owned()];
    let nodes = vec![node("a", "", vec![tagged])];
    assert!(place(&nodes, &[], &wish(), PlacementPolicy::default()).is_ok());
    let strict = PlacementPolicy { untagged_anywhere: false, ..PlacementPolicy::default() };
    assert_eq!(place(&nodes, &[], &wish(), strict), Err(PlacementError::DiskTags));
    let ssd = PlacementRequest { disk_tags: vec!["ssd".to_owned()], ..wish() };
    assert!(place(&nodes, &[], &ssd, strict).is_ok());
}

#[test]
fn a_small_cluster_is_content_with_fewer_copies() {
    let hard = PlacementPolicy::default();
    for (asked, nodes, wanted) in [(3, 1, 1), (3, 2, 2), (3, 5, 3), (0, 3, 1), (3, 0, 1)] {
        assert_eq!(wanted_replicas(asked, nodes, hard), wanted, "{asked} on {nodes}");
    }
    assert_eq!(wanted_replicas(3, 1, PlacementPolicy { node_soft: true, ..hard }), 3);
}

#[test]
fn the_obstacle_is_reported_of_each_disk() {
    type Change = fn(&mut Vec<StorageNode>, &mut PlacementRequest);
    let cases: [(Change, &str); 7] = [
        (
            |nodes, _| {
                nodes[0].ready = false;
                nodes[0].trouble = "no heartbeat".to_owned();
                nodes[1].open = false;
            },
            "none of the node candidates is ready and open to new replicas: node a is not ready: \
             no heartbeat; node b takes no new replicas",
        ),
        (
            |_, wish| wish.node_tags = vec!["fast".to_owned()],
            "the node tags do not match the volume's node selector: node a has no tags, and fast \
             is asked for; node b has no tags, and fast is asked for",
        ),
        (
            |nodes, _| {
                nodes[0].disks[0].open = false;
                nodes[0].disks[1].ready = false;
                nodes[0].disks[1].trouble = "it is not mounted".to_owned();
                nodes[1].disks.clear();
            },
            "disks are unavailable: disk a1 of node a takes no new replicas; disk a2 of node a is \
             not ready: it is not mounted; node b has no disks",
        ),
        (
            |nodes, wish| {
                nodes[0].disks[0].tags = vec!["hdd".to_owned()];
                nodes[0].disks.truncate(1);
                nodes.truncate(1);
                wish.disk_tags = vec!["ssd".to_owned()];
            },
            "the disk tags do not match the volume's disk selector: disk a1 of node a has the tags \
             hdd, and ssd is asked for",
        ),
        (
            |nodes, wish| {
                nodes.truncate(1);
                nodes[0].disks.truncate(1);
                wish.size = 101 * GIB;
            },
            "insufficient storage: disk a1 of node a may promise 107374182400 bytes, has promised 0 \
             and is asked for 108447924224",
        ),
        (
            |nodes, _| {
                nodes.truncate(1);
                nodes[0].disks = vec![disk("a1", 25)];
            },
            "insufficient storage: disk a1 of node a has 26843545600 bytes free, of which \
             26843545600 stay free",
        ),
        (
            |nodes, _| {
                nodes.truncate(1);
                nodes[0].disks = (0..8).map(|_| Disk { open: false, ..disk("d", 9) }).collect();
            },
            "and 2 more",
        ),
    ];
    for (change, expected) in cases {
        let (mut nodes, mut wish) = (three(), wish());
        nodes.truncate(2);
        change(&mut nodes, &mut wish);
        let policy = PlacementPolicy::default();
        let obstacle = place(&nodes, &[], &wish, policy).unwrap_err();
        let message = explain(obstacle, &nodes, &wish, policy);
        assert!(message.ends_with(expected), "{message}");
    }
}
