//! Tables of which nodes a replica is granted to.

use std::collections::BTreeMap;
use std::path::Path;

use block::ids::{Generation, VolumeId};
use block::storage::{ReplicaState, StorageStatus, WaitingEngine};
use serde_json::{Value, json};

use super::super::object;
use super::*;

const NODE: &str = "one";

/// A replica here, of a volume whose engine is on the node `engine`.
struct Scene {
    volume: LonghornVolume,
    replica: Replica,
    engines: BTreeMap<String, Engine>,
    state: StorageStatus,
}

fn read(kind: &str, name: &str, uid: u8, spec: &Value) -> kube::api::DynamicObject {
    let object = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "uid": format!("00112233-4455-6677-8899-aabbccddee{uid:02x}")},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn engine(node: &str) -> Engine {
    let spec = json!({"volumeName": "v", "nodeID": node, "desireState": "running"});
    object::engine(&read("Engine", "v-e-0", 3, &spec)).unwrap()
}

impl Scene {
    fn new(engine_node: &str) -> Self {
        let volume = object::volume(&read("Volume", "v", 1, &json!({"size": "8192"}))).unwrap();
        let spec = json!({"volumeName": "v", "nodeID": NODE, "diskPath": "/d"});
        let replica = object::replica(&read("Replica", "v-r-1", 2, &spec)).unwrap();
        let own = ReplicaState {
            replica: replica.id,
            volume: VolumeId::from_u128(1),
            dir: "/d".into(),
            used_bytes: None,
            head_bytes: None,
            snapshot_bytes: BTreeMap::new(),
            work: None,
            error: None,
            fault: None,
            grant: None,
        };
        let state = StorageStatus {
            pid: 1,
            listen: None,
            volumes: vec![],
            replicas: vec![own],
            knows_grants: true,
            knows_replica_nodes: true,
            listens_also: None,
            waiting_engines: vec![],
            refused_engines: 0,
        };
        let engines = BTreeMap::from([("v-e-0".to_owned(), engine(engine_node))]);
        Self { volume, replica, engines, state }
    }

    fn with<T>(&self, ask: impl Fn(&StorageWorld<'_>) -> T) -> T {
        let world = StorageWorld {
            node: NODE,
            volumes: &BTreeMap::from([("v".to_owned(), self.volume.clone())]),
            replicas: &BTreeMap::from([("v-r-1".to_owned(), self.replica.clone())]),
            engines: &self.engines,
            snapshots: &BTreeMap::new(),
            tickets: &BTreeMap::new(),
            images: &BTreeMap::new(),
            disks: &BTreeMap::new(),
            state: Some(&self.state),
            sockets: Path::new("/s"),
            address: None,
            under_way: &BTreeSet::new(),
        };
        ask(&world)
    }

    /// The nodes and the generation that are granted anew.
    fn granted(&self) -> Option<(Vec<String>, u64)> {
        let mut changes = self.with(changes);
        let grant = changes.remove(&self.replica.id)?;
        assert!(changes.is_empty());
        Some((grant.nodes.into_iter().collect(), grant.generation.0))
    }

    fn grant(&mut self, nodes: &[&str]) {
        let nodes = nodes.iter().map(|it| (*it).to_owned()).collect();
        self.state.replicas[0].grant = Some(ReplicaGrant { nodes, generation: Generation(0) });
    }

    fn waits(&mut self, node: &str) {
        let (replica, node) = (self.replica.id, node.to_owned());
        self.state.waiting_engines = vec![WaitingEngine { replica, node }];
    }
}

fn nodes(names: &[&str], generation: u64) -> Option<(Vec<String>, u64)> {
    Some((names.iter().map(|it| (*it).to_owned()).collect(), generation))
}

#[test]
fn a_replica_is_granted_to_the_node_of_its_engine() {
    let mut scene = Scene::new("two");
    assert_eq!(scene.granted(), nodes(&["two"], 0));
    scene.grant(&["two"]);
    assert_eq!(scene.granted(), None, "it is so already");
    // Failover: the engine was placed elsewhere.
    scene.engines = BTreeMap::from([("v-e-0".to_owned(), engine("three"))]);
    assert_eq!(scene.granted(), nodes(&["three"], 0));
    // While it is detached no node has access.
    scene.engines = BTreeMap::from([("v-e-0".to_owned(), engine(""))]);
    assert_eq!(scene.granted(), nodes(&[], 0));
    scene.engines.get_mut("v-e-0").unwrap().confirmed = Generation(4);
    assert_eq!(scene.granted(), nodes(&[], 4));
}

#[test]
fn both_nodes_of_a_migration_are_named_until_it_is_over() {
    let mut scene = Scene::new("two");
    scene.volume.migration_node = Some("three".into());
    assert_eq!(scene.granted(), nodes(&["three", "two"], 0));
    scene.engines = BTreeMap::from([("v-e-0".to_owned(), engine("three"))]);
    assert_eq!(scene.granted(), nodes(&["three"], 0));
    scene.volume.migration_node = None;
    assert_eq!(scene.granted(), nodes(&["three"], 0));
}

#[test]
fn grants_stay_while_the_right_ones_are_unknown() {
    let mut scene = Scene::new("two");
    scene.grant(&["two"]);
    scene.engines.clear();
    assert_eq!(scene.granted(), None, "no engine is known");
    let mut scene = Scene::new("two");
    scene.replica.volume = "w".into();
    assert_eq!(scene.granted(), None, "no volume is known");
    let mut scene = Scene::new("two");
    scene.replica.node = "two".into();
    assert_eq!(scene.granted(), None, "another node's replica");
    let mut scene = Scene::new("two");
    scene.state.replicas.clear();
    assert_eq!(scene.granted(), None, "not made yet");
    let mut scene = Scene::new("two");
    scene.state.knows_grants = false;
    assert_eq!(scene.granted(), None, "an older storage process");
}

#[test]
fn a_node_that_waits_and_is_not_named_makes_the_volume_be_read_again() {
    let mut scene = Scene::new("two");
    assert!(scene.with(doubtful).is_empty());
    scene.waits("two");
    assert!(scene.with(doubtful).is_empty(), "its grant is on the way");
    scene.waits("three");
    assert_eq!(scene.with(doubtful), BTreeSet::from(["v".to_owned()]));
    scene.volume.migration_node = Some("three".into());
    assert!(scene.with(doubtful).is_empty());
}
