//! Tables of what is done about which state.

use block::ids::{Epoch, Generation, ReplicaId, SnapshotId};
use block::run::{MemberState, MemberStatus, VolumeStatus};
use block::storage::{BaseOf, ReplicaAt, ReplicaState};
use block::wire::SnapshotInfo;
use serde_json::{Value, json};

use super::*;

mod addresses;

const UID: &str = "00112233-4455-6677-8899-aabbccddee";

/// Objects and a storage process, to be changed by each case.
struct Scene {
    volumes: BTreeMap<String, LonghornVolume>,
    replicas: BTreeMap<String, Replica>,
    engines: BTreeMap<String, Engine>,
    snapshots: BTreeMap<String, Snapshot>,
    tickets: BTreeMap<String, BTreeSet<String>>,
    images: BTreeMap<String, ImageLocations>,
    disks: BTreeMap<String, PathBuf>,
    state: Option<StorageStatus>,
    address: Option<IpAddr>,
    under_way: BTreeSet<JobKey>,
}

fn id(last: u8) -> String {
    format!("{UID}{last:02x}")
}

fn object(kind: &str, name: &str, uid: u8, spec: Value) -> kube::api::DynamicObject {
    let object = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "uid": id(uid), "finalizers": ["longhorn.io"]},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

impl Scene {
    /// A volume with one replica here, and an engine that is wanted here.
    fn new() -> Self {
        let volume = object("Volume", "v", 1, json!({"size": "8192"}));
        let replica = object(
            "Replica",
            "v-r-1",
            2,
            json!({
                "volumeName": "v", "volumeSize": "8192", "nodeID": "one", "diskPath": "/disk",
                "dataDirectoryName": "v-1", "desireState": "running",
            }),
        );
        let engine = object(
            "Engine",
            "v-e-0",
            3,
            json!({
                "volumeName": "v", "volumeSize": "8192", "nodeID": "one", "desireState": "running",
                "replicaAddressMap": {"v-r-1": ""},
            }),
        );
        let volume = super::super::object::volume(&volume).unwrap();
        let replica = super::super::object::replica(&replica).unwrap();
        let engine = super::super::object::engine(&engine).unwrap();
        Self {
            volumes: BTreeMap::from([("v".to_owned(), volume)]),
            replicas: BTreeMap::from([("v-r-1".to_owned(), replica)]),
            engines: BTreeMap::from([("v-e-0".to_owned(), engine)]),
            snapshots: BTreeMap::new(),
            tickets: BTreeMap::new(),
            images: BTreeMap::new(),
            disks: BTreeMap::new(),
            state: Some(StorageStatus {
                pid: 1,
                listen: None,
                volumes: vec![],
                replicas: vec![],
                knows_grants: false,
                knows_replica_nodes: false,
                listens_also: None,
                waiting_engines: vec![],
                refused_engines: 0,
            }),
            address: None,
            under_way: BTreeSet::new(),
        }
    }

    /// The same, and all of it is as it is wanted.
    fn settled() -> Self {
        let mut scene = Self::new();
        scene.serve_replica();
        let Some(StorageAction::Attach { attachment, .. }) = scene.plan().pop() else { panic!() };
        let replica = scene.replica().id;
        let member = MemberStatus {
            id: replica,
            state: MemberState::InSync,
            rebuilt_bytes: None,
            rebuild_bytes: None,
            latency_micros: 0,
            address: None,
            free_bytes: 0,
            used_bytes: 0,
            work: None,
            reason: None,
        };
        let status = VolumeStatus {
            phase: "active".into(),
            generation: Generation(1),
            epoch: Epoch(1),
            size: 8192,
            replicas: vec![member],
            unreconciled: 0,
            unproven: false,
            disputed: vec![],
            lost: vec![],
            scrubbed_bytes: None,
            last_scrub: None,
            waiting: None,
            snapshots: vec![],
        };
        let served = VolumeState { attachment, status: Some(status), error: None };
        scene.state().volumes.push(served);
        scene
    }

