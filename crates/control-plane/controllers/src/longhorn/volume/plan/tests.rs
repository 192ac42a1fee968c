//! A volume's life in a world of objects, with nodes that do what their spec says.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::longhorn::SNAPSHOTS;
use crate::longhorn::volume::place::tests::storage_node;
use crate::object::text;

/// Objects by kind and name, as the API would hold them.
struct World {
    objects: BTreeMap<(&'static str, String), Value>,
    storage: Vec<Value>,
    now: i64,
    events: Vec<String>,
    made: u32,
    reconciliations: i32,
    /// Nodes whose replicas cannot be opened, and why; all of them, or those that were made first.
    broken: BTreeMap<String, (&'static str, u32)>,
}

impl World {
    fn new(nodes: &[&str], spec: Value) -> Self {
        let volume = json!({
            "metadata": {"name": "v", "uid": "u", "finalizers": ["longhorn.io"]}, "spec": spec,
        });
        let mut world = Self {
            objects: BTreeMap::new(),
            storage: nodes.iter().map(|name| storage_node(name)).collect(),
            now: 0,
            events: Vec::new(),
            made: 0,
            reconciliations: 0,
            broken: BTreeMap::new(),
        };
        world.objects.insert((LONGHORN_VOLUMES.plural, "v".into()), volume);
        world
    }

    fn all(&self, resource: Resource) -> Vec<Value> {
        let own = self.objects.iter().filter(|((kind, _), _)| *kind == resource.plural);
        own.map(|(_, object)| object.clone()).collect()
    }

    fn get(&self, resource: Resource, name: &str) -> Option<&Value> {
        self.objects.get(&(resource.plural, name.to_owned()))
    }

    fn merge(&mut self, resource: Resource, name: &str, patch: &Value) {
        let key = (resource.plural, name.to_owned());
        let Some(object) = self.objects.get_mut(&key) else { return };
        overlay(object, patch);
        let gone =
            object::is_deleting(object) && object::list(object, "/metadata/finalizers").is_empty();
        if gone {
            self.objects.remove(&key);
        }
    }

    /// One reconciliation of the controller.
    fn reconcile(&mut self) -> usize {
        let Some(volume) = self.get(LONGHORN_VOLUMES, "v").cloned() else { return 0 };
        // No two reconciliations happen at the same time.
        self.reconciliations += 1;
        let (replicas, snapshots) = (self.all(REPLICAS), self.all(SNAPSHOTS));
        let places = ReplicaPlacements::new(&self.storage, &[], &[], &volume);
        let seen = VolumeInput {
            volume: &volume,
            engine: self.get(ENGINES, "v-e-0"),
            replicas: &replicas,
            attachment: self.get(ATTACHMENTS, "v"),
            snapshots: &snapshots,
            original: &ResolvedSource::default(),
            places: &places,
            now: Timestamp::new(self.now, self.reconciliations).unwrap(),
        };
        let plan = plan(&seen);
        let count = plan.actions.len();
        for action in plan.actions {
            match action {
                VolumeAction::Create(resource, mut object) => {
                    self.made += 1;
                    object["metadata"]["uid"] = json!(format!("u{}", self.made));
                    self.objects.insert((resource.plural, name(&object).to_owned()), object);
                }
                VolumeAction::Patch(resource, name, patch)
                | VolumeAction::PatchStatus(resource, name, patch) => {
                    self.merge(resource, &name, &patch);
                }
                VolumeAction::Delete(resource, object) => {
                    let going = json!({"metadata": {"deletionTimestamp": "t"}});
                    self.merge(resource, name(&object), &going);
                }
                VolumeAction::Event(_, reason, _) => self.events.push(reason.to_owned()),
            }
        }
        count
    }

    /// The nodes do what is wanted of them.
    fn obey(&mut self) {
        let size = self.get(ENGINES, "v-e-0").map(|own| own["spec"]["volumeSize"].clone());
        for resource in [ENGINES, REPLICAS] {
            for own in self.all(resource) {
                let name = name(&own);
                let node = text(&own, "/spec/nodeID");
                let alive = self.storage.iter().any(|other| {
                    object::name(other) == node && object::list(other, "/spec/taints").is_empty()
                });
                // The last node of an engine reports its state.
                let owner = text(&own, "/status/ownerID");
                if resource == ENGINES && node.is_empty() && owner.starts_with("lost") {
                    continue;
                }
                if node.is_empty() && resource == REPLICAS || !node.is_empty() && !alive {
                    continue;
                }
                if object::is_deleting(&own) {
                    self.merge(resource, name, &json!({"metadata": {"finalizers": []}}));
                    continue;
                }
                let state = text(&own, "/spec/desireState");
                let mut status = json!({"currentState": state});
                if resource == REPLICAS {
                    status["conditions"] = json!([]);
                    if let Some(reason) = self.fault(&own) {
                        status = json!({"currentState": "error", "conditions": [{
                            "type": "InstanceCreation", "status": "False", "reason": reason,
                            "message": "no valid super block",
                        }]});
                    }
                }
                if resource == ENGINES {
                    status["ownerID"] = json!(node);
                }
                if resource == ENGINES && state == "running" {
                    let listed = object::entries(&own, "/spec/replicaAddressMap");
                    let mode = |name: &String| {
                        let fault = self.get(REPLICAS, name).and_then(|it| self.fault(it));
                        json!(if fault.is_some() { "ERR" } else { "RW" })
                    };
                    let mut modes: serde_json::Map<String, Value> =
                        listed.map(|(name, _)| (name.clone(), mode(name))).collect();
                    for (name, _) in object::entries(&own, "/status/replicaModeMap") {
                        modes.entry(name.clone()).or_insert(Value::Null);
                    }
                    status["replicaModeMap"] = modes.into();
                    status["currentSize"] = size.clone().unwrap();
                }
                self.merge(resource, name, &json!({"status": status}));
            }
        }
    }

    /// Why a replica cannot be opened, by its node and by when it was made.
    fn fault(&self, replica: &Value) -> Option<&'static str> {
        let (reason, until) = *self.broken.get(text(replica, "/spec/nodeID"))?;
        let made: u32 = object::uid(replica).trim_start_matches('u').parse().unwrap();
        (made <= until).then_some(reason)
    }

    /// Until no party has anything to do.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..50 {
            let before = format!("{:?}", self.objects);
            self.reconcile();
            self.obey();
            if format!("{:?}", self.objects) == before {
                return self;
            }
        }
        panic!("never at rest: {:#?}", self.objects);
    }

    fn ticket(&mut self, node: Option<&str>) -> &mut Self {
        let ticket = node.map(|node| ticket::ticket("t", "csi-attacher", node));
        self.merge(ATTACHMENTS, "v", &json!({"spec": {"attachmentTickets": {"t": ticket}}}));
        self
    }

    /// `state robustness node; replicas by node; condition`.
    fn summary(&self) -> String {
        let Some(volume) = self.get(LONGHORN_VOLUMES, "v") else { return "gone".into() };
        let part = |field: &str| text(&volume["status"], field).to_owned();
        let mut summary = format!("{} {}", part("/state"), part("/robustness"));
        let mut nodes: Vec<String> = self
            .all(REPLICAS)
            .iter()
            .map(|own| {
                let failed = if text(own, "/spec/failedAt").is_empty() { "" } else { "!" };
                format!("{failed}{}", text(own, "/spec/nodeID"))
            })
            .collect();
        nodes.sort();
        let _ = write!(summary, " on '{}', replicas {nodes:?}", part("/currentNodeID"));
        summary
    }
}

