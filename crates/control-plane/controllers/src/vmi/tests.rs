//! Placing instances on the small server.

use serde_json::{Value, json};

use super::plan::FINALIZER;
use super::*;
use crate::fake::Fake;
use crate::object::list;
use crate::reconcile::EventMapper;

const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";
const CLAIM: &str = "/persistentvolumeclaims";

fn node(memory: &str) -> Value {
    json!({"metadata": {"name": "one"},
        "status": {"allocatable": {"cpu": "4", "memory": memory, "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn vmi(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["domain"] = json!({"memory": {"guest": "1Gi"}});
    json!({"metadata": {"name": name, "labels": {"app": "a"}, "finalizers": [FINALIZER]},
        "spec": spec, "status": {"phase": "Pending",
            "phaseTransitionTimestamps": [{"phase": "Pending"}]}})
}

struct World {
    fake: Fake,
    placer: VmiReconciler,
}

impl World {
    fn new(memory: &str) -> Self {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        fake.create("/nodes", "", node(memory));
        let placer = VmiReconciler::new(fake.client(), WaitingInstances::default());
        Self { fake, placer }
    }

    fn create(&self, name: &str, spec: Value) {
        self.fake.create(INSTANCES, "n", vmi(name, spec));
    }

    /// Reconciles an instance once.
    async fn reconcile(&self, name: &str) -> ReconcileResult {
        let work = VmiKey::Instance(ObjectKey::new("n", name));
        self.placer.reconcile(&work).await.unwrap()
    }

    fn get(&self, name: &str) -> Value {
        self.fake.get(INSTANCES, "n", name).unwrap()
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.fake.get("/pods", "n", &launcher::pod_name(&self.get(name)))
    }

    fn phase(&self, name: &str) -> String {
        text(&self.get(name), "/status/phase").to_owned()
    }
}

fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]})
}

#[tokio::test]
async fn an_instance_is_handed_over_to_a_node() {
    let world = World::new("4Gi");
    world.create("v", json!({}));
    world.reconcile("v").await;
    let vmi = world.get("v");
    assert_eq!(
        (world.phase("v").as_str(), &vmi["status"]["nodeName"]),
        ("Scheduled", &json!("one"))
    );
    assert_eq!(vmi["metadata"]["labels"], json!({"app": "a", "kubevirt.io/nodeName": "one"}));
    let pod = world.pod("v").unwrap();
    assert_eq!(vmi["status"]["activePods"], json!({object::uid(&pod): "one"}));
    assert_eq!(pod["spec"]["nodeName"], "one");
    assert!(world.fake.any("/events", |event| event["reason"] == "SuccessfulCreate"));
}

#[tokio::test]
async fn the_last_place_is_given_once_and_again_when_it_is_free() {
    let world = World::new("2Gi");
    for name in ["a", "b"] {
        world.create(name, json!({}));
        world.reconcile(name).await;
    }
    assert_eq!((world.phase("a"), world.phase("b")), ("Scheduled".into(), "Scheduling".into()));
    let message = "0/1 nodes are available: 1 Insufficient memory.";
    let conditions = condition(&world.get("b"), "PodScheduled");
    assert_eq!(conditions["message"], message);
    let mut waiting = world.placer.waiting.clone();
    let woken =
        waiting.keys(&crate::fake::touch("nodes", "", "one", crate::reconcile::ObjectState::Live));
    assert!(woken.contains(&VmiKey::Instance(ObjectKey::new("n", "b"))));
    world.fake.merge(INSTANCES, "n", "a", &json!({"status": {"phase": "Succeeded"}}));
    world.reconcile("a").await;
    world.reconcile("b").await;
    assert_eq!(world.phase("b"), "Scheduled");
    assert!(condition(&world.get("b"), "PodScheduled").is_null());
}

fn condition(vmi: &Value, kind: &str) -> Value {
    crate::condition::find(list(vmi, "/status/conditions"), kind).cloned().unwrap_or_default()
}

#[tokio::test]
async fn an_instance_waits_for_its_claim_to_appear_and_to_be_bound() {
    let world = World::new("4Gi");
    let class = json!({"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"});
    world.fake.create("storage.k8s.io/storageclasses", "", class);
    world.create("v", with_claim("c"));
    world.reconcile("v").await;
    assert_eq!(condition(&world.get("v"), "Synchronized")["reason"], "FailedPvcNotFound");
    assert_eq!(
        world.placer.waiting.storage.of(&ObjectKey::new("n", "c")),
        [ObjectKey::new("n", "v")]
    );

    let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "local"},
        "status": {"phase": "Pending"}});
    world.fake.create(CLAIM, "n", claim);
    world.reconcile("v").await;
    let claim = world.fake.get(CLAIM, "n", "c").unwrap();
    assert_eq!(claim["metadata"]["annotations"], json!({storage::SELECTED_NODE: "one"}));
    assert_eq!(world.phase("v"), "Pending");
    assert_eq!(condition(&world.get("v"), "Provisioning")["status"], "True");

    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["one"]}]}]}});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": affinity}});
    world.fake.create("/persistentvolumes", "", volume);
    let bound = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
    world.fake.merge(CLAIM, "n", "c", &bound);
    world.fake.bind("n", "c", "pv");
    world.reconcile("v").await;
    assert_eq!(world.phase("v"), "Scheduled");
    assert!(condition(&world.get("v"), "Provisioning").is_null());
}