    fn state(&mut self) -> &mut StorageStatus {
        self.state.as_mut().unwrap()
    }

    fn replica(&mut self) -> &mut Replica {
        self.replicas.get_mut("v-r-1").unwrap()
    }

    fn engine(&mut self) -> &mut Engine {
        self.engines.get_mut("v-e-0").unwrap()
    }

    fn serve_replica(&mut self) {
        let replica = self.replica().clone();
        let volume = self.volumes["v"].id;
        self.state().replicas.push(ReplicaState {
            replica: replica.id,
            volume,
            dir: replica.dir,
            used_bytes: None,
            head_bytes: None,
            snapshot_bytes: BTreeMap::new(),
            work: None,
            error: None,
            fault: None,
            grant: None,
        });
    }

    fn snapshot(&mut self) -> &mut Snapshot {
        let snapshot = object("Snapshot", "s", 4, json!({"volume": "v", "createSnapshot": true}));
        let snapshot = super::super::object::snapshot(&snapshot).unwrap();
        self.snapshots.entry("s".into()).or_insert(snapshot)
    }

    fn plan(&self) -> Vec<StorageAction> {
        plan(&self.world())
    }

    fn world(&self) -> StorageWorld<'_> {
        StorageWorld {
            node: "one",
            volumes: &self.volumes,
            replicas: &self.replicas,
            engines: &self.engines,
            snapshots: &self.snapshots,
            tickets: &self.tickets,
            images: &self.images,
            disks: &self.disks,
            state: self.state.as_ref(),
            sockets: Path::new("/s"),
            address: self.address,
            under_way: &self.under_way,
        }
    }

    /// Checks the planned actions, by their first words.
    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let done: Vec<String> = self.plan().iter().map(|it| format!("{it:?}")).collect();
        let words: Vec<&str> = done.iter().map(|it| it.split(' ').next().unwrap()).collect();
        assert_eq!(words, expected, "{done:?}");
    }
}

#[test]
fn a_replica_is_made_then_the_volume_attached_then_nothing_is_left_to_do() {
    let mut scene = Scene::new();
    scene.check(&["MakeReplica"]);
    scene.under_way.insert(JobKey::Replica("v-r-1".into()));
    scene.check(&[]);
    scene.under_way.clear();
    scene.serve_replica();
    scene.check(&["Attach"]);
    Scene::settled().check(&[]);
    let mut without = Scene::new();
    without.state = None;
    without.check(&[]);
}

#[test]
fn a_replica_that_held_data_is_not_made_anew() {
    let mut scene = Scene::new();
    let new = |scene: &Scene| match scene.plan().remove(0) {
        StorageAction::MakeReplica { new, .. } => new,
        other => panic!("{other:?}"),
    };
    assert!(!new(&scene).existing);
    scene.replica().was_made = true;
    assert!(new(&scene).existing);
    scene.volumes.get_mut("v").unwrap().is_encrypted = true;
    assert_eq!(new(&scene).size, 8192 + block::crypt::HEADER);
    scene.replica().node = "two".into();
    scene.check(&[]);
}

#[test]
fn a_clone_lies_on_the_snapshot_that_is_named() {
    let mut scene = Scene::new();
    let source = super::super::object::DataSource { volume: "w".into(), snapshot: None };
    scene.volumes.get_mut("v").unwrap().source = Some(source);
    scene.check(&[]);
    let source = scene.volumes.get_mut("v").unwrap().source.as_mut().unwrap();
    source.snapshot = Some("s".into());
    scene.check(&[]);
    for (name, node, last) in [("w-r-1", "two", 7), ("w-r-2", "one", 8)] {
        let mut other = scene.replica().clone();
        (other.name, other.volume, other.node) = (name.into(), "w".into(), node.into());
        other.id = ReplicaId::from_u128(last);
        scene.replicas.insert(name.into(), other);
    }
    let base = scene.plan().into_iter().find_map(|action| match action {
        StorageAction::MakeReplica { replica, new } if replica == "v-r-1" => new.base,
        _ => None,
    });
    let replica = ReplicaId::from_u128(8);
    assert_eq!(base, Some(BaseOf::Snapshot { replica, snapshot: "s".into() }));
}