fn overlay(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    object.remove(key);
                } else {
                    overlay(object.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

fn spec(replicas: i64) -> Value {
    json!({"size": "1073741824", "numberOfReplicas": replicas, "frontend": "blockdev",
        "staleReplicaTimeout": 30})
}

#[test]
fn a_volume_is_made_attached_detached_and_removed() {
    let mut world = World::new(&["one"], spec(3));
    assert_eq!(world.settle().summary(), r#"detached unknown on '', replicas ["one"]"#);
    assert_eq!(
        world.ticket(Some("one")).settle().summary(),
        r#"attached healthy on 'one', replicas ["one"]"#,
        "one node with one copy is as healthy as can be"
    );
    let attachment = world.get(ATTACHMENTS, "v").unwrap();
    assert_eq!(attachment["status"]["attachmentTicketStatuses"]["t"]["satisfied"], true);
    assert_eq!(world.get(LONGHORN_VOLUMES, "v").unwrap()["spec"]["nodeID"], "one");
    assert_eq!(world.reconcile(), 0, "a settled volume is left alone");
    assert_eq!(
        world.ticket(None).settle().summary(),
        r#"detached unknown on '', replicas ["one"]"#
    );
    let engine = world.get(ENGINES, "v-e-0").unwrap();
    assert_eq!(
        (&engine["spec"]["nodeID"], &engine["spec"]["replicaAddressMap"]),
        (&json!(""), &json!({}))
    );
    assert_eq!(world.reconcile(), 0);
    assert_eq!(world.events, ["Attached", "Healthy", "Detached"]);
    world.merge(LONGHORN_VOLUMES, "v", &json!({"metadata": {"deletionTimestamp": "t"}}));
    assert_eq!(world.settle().summary(), "gone");
    let left: Vec<_> =
        world.objects.keys().filter(|(kind, _)| *kind != ATTACHMENTS.plural).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_volume_follows_its_machine_without_a_detach() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    let mut moving = ticket::ticket("m", "csi-attacher", "two");
    moving["parameters"][hci::longhorn::MIGRATION_PARAMETER] = json!("true");
    let tickets = |own: Value| json!({"spec": {"attachmentTickets": own}});
    world.merge(ATTACHMENTS, "v", &tickets(json!({"m": moving})));
    world.settle();
    let part = |world: &World, field: &str| {
        world.get(LONGHORN_VOLUMES, "v").unwrap()["spec"][field].clone()
    };
    assert_eq!(part(&world, "migrationNodeID"), "two");
    assert_eq!(world.get(ENGINES, "v-e-0").unwrap()["spec"]["nodeID"], "one");
    let statuses = &world.get(ATTACHMENTS, "v").unwrap()["status"]["attachmentTicketStatuses"];
    assert_eq!(statuses["m"]["satisfied"], true, "it can be read there");
    world.events.clear();
    world.merge(ATTACHMENTS, "v", &tickets(json!({"t": null})));
    world.reconcile();
    let engine = &world.get(ENGINES, "v-e-0").unwrap()["spec"];
    assert_eq!((&engine["nodeID"], &engine["desireState"]), (&json!("two"), &json!("running")));
    world.settle();
    assert_eq!(
        (part(&world, "nodeID"), part(&world, "migrationNodeID")),
        (json!("two"), json!(""))
    );
    assert!(!world.events.contains(&"Detached".to_owned()), "{:?}", world.events);
    // A machine that does not move after all.
    let mut back = moving.clone();
    back["nodeID"] = json!("one");
    world.merge(ATTACHMENTS, "v", &tickets(json!({"b": back})));
    world.settle();
    assert_eq!(part(&world, "migrationNodeID"), "one");
    world.merge(ATTACHMENTS, "v", &tickets(json!({"b": null})));
    world.settle();
    assert_eq!(
        (part(&world, "nodeID"), part(&world, "migrationNodeID")),
        (json!("two"), json!(""))
    );
}

#[test]
fn an_attached_volume_is_removed_although_a_ticket_wants_it() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("two")).settle();
    let snapshot = json!({"metadata": {"name": "s", "finalizers": ["longhorn.io"]}});
    world.objects.insert((SNAPSHOTS.plural, "s".into()), snapshot);
    world.merge(LONGHORN_VOLUMES, "v", &json!({"metadata": {"deletionTimestamp": "t"}}));
    // The removal of a snapshot does not trigger its volume: each pass must do all it can.
    for _ in 0..3 {
        world.reconcile();
        world.obey();
    }
    assert_eq!(world.summary(), "gone");
    for kind in [REPLICAS, ENGINES, SNAPSHOTS] {
        assert!(world.all(kind).is_empty(), "{kind:?}");
    }
}

#[test]
fn without_nodes_a_volume_says_why_and_starts_when_one_comes() {
    let mut world = World::new(&[], spec(2));
    assert_eq!(world.settle().summary(), "detached unknown on '', replicas []");
    let condition = &world.get(LONGHORN_VOLUMES, "v").unwrap()["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Scheduled"), &json!("False")));
    assert_eq!(condition["message"], "nodes are unavailable");
    world.ticket(Some("one"));
    assert!(world.settle().summary().starts_with("attaching"));
    world.storage.push(storage_node("one"));
    assert_eq!(world.settle().summary(), r#"attached healthy on 'one', replicas ["one"]"#);
}

