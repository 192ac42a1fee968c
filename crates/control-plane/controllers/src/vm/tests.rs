//! Machines and their instances on the small server.

use serde_json::{Value, json};

use super::*;
use crate::fake::Fake;
use crate::vmi::VM_FINALIZER;

const VM: &str = "kubevirt.io/virtualmachines";
const VMI: &str = "kubevirt.io/virtualmachineinstances";
const DATA_VOLUME: &str = "cdi.kubevirt.io/datavolumes";
const REVISION: &str = "apps/controllerrevisions";

struct World {
    fake: Fake,
    keeper: VmReconciler,
}

impl World {
    fn new(spec: Value) -> Self {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let mut spec = spec;
        if spec.get("template").is_none() {
            spec["template"] = json!({"metadata": {"labels": {"app": "a"}},
                "spec": {"domain": {"cpu": {"sockets": 1}}}});
        }
        let vm = json!({"metadata": {"name": "v", "generation": 1}, "spec": spec});
        fake.create(VM, "n", vm);
        let keeper = VmReconciler::new(fake.client(), Dependents::default());
        Self { fake, keeper }
    }

    async fn reconcile(&self) -> ReconcileResult {
        self.keeper.reconcile(&ObjectKey::new("n", "v")).await.unwrap()
    }

    fn vm(&self) -> Value {
        self.fake.get(VM, "n", "v").unwrap()
    }

    fn vmi(&self) -> Option<Value> {
        self.fake.get(VMI, "n", "v")
    }

    fn printable(&self) -> String {
        text(&self.vm(), "/status/printableStatus").to_owned()
    }

    /// As the other controllers and the agent would.
    fn set_phase(&self, phase: &str) {
        let mut times = self.vmi().unwrap()["status"]["phaseTransitionTimestamps"].clone();
        if times.is_null() {
            times = json!([]);
        }
        times.as_array_mut().unwrap().push(json!({"phase": phase}));
        let status = json!({"phase": phase, "phaseTransitionTimestamps": times});
        self.fake.merge(VMI, "n", "v", &json!({"status": status}));
    }

    fn reported(&self, reason: &str) -> bool {
        self.fake.any("/events", |event| event["reason"] == reason)
    }
}

#[tokio::test]
async fn a_machine_that_is_meant_to_run_has_an_instance() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    let (vm, vmi) = (world.vm(), world.vmi().unwrap());
    assert!(object::is_controlled_by(&vmi, &vm));
    assert_eq!(vmi["metadata"]["labels"], json!({"app": "a"}));
    assert_eq!(vm["metadata"]["finalizers"], json!([VM_FINALIZER]));
    assert_eq!((world.printable().as_str(), &vm["status"]["created"]), ("Starting", &json!(true)));
    let revision = text(&vmi, "/status/virtualMachineRevisionName");
    let recorded = world.fake.get(REVISION, "n", revision).unwrap();
    assert_eq!(recorded["data"]["spec"], vm["spec"]);
    assert!(world.reported("SuccessfulCreate"));
    world.reconcile().await;
    let again = world.vm();
    assert_eq!(again["metadata"]["resourceVersion"], vm["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_machine_that_ends_is_started_again_only_if_it_should_be() {
    for (strategy, phase, lives) in [
        ("Always", "Succeeded", true),
        ("Always", "Failed", true),
        ("RerunOnFailure", "Succeeded", false),
        ("RerunOnFailure", "Failed", true),
        ("Once", "Failed", false),
    ] {
        let world = World::new(json!({"runStrategy": strategy}));
        world.reconcile().await;
        let first = object::uid(&world.vmi().unwrap()).to_owned();
        world.set_phase("Running");
        world.reconcile().await;
        world.set_phase(phase);
        for _ in 0..6 {
            world.reconcile().await;
        }
        let second = world.vmi().map(|vmi| object::uid(&vmi).to_owned());
        let again = second.as_ref().is_some_and(|second| *second != first);
        assert_eq!(again, lives, "{strategy} {phase}");
    }
}

#[tokio::test]
async fn a_machine_that_never_comes_up_waits_longer_each_time() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Failed");
    world.reconcile().await;
    let next = world.reconcile().await;
    assert!(world.vmi().is_none(), "the one that failed is gone");
    assert!(
        matches!(next, ReconcileResult::Again(delay) if delay > Duration::from_secs(5)),
        "{next:?}"
    );
    assert_eq!(world.printable(), "CrashLoopBackOff");
    assert_eq!(world.vm()["status"]["startFailure"]["consecutiveFailCount"], 1);
}

