//! The cluster as replicas see it: nodes, disks, and the rules of where they may lie. Pure.

use std::collections::BTreeMap;

use hci::failover::{LOST, OUT_OF_SERVICE};
use hci::placement::{
    self, Disk, ExistingReplica, PlacementError, PlacementPolicy, PlacementRequest, StorageNode,
};
use serde_json::Value;

use super::replica::Replica;
use crate::condition;
use crate::longhorn::object::bytes;
use crate::object::{entries, int, is_true, list, name, text};

/// The health of a node, apart from its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeHealth {
    Alive,
    /// It may come back, and its engines may run.
    Silent,
    /// It was declared lost: its engines may be replaced, and its replicas come back with it.
    Lost,
    /// It is no part of the cluster, or somebody vouches for its death.
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct ReplicaPlacements {
    nodes: Vec<StorageNode>,
    life: BTreeMap<String, NodeHealth>,
    /// Paths by the disks' ids.
    paths: BTreeMap<String, String>,
    pub(super) policy: PlacementPolicy,
    /// Seconds to wait for a failed replica before it is replaced.
    pub(super) patience: i64,
}

/// Where a replica is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplicaPlacement {
    pub(super) node: String,
    pub(super) disk: String,
    pub(super) path: String,
}

impl ReplicaPlacements {
    /// `storage` are Longhorn's nodes, `nodes` the cluster's.
    pub(super) fn new(
        storage: &[Value],
        nodes: &[Value],
        settings: &[Value],
        volume: &Value,
    ) -> Self {
        let mut places = Self {
            policy: policy(settings, volume),
            patience: number(settings, "replica-replenishment-wait-interval"),
            ..Self::default()
        };
        let closed_when_cordoned =
            setting(settings, "disable-scheduling-on-cordoned-node") == "true";
        for own in storage {
            let node = nodes.iter().find(|node| name(node) == name(own));
            let life = node.map_or(life_of(own), life_of);
            let cordoned = closed_when_cordoned
                && node.is_some_and(|node| is_true(node, "/spec/unschedulable"));
            places.life.insert(name(own).to_owned(), life);
            let mut read = read_node(own, &mut places.paths);
            read.ready &= life == NodeHealth::Alive;
            read.open &= !cordoned;
            places.nodes.push(read);
        }
        for node in nodes {
            places.life.entry(name(node).to_owned()).or_insert_with(|| life_of(node));
        }
        places
    }

    /// Counts what is promised on each disk, by all replicas there are.
    pub(super) fn count(&mut self, replicas: &[Value]) {
        let disks = self.nodes.iter_mut().flat_map(|node| &mut node.disks);
        for disk in disks {
            let own = replicas.iter().filter(|own| text(own, "/spec/diskID") == disk.id);
            disk.scheduled = own.map(|own| bytes(own, "/spec/volumeSize")).sum();
        }
    }

    pub(super) fn life(&self, node: &str) -> NodeHealth {
        self.life.get(node).copied().unwrap_or(NodeHealth::Gone)
    }

    /// The number of replicas that there should be, when this many are requested. Silent nodes
    /// count: their replicas are missing.
    pub(super) fn wanted(&self, asked: usize) -> usize {
        let open = |node: &&StorageNode| node.open && node.disks.iter().any(|disk| disk.open);
        placement::wanted_replicas(asked, self.nodes.iter().filter(open).count(), self.policy)
    }

    /// Where one more replica goes.
    pub(super) fn next(
        &self,
        placed: &[ExistingReplica],
        wish: &PlacementRequest,
    ) -> Result<ReplicaPlacement, PlacementError> {
        let (node, disk) = placement::place(&self.nodes, placed, wish, self.policy)?;
        Ok(self.at(node, disk))
    }

    /// Why there is no place, of each node and disk.
    pub(super) fn explain(&self, obstacle: PlacementError, wish: &PlacementRequest) -> String {
        placement::explain(obstacle, &self.nodes, wish, self.policy)
    }

    pub(super) fn at(&self, node: &str, disk: &str) -> ReplicaPlacement {
        let path = self.paths.get(disk).cloned().unwrap_or_default();
        ReplicaPlacement { node: node.to_owned(), disk: disk.to_owned(), path }
    }