#[tokio::test]
async fn an_instance_whose_data_volume_failed_has_failed() {
    let world = World::new("4Gi");
    let volume = json!({"metadata": {"name": "d"}, "status": {"phase": "Failed"}});
    world.fake.create("cdi.kubevirt.io/datavolumes", "n", volume);
    world.create("v", json!({"volumes": [{"name": "root", "dataVolume": {"name": "d"}}]}));
    world.reconcile("v").await;
    assert_eq!(world.phase("v"), "Failed");
}

#[tokio::test]
async fn an_instance_that_is_deleted_before_it_has_a_node_goes_at_once() {
    let world = World::new("4Gi");
    world.create("v", with_claim("never"));
    world.reconcile("v").await;
    world.fake.delete(INSTANCES, "n", "v", "Background");
    world.reconcile("v").await;
    assert!(world.fake.get(INSTANCES, "n", "v").is_none());
}

#[tokio::test]
async fn the_pod_shows_what_the_instance_is() {
    let world = World::new("4Gi");
    world.create("v", json!({}));
    world.reconcile("v").await;
    let running = json!({"status": {"phase": "Running", "interfaces": [{"ipAddress": "10.52.0.2"}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    world.fake.merge(INSTANCES, "n", "v", &running);
    world.reconcile("v").await;
    let pod = world.pod("v").unwrap();
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["podIP"]),
        (&json!("Running"), &json!("10.52.0.2"))
    );
    assert_eq!(pod["status"]["hostIP"], "10.0.0.1");
    world.reconcile("v").await;
    let again = world.pod("v").unwrap();
    assert_eq!(again["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"]);
}

/// An instance that runs, and its pod.
async fn running(world: &World, name: &str) -> Value {
    world.create(name, json!({}));
    world.reconcile(name).await;
    world.fake.merge(INSTANCES, "n", name, &json!({"status": {"phase": "Running"}}));
    world.reconcile(name).await;
    world.pod(name).unwrap()
}

/// Marks a pod as the API server does when it is given time to end.
fn delete_gracefully(world: &World, pod: &Value) {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z",
        "deletionGracePeriodSeconds": 30, "finalizers": ["held/by-the-test"]}});
    world.fake.merge("/pods", "n", object::name(pod), &deleted);
}

#[tokio::test]
async fn a_deleted_pod_goes_when_its_guest_is_down() {
    let world = World::new("4Gi");
    let pod = running(&world, "v").await;
    delete_gracefully(&world, &pod);
    let work = VmiKey::Pod(ObjectKey::new("n", object::name(&pod)));
    world.placer.reconcile(&work).await.unwrap();
    let vmi = world.get("v");
    assert_eq!(object::annotation(&vmi, virt::SHUT_DOWN_BY), Some("2026-01-01T00:00:30Z"));
    assert!(!removes_pods(&world.fake), "kubectl drain waits for the guest");
    let events =
        |fake: &Fake| fake.names("/events").iter().filter(|name| name.starts_with("v.")).count();
    let before = events(&world.fake);
    world.placer.reconcile(&work).await.unwrap();
    world.reconcile("v").await;
    assert_eq!(events(&world.fake), before, "asked once");
    world.fake.merge(INSTANCES, "n", "v", &json!({"status": {"phase": "Failed"}}));
    world.reconcile("v").await;
    assert_eq!(world.pod("v").unwrap()["status"]["phase"], "Failed");
    assert!(removes_pods(&world.fake));
}

fn removes_pods(fake: &Fake) -> bool {
    let writes = fake.writes();
    writes.iter().any(|(method, resource, ..)| method == "DELETE" && resource == "/pods")
}

#[tokio::test]
async fn a_pod_deleted_by_force_ends_its_instance_and_is_not_made_again() {
    // The name of the second is cut off in that of its pod.
    for name in ["v", &"v".repeat(63)] {
        let world = World::new("4Gi");
        let pod = running(&world, name).await;
        world.fake.delete("/pods", "n", object::name(&pod), "Background");
        let work = VmiKey::Pod(ObjectKey::new("n", object::name(&pod)));
        world.placer.reconcile(&work).await.unwrap();
        assert!(object::annotation(&world.get(name), virt::SHUT_DOWN_BY).is_some());
        world.reconcile(name).await;
        assert!(world.pod(name).is_none());
    }
}