#[tokio::test]
async fn a_halted_machine_ends_its_instance_and_can_be_woken() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Running");
    world.fake.merge(VM, "n", "v", &json!({"spec": {"runStrategy": "Halted"}}));
    world.reconcile().await;
    assert!(is_deleting(&world.vmi().unwrap()));
    assert_eq!(world.printable(), "Stopping");
    assert!(world.reported("SuccessfulDelete"));
    world.set_phase("Succeeded");
    world.reconcile().await;
    assert!(world.vmi().is_none());
    world.reconcile().await;
    assert_eq!(world.printable(), "Stopped");
    let request = json!([{"action": "Start", "data": {"paused": "true"}}]);
    world.fake.merge(VM, "n", "v", &json!({"status": {"stateChangeRequests": request}}));
    world.reconcile().await;
    assert_eq!(world.vm()["spec"]["runStrategy"], "Always");
    world.reconcile().await;
    assert_eq!(world.vmi().unwrap()["spec"]["startStrategy"], "Paused");
    assert!(world.vm()["status"].get("stateChangeRequests").is_none(), "the request is met");
}

#[tokio::test]
async fn a_restart_is_a_stop_and_a_start() {
    let world = World::new(json!({"runStrategy": "Manual"}));
    world.reconcile().await;
    assert!(world.vmi().is_none());
    let ask = |requests: Value| {
        world.fake.merge(VM, "n", "v", &json!({"status": {"stateChangeRequests": requests}}));
    };
    ask(json!([{"action": "Start"}]));
    world.reconcile().await;
    world.set_phase("Running");
    let first = object::uid(&world.vmi().unwrap()).to_owned();
    ask(json!([{"action": "Stop", "uid": first}, {"action": "Start"}]));
    world.reconcile().await;
    world.set_phase("Succeeded");
    for _ in 0..4 {
        world.reconcile().await;
    }
    assert_ne!(object::uid(&world.vmi().unwrap()), first);
    assert!(world.vm()["status"].get("stateChangeRequests").is_none());
}

#[tokio::test]
async fn a_deleted_machine_waits_for_its_instance() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Running");
    world.fake.delete(VM, "n", "v", "Background");
    world.reconcile().await;
    assert!(is_deleting(&world.vmi().unwrap()));
    assert_eq!(world.printable(), "Terminating");
    world.set_phase("Succeeded");
    world.reconcile().await;
    assert!(world.vmi().is_none());
    world.reconcile().await;
    assert!(world.fake.get(VM, "n", "v").is_none());
}

#[tokio::test]
async fn an_orphaned_instance_is_left_and_can_be_adopted() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Running");
    world.fake.delete(VM, "n", "v", "Orphan");
    world.reconcile().await;
    assert_eq!(world.vm()["metadata"]["finalizers"], json!(["orphan"]));
    assert!(!is_deleting(&world.vmi().unwrap()));

    let world = World::new(json!({"runStrategy": "Always"}));
    let alone = json!({"metadata": {"name": "v"}, "status": {"phase": "Running"}});
    world.fake.create(VMI, "n", alone);
    world.reconcile().await;
    assert!(object::is_controlled_by(&world.vmi().unwrap(), &world.vm()));
}

#[tokio::test]
async fn an_instance_of_another_owner_is_not_touched() {
    let world = World::new(json!({"runStrategy": "Halted"}));
    let owner = json!({"kind": "Other", "name": "x", "uid": "x", "controller": true});
    let other = json!({"metadata": {"name": "v", "ownerReferences": [owner]}});
    world.fake.create(VMI, "n", other);
    world.reconcile().await;
    assert!(!is_deleting(&world.vmi().unwrap()));
    world.fake.merge(VM, "n", "v", &json!({"spec": {"runStrategy": "Always"}}));
    assert_eq!(world.reconcile().await, ReconcileResult::Retry);
    let failure = &world.vm()["status"]["conditions"];
    assert!(failure.to_string().contains("FailedCreate"), "{failure}");
}

#[tokio::test]
async fn disks_are_made_before_the_machine_starts() {
    let template = json!({"metadata": {"name": "d"}, "spec": {"source": {"blank": {}}}});
    let spec = json!({"domain": {}, "volumes": [{"name": "root", "dataVolume": {"name": "d"}}]});
    let world = World::new(json!({"runStrategy": "Always", "dataVolumeTemplates": [template],
        "template": {"spec": spec}}));
    world.reconcile().await;
    let made = world.fake.get(DATA_VOLUME, "n", "d").unwrap();
    assert!(object::is_controlled_by(&made, &world.vm()));
    assert!(world.vmi().is_none());
    assert_eq!(world.printable(), "Provisioning");
    assert_eq!(world.keeper.dependents.of(&ObjectKey::new("n", "d")), [ObjectKey::new("n", "v")]);
    let failed = json!({"status": {"phase": "Failed"}});
    world.fake.merge(DATA_VOLUME, "n", "d", &failed);
    world.reconcile().await;
    assert_eq!(world.printable(), "DataVolumeError");
    assert!(world.reported("FailedDataVolumeImport"));
    world.fake.merge(DATA_VOLUME, "n", "d", &json!({"status": {"phase": "Succeeded"}}));
    world.reconcile().await;
    assert!(world.vmi().is_some());
}