    /// Whether a failed replica could be built up again where it is.
    pub(super) fn serves(&self, replica: &Replica<'_>) -> bool {
        let node = self.nodes.iter().find(|node| node.name == replica.node && node.ready);
        node.is_some_and(|node| node.disks.iter().any(|disk| disk.id == replica.disk && disk.ready))
    }
}

/// A node's offer to replicas, apart from its free space.
pub(super) fn offer(own: &Value) -> String {
    let node = read_node(own, &mut BTreeMap::new());
    let disks: Vec<_> =
        node.disks.iter().map(|disk| (&disk.id, disk.open, disk.ready, &disk.tags)).collect();
    format!("{} {} {:?} {:?} {disks:?}", node.open, node.ready, node.zone, node.tags)
}

fn life_of(node: &Value) -> NodeHealth {
    let has = |key: &str| list(node, "/spec/taints").iter().any(|own| text(own, "/key") == key);
    match condition::is(node, "Ready", "True") {
        _ if has(OUT_OF_SERVICE) => NodeHealth::Gone,
        _ if has(LOST) => NodeHealth::Lost,
        true => NodeHealth::Alive,
        false => NodeHealth::Silent,
    }
}

fn read_node(own: &Value, paths: &mut BTreeMap<String, String>) -> StorageNode {
    let usable = |object: &Value| {
        condition::find(list(object, "/conditions"), "Ready")
            .is_some_and(|own| text(own, "/status") == "True")
            && condition::find(list(object, "/conditions"), "Schedulable")
                .is_none_or(|own| text(own, "/status") != "False")
    };
    let is_open = |object: &Value| {
        object.get("allowScheduling") != Some(&Value::Bool(false))
            && !is_true(object, "/evictionRequested")
    };
    let spec = own.get("spec").unwrap_or(&Value::Null);
    let mut disks = Vec::new();
    for (disk, status) in entries(own, "/status/diskStatus") {
        let wanted = &spec["disks"][disk];
        let id = text(status, "/diskUUID").to_owned();
        let path = match text(status, "/diskPath") {
            "" => text(wanted, "/path"),
            path => path,
        };
        paths.insert(id.clone(), path.to_owned());
        disks.push(Disk {
            id,
            name: disk.clone(),
            tags: words(wanted, "/tags"),
            open: wanted.is_object() && is_open(wanted),
            ready: usable(status),
            trouble: trouble(status),
            maximum: int(status, "/storageMaximum").unwrap_or_default(),
            available: int(status, "/storageAvailable").unwrap_or_default(),
            reserved: int(wanted, "/storageReserved").unwrap_or_default(),
            scheduled: int(status, "/storageScheduled").unwrap_or_default(),
        });
    }
    StorageNode {
        name: name(own).to_owned(),
        zone: text(own, "/status/zone").to_owned(),
        tags: words(spec, "/tags"),
        open: is_open(spec),
        ready: own.get("status").is_some_and(usable),
        trouble: own.get("status").map(trouble).unwrap_or_default(),
        disks,
    }
}

/// The reason why a node or a disk cannot be used, from its conditions.
fn trouble(status: &Value) -> String {
    let conditions = list(status, "/conditions");
    let told = ["Ready", "Schedulable"].into_iter().find_map(|kind| {
        condition::find(conditions, kind).filter(|own| text(own, "/status") != "True")
    });
    told.map_or("", |own| text(own, "/message")).to_owned()
}

pub(super) fn words(object: &Value, pointer: &str) -> Vec<String> {
    list(object, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn setting<'a>(settings: &'a [Value], wanted: &str) -> &'a str {
    let own = settings.iter().find(|own| name(own) == wanted).map(|own| text(own, "/value"));
    hci::setting::value(wanted, own)
}

fn number(settings: &[Value], wanted: &str) -> i64 {
    setting(settings, wanted).parse().unwrap_or_default()
}