#[tokio::test]
async fn a_missing_pod_whose_deletion_was_not_seen_is_made_again() {
    let world = World::new("4Gi");
    let pod = running(&world, "v").await;
    world.fake.delete("/pods", "n", object::name(&pod), "Background");
    world.reconcile("v").await;
    assert_eq!(world.pod("v").unwrap()["status"]["phase"], "Running");
    assert!(object::annotation(&world.get("v"), virt::SHUT_DOWN_BY).is_none());
}

#[tokio::test]
async fn a_deleted_pod_whose_instance_never_ran_goes_at_once() {
    let world = World::new("4Gi");
    let pod = running(&world, "v").await;
    world.fake.merge(INSTANCES, "n", "v", &json!({"status": {"phase": "Succeeded"}}));
    delete_gracefully(&world, &pod);
    let work = VmiKey::Pod(ObjectKey::new("n", object::name(&pod)));
    world.placer.reconcile(&work).await.unwrap();
    assert!(removes_pods(&world.fake));
}

#[tokio::test]
async fn a_refused_pod_changes_nothing_the_second_time_and_takes_no_room() {
    let world = World::new("2Gi");
    world.fake.refuse("/pods", 403);
    world.create("a", json!({}));
    assert_eq!(world.reconcile("a").await, ReconcileResult::Retry);
    let refused = world.get("a");
    assert_eq!(condition(&refused, "Synchronized")["reason"], "FailedCreate");
    let events = world.fake.names("/events").len();
    assert_eq!(world.reconcile("a").await, ReconcileResult::Retry);
    assert_eq!(world.get("a"), refused);
    assert_eq!(world.fake.names("/events").len(), events);
    // There is room for one.
    world.fake.accept("/pods");
    world.create("b", json!({}));
    world.reconcile("b").await;
    assert_eq!(world.phase("b"), "Scheduled");
    assert_eq!(world.reconcile("a").await, ReconcileResult::Done);
    assert_eq!(condition(&world.get("a"), "PodScheduled")["reason"], "Unschedulable");
}

#[tokio::test]
async fn a_quota_with_limits_gives_the_pod_limits() {
    let world = World::new("4Gi");
    let quota = json!({"metadata": {"name": "q"},
        "spec": {"hard": {"limits.memory": "8Gi", "limits.cpu": "8"}}});
    world.fake.create("/resourcequotas", "n", quota);
    world.create("v", json!({}));
    world.reconcile("v").await;
    let limits = &world.pod("v").unwrap()["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "1", "memory": "2196Mi"}));
}

#[tokio::test(start_paused = true)]
async fn an_instance_fails_when_its_node_stays_away() {
    let world = World::new("4Gi");
    world.create("v", json!({}));
    world.reconcile("v").await;
    world.fake.delete("/nodes", "", "one", "Background");
    let node = VmiKey::Node("one".into());
    let ReconcileResult::Again(left) = world.placer.reconcile(&node).await.unwrap() else {
        panic!("not certain yet")
    };
    assert_eq!(world.phase("v"), "Scheduled");
    tokio::time::advance(left).await;
    world.placer.reconcile(&node).await.unwrap();
    assert_eq!(world.phase("v"), "Failed");
    assert_eq!(world.get("v")["status"]["reason"], "NodeLost");
}

#[tokio::test]
async fn a_node_out_of_service_has_lost_its_instances_at_once() {
    let world = World::new("4Gi");
    world.create("v", json!({}));
    world.reconcile("v").await;
    let taints = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    world.fake.merge("/nodes", "", "one", &json!({"spec": {"taints": taints}}));
    world.placer.reconcile(&VmiKey::Node("one".into())).await.unwrap();
    assert_eq!(world.phase("v"), "Failed");
}

#[tokio::test]
async fn a_claim_to_plug_in_is_made_where_the_machine_is() {
    let world = World::new("4Gi");
    let class = json!({"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"});
    world.fake.create("storage.k8s.io/storageclasses", "", class);
    let volume = json!({"name": "d",
        "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}});
    world.create("v", json!({"volumes": [volume]}));
    world.reconcile("v").await;
    assert_eq!(world.phase("v"), "Scheduled", "the machine does not wait for it");
    world.reconcile("v").await;
    assert_eq!(
        world.placer.waiting.storage.of(&ObjectKey::new("n", "c")),
        [ObjectKey::new("n", "v")]
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "local"},
        "status": {"phase": "Pending"}});
    world.fake.create(CLAIM, "n", claim);
    world.reconcile("v").await;
    let claim = world.fake.get(CLAIM, "n", "c").unwrap();
    assert_eq!(claim["metadata"]["annotations"], json!({storage::SELECTED_NODE: "one"}));
}