#[test]
fn the_engine_waits_for_all_replicas_it_needs() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one"));
    world.reconcile();
    let desires: Vec<_> =
        world.all(REPLICAS).iter().map(|own| own["spec"]["desireState"].clone()).collect();
    assert_eq!(desires, ["running", "running"]);
    let engine =
        |world: &World| world.get(ENGINES, "v-e-0").unwrap()["spec"]["desireState"].clone();
    assert_eq!(engine(&world), "stopped");
    let first = name(&world.all(REPLICAS)[0]).to_owned();
    world.merge(REPLICAS, &first, &json!({"status": {"currentState": "running"}}));
    world.reconcile();
    assert_eq!(engine(&world), "stopped");
    world.obey();
    world.reconcile();
    assert_eq!(engine(&world), "running");
    let listed = &world.get(ENGINES, "v-e-0").unwrap()["spec"]["replicaAddressMap"];
    assert_eq!(listed.as_object().unwrap().len(), 2);
}

#[test]
fn more_copies_are_made_when_nodes_join() {
    let mut world = World::new(&["one"], spec(3));
    world.settle().ticket(Some("one")).settle();
    world.storage.push(storage_node("two"));
    assert_eq!(world.settle().summary(), r#"attached healthy on 'one', replicas ["one", "two"]"#);
    world.storage.push(storage_node("three"));
    world.storage.push(storage_node("four"));
    let summary = world.settle().summary();
    assert_eq!(summary.matches('"').count(), 6, "{summary}");
    assert!(world.events.contains(&"Degraded".to_owned()));
}

#[test]
fn a_lost_copy_is_replaced_and_the_last_one_kept() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    // The node goes for good.
    world.storage.remove(1);
    let lost = world.all(REPLICAS).into_iter().find(|own| own["spec"]["nodeID"] == "two").unwrap();
    let modes = json!({"status": {"replicaModeMap": {name(&lost): "ERR"}}});
    world.merge(ENGINES, "v-e-0", &modes);
    world.reconcile();
    let summary = world.summary();
    assert!(summary.contains("!two"), "{summary}");
    world.reconcile();
    let engine = world.get(ENGINES, "v-e-0").unwrap();
    assert_eq!(engine["spec"]["replicaAddressMap"].as_object().unwrap().len(), 1);
    world.storage.push(storage_node("three"));
    world.now = 10;
    let summary = world.settle().summary();
    assert_eq!(summary, r#"attached healthy on 'one', replicas ["one", "three"]"#);

    let all = world.all(REPLICAS);
    let modes: serde_json::Map<String, Value> =
        all.iter().map(|own| (name(own).to_owned(), json!("ERR"))).collect();
    world.merge(ENGINES, "v-e-0", &json!({"status": {"replicaModeMap": modes}}));
    world.reconcile();
    let summary = world.summary();
    assert_eq!(
        summary, r#"attached faulted on 'one', replicas ["one", "three"]"#,
        "none is given up"
    );
}

#[test]
fn a_volume_grows_at_work_and_at_rest() {
    let mut world = World::new(&["one"], spec(1));
    world.settle();
    world.merge(LONGHORN_VOLUMES, "v", &json!({"spec": {"size": "2147483648"}}));
    world.reconcile();
    let tickets = world.get(ATTACHMENTS, "v").unwrap()["spec"]["attachmentTickets"].clone();
    assert!(tickets.get("volume-expansion-controller-v").is_some(), "{tickets}");
    assert_eq!(world.get(LONGHORN_VOLUMES, "v").unwrap()["status"]["expansionRequired"], true);
    assert_eq!(world.settle().summary(), r#"detached unknown on '', replicas ["one"]"#);
    assert_eq!(world.all(REPLICAS)[0]["spec"]["volumeSize"], "2147483648");
    assert_eq!(world.get(LONGHORN_VOLUMES, "v").unwrap()["status"]["expansionRequired"], false);
    let tickets = &world.get(ATTACHMENTS, "v").unwrap()["spec"]["attachmentTickets"];
    assert_eq!(tickets, &json!({}));

    world.ticket(Some("one")).settle();
    world.merge(LONGHORN_VOLUMES, "v", &json!({"spec": {"size": "3221225472"}}));
    assert_eq!(world.settle().summary(), r#"attached healthy on 'one', replicas ["one"]"#);
    assert_eq!(world.get(ENGINES, "v-e-0").unwrap()["spec"]["volumeSize"], "3221225472");
}

#[test]
fn a_disk_is_emptied_while_the_volume_is_used() {
    let mut world = World::new(&["one", "two"], spec(1));
    world.settle().ticket(Some("one")).settle();
    let own = world.all(REPLICAS).remove(0);
    let from = text(&own, "/spec/nodeID").to_owned();
    world.merge(REPLICAS, name(&own), &json!({"spec": {"evictionRequested": true}}));
    let summary = world.settle().summary();
    let other = if from == "one" { "two" } else { "one" };
    assert_eq!(summary, format!("attached healthy on 'one', replicas [\"{other}\"]"));
}

#[test]
fn a_wish_to_be_elsewhere_moves_the_volume() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    let summary = world.ticket(Some("two")).settle().summary();
    assert_eq!(summary, r#"attached healthy on 'two', replicas ["one", "two"]"#);
}

#[test]
fn a_volume_leaves_a_node_that_is_gone_for_good() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    world.storage.remove(0);
    let summary = world.settle().summary();
    assert!(summary.starts_with("detached"), "{summary}");
    let summary = world.ticket(Some("two")).settle().summary();
    assert!(summary.starts_with("attached healthy on 'two'"), "{summary}");
}

#[test]
fn a_volume_leaves_a_lost_node_only_for_a_machine_elsewhere() {
    let mut world = World::new(&["lost", "two"], spec(2));
    world.settle().ticket(Some("lost")).settle();
    world.storage[0]["spec"]["taints"] = json!([{"key": "sheaf.io/lost"}]);
    let summary = world.settle().summary();
    assert!(summary.starts_with("attached unknown on 'lost'"), "its machine may run on: {summary}");
    let moved = ticket::ticket("vmi-2", "csi-attacher", "two");
    world.merge(ATTACHMENTS, "v", &json!({"spec": {"attachmentTickets": {"vmi-2": moved}}}));
    let summary = world.settle().summary();
    assert_eq!(summary, r#"attached degraded on 'two', replicas ["!lost", "two"]"#);
    let attachment = world.get(ATTACHMENTS, "v").unwrap();
    assert_eq!(attachment["spec"]["attachmentTickets"].get("t"), None);
    // It is back, and its replica is built up again instead of a new one elsewhere.
    world.storage[0]["spec"]["taints"] = json!([]);
    let summary = world.settle().summary();
    assert_eq!(summary, r#"attached healthy on 'two', replicas ["lost", "two"]"#);
}

#[test]
fn a_source_that_cannot_be_read_makes_no_empty_volume() {
    let mut spec = spec(1);
    spec["dataSource"] = json!("something");
    let mut world = World::new(&["one"], spec);
    assert_eq!(world.settle().summary(), "detached unknown on '', replicas []");
    assert_eq!(
        world.get(LONGHORN_VOLUMES, "v").unwrap()["status"]["cloneStatus"]["state"],
        "failed"
    );
    assert_eq!(world.events, ["VolumeCloneFailed"]);
}

#[test]
fn a_damaged_replica_of_an_attached_volume_is_replaced_and_then_removed() {
    let mut world = World::new(&["one", "two", "three"], spec(3));
    world.settle().ticket(Some("one")).settle();
    world.broken.insert("two".into(), ("ReplicaDamaged", world.made));
    let summary = world.settle().summary();
    assert_eq!(summary, r#"attached healthy on 'one', replicas ["one", "three", "two"]"#);
    assert_eq!(world.events.iter().filter(|it| *it == "ReplicaReplaced").count(), 1);
    let made = world.all(REPLICAS);
    let new = made.iter().find(|own| text(own, "/spec/nodeID") == "two").unwrap();
    assert!(object::annotation(new, "sheaf.io/replaces").is_some_and(|old| old != name(new)));
    assert_eq!(new["spec"]["rebuildRetryCount"], 0, "it is in sync");
}

#[test]
fn a_disk_that_damages_every_replica_gets_new_ones_with_growing_pauses() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    world.broken.insert("two".into(), ("ReplicaDamaged", u32::MAX));
    let before = world.made;
    for second in 0..3600 {
        world.now = second;
        world.settle();
    }
    let made = world.made - before;
    assert!((4..=9).contains(&made), "{made} in an hour");
    let summary = world.summary();
    assert!(summary.starts_with("attached degraded"), "{summary}");
    assert!(world.all(REPLICAS).len() <= 4, "replicas never in sync do not pile up: {summary}");
    // Another disk.
    world.broken.clear();
    world.now += 3600;
    let summary = world.settle().summary();
    assert_eq!(summary, r#"attached healthy on 'one', replicas ["one", "two"]"#);
}

#[test]
fn the_damaged_replica_without_which_there_is_no_copy_stays() {
    let mut world = World::new(&["one", "two"], spec(2));
    world.settle().ticket(Some("one")).settle();
    for node in ["one", "two"] {
        world.broken.insert(node.into(), ("ReplicaDamaged", world.made));
    }
    for second in [0, 3600, 360_000] {
        world.now = second;
        world.settle();
        assert_eq!(world.all(REPLICAS).len(), 2, "{}", world.summary());
    }
}
