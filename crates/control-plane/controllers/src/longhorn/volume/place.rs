//! The cluster as replicas see it: nodes, disks, and the rules of where they may lie. Pure.

use std::collections::BTreeMap;

use hci::failover::{LOST, OUT_OF_SERVICE};
use hci::placement::{
    self, Disk, ExistingReplica, PlacementError, PlacementPolicy, PlacementRequest, StorageNode,
};
use serde_json::Value;

use super::replica::Replica;
use crate::longhorn::object::bytes;
use crate::longhorn::record::{
    DiskSpec, DiskStatus, ReplicaFields, StorageNodeFields, VolumeFields,
};
use crate::object::{name, read};
use crate::record::condition::{ConditionFields, of_type};
use crate::record::node::NodeFields;
use crate::record::setting;

/// The health of a node, apart from its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeHealth {
    Alive,
    /// It may come back, and its engines may run.
    Silent,
    /// It was declared lost: its engines may be replaced, and its replicas come back with it.
    Lost,
    /// It is no part of the cluster, or a user confirmed that it is down.
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
    pub(super) replenishment_wait: i64,
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
            replenishment_wait: number(settings, "replica-replenishment-wait-interval"),
            ..Self::default()
        };
        let closed_when_cordoned =
            setting_value(settings, "disable-scheduling-on-cordoned-node") == "true";
        for own in storage {
            let node = nodes.iter().find(|node| name(node) == name(own));
            let node: NodeFields<'_> = read(node.unwrap_or(own));
            let life = life_of(&node);
            let cordoned = closed_when_cordoned && node.spec.unschedulable;
            places.life.insert(name(own).to_owned(), life);
            let mut found = read_node(own, &mut places.paths);
            found.ready &= life == NodeHealth::Alive;
            found.open &= !cordoned;
            places.nodes.push(found);
        }
        for node in nodes {
            places.life.entry(name(node).to_owned()).or_insert_with(|| life_of(&read(node)));
        }
        places
    }

    /// Counts what is promised on each disk, by all replicas there are.
    pub(super) fn count(&mut self, replicas: &[Value]) {
        let mut scheduled: BTreeMap<&str, i64> = BTreeMap::new();
        for replica in replicas {
            let spec = read::<ReplicaFields<'_>>(replica).spec;
            *scheduled.entry(spec.disk_id).or_default() += bytes(spec.volume_size);
        }
        for disk in self.nodes.iter_mut().flat_map(|node| &mut node.disks) {
            disk.scheduled = scheduled.get(disk.id.as_str()).copied().unwrap_or_default();
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

fn life_of(node: &NodeFields<'_>) -> NodeHealth {
    let has = |key: &str| node.spec.taints.iter().any(|own| own.key == key);
    let ready = of_type(&node.status.conditions, "Ready").is_some_and(|own| own.status == "True");
    match ready {
        _ if has(OUT_OF_SERVICE) => NodeHealth::Gone,
        _ if has(LOST) => NodeHealth::Lost,
        true => NodeHealth::Alive,
        false => NodeHealth::Silent,
    }
}

fn read_node(own: &Value, paths: &mut BTreeMap<String, String>) -> StorageNode {
    let StorageNodeFields { spec, status } = read(own);
    let mut disks = Vec::new();
    for (disk, status) in &status.disk_status {
        let wanted = spec.disks.get(disk);
        disks.push(read_disk(disk, wanted, status));
        let path = match status.path {
            "" => wanted.map_or("", |own| own.path),
            path => path,
        };
        paths.insert(status.uuid.to_owned(), path.to_owned());
    }
    StorageNode {
        name: name(own).to_owned(),
        zone: status.zone.to_owned(),
        tags: owned(&spec.tags),
        open: spec.is_open(),
        ready: is_usable(&status.conditions),
        trouble: trouble(&status.conditions),
        disks,
    }
}

/// A disk that its node reports; one that its node is not to have is closed.
fn read_disk(name: &str, wanted: Option<&DiskSpec<'_>>, status: &DiskStatus<'_>) -> Disk {
    Disk {
        id: status.uuid.to_owned(),
        name: name.to_owned(),
        tags: wanted.map(|own| owned(&own.tags)).unwrap_or_default(),
        open: wanted.is_some_and(DiskSpec::is_open),
        ready: is_usable(&status.conditions),
        trouble: trouble(&status.conditions),
        maximum: status.storage_maximum,
        available: status.storage_available,
        reserved: wanted.map_or(0, |own| own.storage_reserved),
        scheduled: status.storage_scheduled,
    }
}

fn is_usable(conditions: &[ConditionFields<'_>]) -> bool {
    of_type(conditions, "Ready").is_some_and(|own| own.status == "True")
        && of_type(conditions, "Schedulable").is_none_or(|own| own.status != "False")
}

/// The reason why a node or a disk cannot be used, from its conditions.
fn trouble(conditions: &[ConditionFields<'_>]) -> String {
    let condition = ["Ready", "Schedulable"]
        .into_iter()
        .find_map(|kind| of_type(conditions, kind).filter(|own| own.status != "True"));
    condition.map_or("", |own| own.message).to_owned()
}

pub(super) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn setting_value<'a>(settings: &'a [Value], wanted: &str) -> &'a str {
    let own = settings.iter().find(|own| name(own) == wanted).map(setting::value);
    hci::setting::value(wanted, own)
}

fn number(settings: &[Value], wanted: &str) -> i64 {
    setting_value(settings, wanted).parse().unwrap_or_default()
}

/// The cluster's rules with the volume's own laid over them.
fn policy(settings: &[Value], volume: &Value) -> PlacementPolicy {
    let spec = read::<VolumeFields<'_>>(volume).spec;
    let soft = |own: &str, global: &str| match own {
        "enabled" => true,
        "disabled" => false,
        _ => setting_value(settings, global) == "true",
    };
    PlacementPolicy {
        node_soft: soft(spec.replica_soft_anti_affinity, "replica-soft-anti-affinity"),
        zone_soft: soft(spec.replica_zone_soft_anti_affinity, "replica-zone-soft-anti-affinity"),
        disk_soft: soft(spec.replica_disk_soft_anti_affinity, "replica-disk-soft-anti-affinity"),
        over_provisioning: number(settings, "storage-over-provisioning-percentage"),
        minimal_available: number(settings, "storage-minimal-available-percentage"),
        untagged_anywhere: setting_value(settings, "allow-empty-disk-selector-volume") == "true"
            && setting_value(settings, "allow-empty-node-selector-volume") == "true",
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
        assert_eq!((places.policy.minimal_available, places.replenishment_wait), (10, 600));
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