#[tokio::test]
async fn changes_that_can_be_made_while_the_guest_runs_reach_it() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.fake.merge(VMI, "n", "v", &json!({"spec": {"domain": {"cpu": {"maxSockets": 4}}}}));
    world.set_phase("Running");
    let change = |generation: i64, spec: Value| {
        let patch = json!({"metadata": {"generation": generation}, "spec": spec});
        world.fake.merge(VM, "n", "v", &patch);
    };
    change(2, json!({"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}));
    world.reconcile().await;
    assert_eq!(world.vmi().unwrap()["spec"]["domain"]["cpu"]["sockets"], 2);
    assert_eq!(world.vm()["status"]["observedGeneration"], 1);
    assert_eq!(world.vm()["status"]["desiredGeneration"], 2);
    change(3, json!({"template": {"spec": {"domain": {"cpu": {"sockets": 1}}}}}));
    world.reconcile().await;
    assert!(crate::condition::is(&world.vm(), "RestartRequired", "True"));
}

#[tokio::test]
async fn a_change_of_the_run_strategy_alone_is_seen_by_the_instance_at_once() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Running");
    let patch = json!({"metadata": {"generation": 2}, "spec": {"runStrategy": "RerunOnFailure"}});
    world.fake.merge(VM, "n", "v", &patch);
    world.reconcile().await;
    assert_eq!(object::annotation(&world.vmi().unwrap(), instance::GENERATION), Some("2"));
    assert_eq!(world.vm()["status"]["observedGeneration"], 2);
}

#[tokio::test]
async fn a_size_is_applied_recorded_and_kept() {
    let world = World::new(json!({"runStrategy": "Always", "instancetype": {"name": "small"},
        "template": {"spec": {"domain": {"devices": {}}}}}));
    world.reconcile().await;
    assert!(world.vmi().is_none());
    let conditions = world.vm()["status"]["conditions"].to_string();
    assert!(conditions.contains("FailedFindInstancetype"), "{conditions}");
    assert_eq!(
        world.keeper.dependents.of(&ObjectKey::new("", "small")),
        [ObjectKey::new("n", "v")]
    );
    let sizes = "instancetype.kubevirt.io/virtualmachineclusterinstancetypes";
    let size = json!({"apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype", "metadata": {"name": "small",
            "generation": 1}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}});
    world.fake.create(sizes, "", size);
    world.reconcile().await;
    let vmi = world.vmi().unwrap();
    assert_eq!(vmi["spec"]["domain"]["memory"]["guest"], "1Gi");
    assert_eq!(vmi["spec"]["domain"]["cpu"]["sockets"], 2);
    assert_eq!(vmi["metadata"]["annotations"]["kubevirt.io/cluster-instancetype-name"], "small");
    let reference = world.vm()["status"]["instancetypeRef"].clone();
    let kept = text(&reference, "/controllerRevisionRef/name").to_owned();
    assert!(world.fake.get(REVISION, "n", &kept).is_some(), "{reference}");
    assert!(!world.vm()["status"]["conditions"].to_string().contains("Failure"));
    world.fake.merge(sizes, "", "small", &json!({"spec": {"memory": {"guest": "2Gi"}}}));
    world.set_phase("Running");
    world.reconcile().await;
    world.set_phase("Succeeded");
    for _ in 0..3 {
        world.reconcile().await;
    }
    let again = world.vmi().unwrap();
    assert_ne!(object::uid(&again), object::uid(&vmi));
    assert_eq!(again["spec"]["domain"]["memory"]["guest"], "1Gi", "as it was kept");
}