#[test]
fn a_volume_of_an_image_waits_for_it_and_lies_on_it() {
    let mut scene = Scene::new();
    scene.volumes.get_mut("v").unwrap().image = Some("i".into());
    scene.check(&[]);
    let mut image = object("BackingImage", "i", 7, json!({"sourceType": "upload"}));
    scene.images.insert("i".into(), ImageLocations::of(&image).unwrap());
    scene.check(&[]);
    image.data["status"] = json!({"diskFileStatusMap": {"d": {"state": "ready"}}});
    scene.images.insert("i".into(), ImageLocations::of(&image).unwrap());
    let base = |scene: &Scene| match scene.plan().pop() {
        Some(StorageAction::MakeReplica { new, .. }) => new.base,
        other => panic!("{other:?}"),
    };
    assert_eq!(base(&scene), None, "another node has it, and this one is built up from there");
    scene.disks.insert("d".into(), "/srv".into());
    let path = "/srv/backing-images/i-00112233/backing".into();
    assert_eq!(base(&scene), Some(BaseOf::Image { path }));
    scene.serve_replica();
    let Some(StorageAction::Attach { first, .. }) = scene.plan().pop() else { panic!() };
    assert_eq!(first.len(), 1, "it has everything");
}

#[test]
fn changes_of_a_served_volume_are_applied() {
    let mut grown = Scene::settled();
    grown.engine().size = 16384;
    grown.check(&["Expand"]);
    let mut with_two = Scene::settled();
    let mut second = with_two.replica().clone();
    (second.name, second.node) = ("v-r-2".into(), "two".into());
    second.id = ReplicaId::from_u128(9);
    with_two.replicas.insert("v-r-2".into(), second);
    let map = &mut with_two.engine().replicas;
    map.insert("v-r-2".into(), "10.0.0.2:9000/x".into());
    with_two.check(&["AddMember"]);
    let mut without = Scene::settled();
    without.engine().replicas = BTreeMap::from([("v-r-3".into(), String::new())]);
    let mut third = without.replica().clone();
    (third.name, third.id) = ("v-r-3".into(), ReplicaId::from_u128(9));
    without.replicas.insert("v-r-3".into(), third);
    without.state().volumes[0].attachment.replicas.push(ReplicaAt {
        id: ReplicaId::from_u128(9),
        at: None,
        node: None,
    });
    without.check(&["MakeReplica", "DropMember"]);
    let mut broken = Scene::settled();
    broken.state().volumes[0].status = None;
    broken.check(&[]);
    broken.state().volumes[0].error = Some("it was fenced".into());
    broken.check(&["Attach"]);
}

#[test]
fn a_replica_that_is_lost_does_not_keep_the_others_from_being_attached() {
    let mut scene = Scene::settled();
    scene.state().volumes.clear();
    scene.replica().was_healthy = true;
    scene.replica().was_made = true;
    scene.state().replicas[0].error = Some("there is no replica in /r any more".into());
    scene.check(&["MakeReplica"]);
    let mut second = scene.replica().clone();
    (second.name, second.node) = ("v-r-2".into(), "other".into());
    second.id = ReplicaId::from_u128(9);
    scene.replicas.insert("v-r-2".into(), second);
    scene.engine().replicas.insert("v-r-2".into(), "10.0.0.2:9000/x".into());
    scene.check(&["MakeReplica", "Attach"]);
    // An empty volume has all its replicas from the start.
    scene.replicas.values_mut().for_each(|it| it.was_healthy = false);
    scene.check(&["MakeReplica"]);
}