/// The cluster's rules with the volume's own laid over them.
fn policy(settings: &[Value], volume: &Value) -> PlacementPolicy {
    let soft = |field: &str, global: &str| match text(volume, field) {
        "enabled" => true,
        "disabled" => false,
        _ => setting(settings, global) == "true",
    };
    PlacementPolicy {
        node_soft: soft("/spec/replicaSoftAntiAffinity", "replica-soft-anti-affinity"),
        zone_soft: soft("/spec/replicaZoneSoftAntiAffinity", "replica-zone-soft-anti-affinity"),
        disk_soft: soft("/spec/replicaDiskSoftAntiAffinity", "replica-disk-soft-anti-affinity"),
        over_provisioning: number(settings, "storage-over-provisioning-percentage"),
        minimal_available: number(settings, "storage-minimal-available-percentage"),
        untagged_anywhere: setting(settings, "allow-empty-disk-selector-volume") == "true"
            && setting(settings, "allow-empty-node-selector-volume") == "true",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A node with one disk of 100 GiB.
    pub(in crate::longhorn::volume) fn storage_node(name: &str) -> Value {
        const GI: i64 = 1 << 30;
        let fine = json!([{"type": "Ready", "status": "True"}]);
        json!({
            "metadata": {"name": name},
            "spec": {"allowScheduling": true, "disks": {"default": {
                "path": "/d", "allowScheduling": true, "storageReserved": 0,
            }}},
            "status": {"conditions": fine, "diskStatus": {"default": {
                "conditions": fine, "diskUUID": format!("disk-{name}"), "diskPath": "/d",
                "storageMaximum": 100 * GI, "storageAvailable": 90 * GI, "storageScheduled": 0,
            }}},
        })
    }

    fn node(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn nodes_live_fall_silent_and_go() {
        let mut dead = node("three", "Unknown");
        dead["spec"] = json!({"taints": [{"key": OUT_OF_SERVICE}]});
        let mut lost = node("six", "Unknown");
        lost["spec"] = json!({"taints": [{"key": LOST}]});
        let nodes = [node("one", "True"), node("two", "Unknown"), dead, lost];
        let storage = ["one", "two", "three", "four", "six"].map(storage_node);
        let places = ReplicaPlacements::new(&storage, &nodes, &[], &json!({}));
        for (name, expected) in [
            ("one", NodeHealth::Alive),
            ("two", NodeHealth::Silent),
            ("three", NodeHealth::Gone),
            ("four", NodeHealth::Alive),
            ("five", NodeHealth::Gone),
            ("six", NodeHealth::Lost),
        ] {
            assert_eq!(places.life(name), expected, "{name}");
        }
        assert_eq!(places.wanted(3), 3, "a silent node counts");
    }

    #[test]
    fn the_volume_overrides_the_cluster_and_settings_their_defaults() {
        let soft = json!({"spec": {"replicaSoftAntiAffinity": "enabled"}});
        let places = ReplicaPlacements::new(&[], &[], &[], &soft);
        assert!(places.policy.node_soft && places.policy.zone_soft);
        assert_eq!((places.policy.minimal_available, places.patience), (10, 600));
        let set =
            json!({"metadata": {"name": "storage-minimal-available-percentage"}, "value": "5"});
        assert_eq!(
            ReplicaPlacements::new(&[], &[], &[set], &json!({})).policy.minimal_available,
            5
        );
    }

    #[test]
    fn promised_bytes_are_those_of_all_replicas() {
        let mut places = ReplicaPlacements::new(&[storage_node("one")], &[], &[], &json!({}));
        let wish = PlacementRequest { size: 60 << 30, ..PlacementRequest::default() };
        let here =
            ReplicaPlacement { node: "one".into(), disk: "disk-one".into(), path: "/d".into() };
        assert_eq!(places.next(&[], &wish), Ok(here));
        let size = (50_i64 << 30).to_string();
        places.count(&[json!({"spec": {"diskID": "disk-one", "volumeSize": size}})]);
        assert_eq!(places.next(&[], &wish), Err(PlacementError::NoSpace));
    }

    #[test]
    fn a_cordoned_node_takes_no_replicas() {
        let mut cordoned = node("one", "True");
        cordoned["spec"] = json!({"unschedulable": true});
        let places = ReplicaPlacements::new(&[storage_node("one")], &[cordoned], &[], &json!({}));
        assert_eq!(
            places.next(&[], &PlacementRequest::default()),
            Err(PlacementError::NoNodeReady)
        );
    }
}