#[tokio::test]
async fn a_revision_with_other_content_is_not_used() {
    let world = World::new(json!({"runStrategy": "Always", "instancetype": {"name": "small"},
        "template": {"spec": {"domain": {"devices": {}}}}}));
    let size = json!({"apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype", "metadata": {"name": "small",
            "uid": "s", "generation": 1}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}});
    let mut other = size.clone();
    other["spec"]["memory"]["guest"] = json!("8Gi");
    let sizes = "instancetype.kubevirt.io/virtualmachineclusterinstancetypes";
    let kept = format!("v-small-v1beta1-{}-1", world.fake.create(sizes, "", size));
    world.fake.create(REVISION, "n", json!({"metadata": {"name": kept}, "data": other}));
    world.reconcile().await;
    assert!(world.vmi().is_none());
    let vm = world.vm();
    let failure = crate::condition::find(list(&vm, "/status/conditions"), "Failure").unwrap();
    let message = text(failure, "/message");
    assert!(
        message.contains("found existing ControllerRevision with unexpected data"),
        "{message}"
    );
    assert!(vm.pointer("/status/instancetypeRef").is_none(), "{vm}");

    world.fake.delete(REVISION, "n", &kept, "Background");
    world.reconcile().await;
    assert_eq!(world.vmi().unwrap()["spec"]["domain"]["memory"]["guest"], "1Gi");
}

#[tokio::test]
async fn a_change_that_cannot_reach_the_guest_asks_for_a_restart() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    world.set_phase("Running");
    let patch = json!({"metadata": {"generation": 2},
        "spec": {"template": {"spec": {"hostname": "other"}}}});
    world.fake.merge(VM, "n", "v", &patch);
    world.reconcile().await;
    let vm = world.vm();
    let found = crate::condition::find(list(&vm, "/status/conditions"), "RestartRequired").unwrap();
    assert_eq!(found["message"], "a non-live-updatable field was changed in the template spec");
    let back =
        json!({"metadata": {"generation": 3}, "spec": {"template": {"spec": {"hostname": null}}}});
    world.fake.merge(VM, "n", "v", &back);
    world.reconcile().await;
    assert!(!crate::condition::is(&world.vm(), "RestartRequired", "True"));
}

#[tokio::test]
async fn a_revision_without_the_version_label_is_upgraded() {
    let world = World::new(json!({"runStrategy": "Halted", "instancetype": {"name": "small"}}));
    let kept = json!({"apiVersion": "instancetype.kubevirt.io/v1alpha2",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "small", "uid": "s", "generation": 1},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}});
    let old = json!({"metadata": {"name": "old"}, "data": kept, "revision": 0});
    world.fake.create(REVISION, "n", old);
    let reference = json!({"status": {"instancetypeRef": {"name": "small",
        "controllerRevisionRef": {"name": "old"}}}});
    world.fake.merge(VM, "n", "v", &reference);
    world.reconcile().await;
    let vm = world.vm();
    let name = text(&vm, "/status/instancetypeRef/controllerRevisionRef/name");
    assert_eq!(name, "v-small-v1beta1-s-1");
    assert_eq!(world.fake.names(REVISION), [name], "the old one is gone");
    let new = world.fake.get(REVISION, "n", name).unwrap();
    assert_eq!(new["metadata"]["labels"]["instancetype.kubevirt.io/object-version"], "v1beta1");
    assert_eq!(new["data"]["apiVersion"], "instancetype.kubevirt.io/v1beta1");
    assert_eq!(new["data"]["spec"], kept["spec"]);
    world.reconcile().await;
    assert_eq!(world.vm()["status"], vm["status"]);
}

#[tokio::test]
async fn a_revision_of_the_right_name_gets_its_labels() {
    let world = World::new(json!({"runStrategy": "Halted", "instancetype": {"name": "small"}}));
    let kept = json!({"apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "small", "uid": "s", "generation": 1}, "spec": {"cpu": {"guest": 1}}});
    let name = "v-small-v1beta1-s-1";
    world.fake.create(REVISION, "n", json!({"metadata": {"name": name}, "data": kept}));
    let reference = json!({"status": {"instancetypeRef": {"name": "small",
        "controllerRevisionRef": {"name": name}}}});
    world.fake.merge(VM, "n", "v", &reference);
    world.reconcile().await;
    let labels = world.fake.get(REVISION, "n", name).unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["instancetype.kubevirt.io/object-version"], "v1beta1");
    assert_eq!(labels["instancetype.kubevirt.io/object-name"], "small");
}

#[tokio::test]
async fn the_topology_of_a_running_guest_is_kept_in_its_machine() {
    let world = World::new(json!({"runStrategy": "Always"}));
    world.reconcile().await;
    let topology = json!({"kubevirt.io/pci-topology-version": "v2"});
    world.fake.merge(VMI, "n", "v", &json!({"metadata": {"annotations": topology}}));
    world.set_phase("Running");
    world.reconcile().await;
    assert_eq!(world.vm()["spec"]["template"]["metadata"]["annotations"], topology);
    assert_eq!(world.printable(), "Running");
}