#[test]
fn a_volume_is_released_before_its_objects_and_its_files() {
    let mut scene = Scene::settled();
    scene.engine().is_wanted = false;
    scene.check(&["Detach"]);
    let mut scene = Scene::settled();
    scene.engine().is_deleting = true;
    scene.replica().is_deleting = true;
    scene.check(&["Detach"]);
    scene.state().volumes.clear();
    scene.check(&["RemoveReplica", "ReleaseEngine"]);
    scene.engine().holds_finalizer = false;
    scene.replica().holds_finalizer = false;
    scene.check(&[]);
    let mut lost = Scene::settled();
    lost.engines.clear();
    lost.check(&["Detach"]);
}

/// A volume that is served by `two` and moves here with its machine.
fn arriving() -> Scene {
    let mut scene = Scene::new();
    scene.serve_replica();
    scene.engine().node = "two".into();
    scene.volumes.get_mut("v").unwrap().migration_node = Some("one".into());
    scene
}

#[test]
fn a_volume_that_moves_here_stands_by_and_is_not_claimed_twice() {
    let mut scene = arriving();
    let Some(StorageAction::Attach { attachment, is_new, .. }) = scene.plan().pop() else {
        panic!("{:?}", scene.plan())
    };
    assert!(attachment.standby && !is_new);
    let mut served = Scene::settled().state().volumes[0].clone();
    served.attachment = attachment;
    scene.state().volumes.push(served);
    scene.check(&[]);
    // Its engine gave up before the switch: once more. After the switch: never again.
    scene.state().volumes[0].error = Some("gone".into());
    scene.check(&["Attach"]);
    scene.state().volumes[0].attachment.standby = false;
    scene.check(&[]);
    // The machine does not come after all.
    scene.volumes.get_mut("v").unwrap().migration_node = None;
    scene.check(&["Detach"]);
    assert!(matches!(&scene.plan()[0], StorageAction::Detach { engine: None, .. }));
}

#[test]
fn a_volume_that_moved_is_recorded_as_this_nodes() {
    let mut scene = Scene::settled();
    scene.engine().attached = Some("two".into());
    scene.check(&["OwnRecord"]);
    scene.engine().attached = Some("one".into());
    scene.check(&[]);
    // Another node may claim it only while a machine moves there.
    scene.engine().claimant = Some("two".into());
    scene.check(&["OwnRecord"]);
    scene.volumes.get_mut("v").unwrap().migration_node = Some("two".into());
    scene.check(&[]);
    // It was handed over without its machine.
    scene.engine().claimant = None;
    scene.state().volumes[0].attachment.standby = true;
    scene.check(&["TakeOver"]);
}

#[test]
fn a_volume_that_is_claimed_elsewhere_for_its_machine_is_left_alone() {
    let mut scene = Scene::settled();
    scene.volumes.get_mut("v").unwrap().migration_node = Some("two".into());
    scene.state().volumes[0].error = Some("another engine took it".into());
    scene.check(&[]);
    // The migration failed: it is claimed again.
    scene.volumes.get_mut("v").unwrap().migration_node = None;
    scene.check(&["Attach"]);
    // It succeeded.
    scene.engine().node = "two".into();
    scene.check(&["Detach"]);
}

#[test]
fn volumes_without_an_object_are_left_alone() {
    let mut scene = Scene::settled();
    let mut own = scene.state().volumes[0].clone();
    own.attachment.volume = VolumeId::from_u128(99);
    own.attachment.record = RecordPlace::File;
    scene.state().volumes.push(own);
    scene.check(&[]);
}

const INSTANT: &str = "5f0c9d3a-1b2c-4d5e-8f90-112233445566";

#[test]
fn a_volume_of_another_machine_is_not_captured_with_the_guest() {
    let mut scene = Scene::settled();
    let group = |machine: &str, memory: bool| hci::together::SnapshotGroup {
        instant: INSTANT.into(),
        count: 1,
        namespace: "victim".into(),
        machine: machine.into(),
        memory,
    };
    scene.snapshot().together = Some(group("db", true));
    for (ticket, expected) in
        [("vmi-own", false), ("vmi-u2", false), ("vmi-u", true), ("vmi-u-migration", true)]
    {
        scene.tickets.insert("v".into(), BTreeSet::from([ticket.to_owned()]));
        let Some(StorageAction::TakeTogether { instant }) = scene.plan().pop() else { panic!() };
        assert_eq!(instant.is_of("u"), expected, "{ticket}");
    }
    // Another machine for the same instant is another group, and no memory belongs to it.
    let mut other = scene.snapshot().clone();
    (other.name, other.together) = ("t".into(), Some(group("web", true)));
    scene.snapshots.insert("t".into(), other);
    scene.check(&["TakeTogether", "TakeTogether"]);
    let kept = group_snapshot::with_memory(&scene.snapshots);
    assert_eq!(kept, BTreeMap::from([(INSTANT.to_owned(), None)]));
}

#[test]
fn volumes_of_a_machine_are_captured_together_or_not_at_all() {
    let mut scene = Scene::settled();
    let together = hci::together::SnapshotGroup {
        instant: INSTANT.into(),
        count: 2,
        namespace: "n".into(),
        machine: "m".into(),
        memory: false,
    };
    scene.snapshot().together = Some(together);
    scene.check(&["TakeSnapshot"]);
    scene.tickets.insert("v".into(), BTreeSet::from(["vmi-u".to_owned()]));
    scene.check(&[]);
    let mut other = scene.snapshot().clone();
    other.name = "t".into();
    scene.snapshots.insert("t".into(), other);
    scene.check(&["TakeTogether"]);
    let Some(StorageAction::TakeTogether { instant }) = scene.plan().pop() else { panic!() };
    assert_eq!(instant.torn(scene.state.as_ref().unwrap()), Some(vec![]));
    assert!(instant.is_of("u") && !instant.is_of("") && !instant.is_of("v"));
    let info = SnapshotInfo {
        id: SnapshotId::from_u128(1),
        name: "s".into(),
        parent: None,
        created: "1".into(),
        labels: BTreeMap::new(),
    };
    let taken = |scene: &mut Scene, name: &str| {
        let info = SnapshotInfo { name: name.into(), ..info.clone() };
        scene.state().volumes[0].status.as_mut().unwrap().snapshots.push(info);
    };
    taken(&mut scene, "s");
    scene.check(&["TakeTogether"]);
    let torn = instant.torn(scene.state.as_ref().unwrap()).unwrap();
    assert_eq!(torn.iter().map(|it| it.snapshot.as_str()).collect::<Vec<_>>(), ["s"]);
    assert!(group_snapshot::is_torn(&scene.world(), &scene.snapshots["s"]));
    taken(&mut scene, "t");
    scene.check(&[]);
    assert_eq!(instant.torn(scene.state.as_ref().unwrap()), None);
    assert!(!group_snapshot::is_torn(&scene.world(), &scene.snapshots["s"]));
}

#[test]
fn snapshots_are_taken_once_and_deleted_with_their_objects() {
    let mut scene = Scene::settled();
    scene.snapshot();
    scene.check(&["TakeSnapshot"]);
    let info = SnapshotInfo {
        id: SnapshotId::from_u128(1),
        name: "s".into(),
        parent: None,
        created: "1".into(),
        labels: BTreeMap::new(),
    };
    scene.state().volumes[0].status.as_mut().unwrap().snapshots.push(info);
    scene.check(&[]);
    scene.snapshot().is_deleting = true;
    scene.check(&["DeleteSnapshot"]);
    scene.state().volumes[0].status.as_mut().unwrap().snapshots.clear();
    scene.check(&["ReleaseSnapshot"]);
    // One that was there and is gone is not taken again: it would be of another moment.
    scene.snapshot().is_deleting = false;
    scene.snapshot().status = json!({"creationTime": "2026-01-01T00:00:00Z"});
    scene.check(&[]);
    scene.engine().is_wanted = false;
    scene.state().volumes.clear();
    scene.snapshot().is_deleting = true;
    scene.check(&[]);
    scene.volumes.clear();
    scene.check(&["ReleaseSnapshot"]);
}
