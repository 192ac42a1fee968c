//! Virtual machines without an agent: the work of the controllers. Where an agent would act, the
//! test does.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const AGENT: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// A server that knows virtual machines and has one node.
fn cluster() -> (Sheaf, Http) {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in virt::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        if http.get(&format!("{definitions}/{name}")).status == 404 {
            http.post(definitions, &definition).ok();
        }
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one",
        "labels": {"kubernetes.io/hostname": "one"}}});
    http.post("/api/v1/nodes", &node).ok();
    let status = json!({"status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady",
            "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    http.merge("/api/v1/nodes/one/status", &status).ok();
    (sheaf, http)
}

fn machine(name: &str, changes: Value) -> Value {
    let mut spec = json!({"runStrategy": "Always", "template": {
        "metadata": {"labels": {"app": name}},
        "spec": {"domain": {"memory": {"guest": "256Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]}}});
    merge(&mut spec, &changes);
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name}, "spec": spec})
}

fn merge(object: &mut Value, changes: &Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, changes) => *object = changes.clone(),
    }
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

fn printable(http: &Http, name: &str) -> String {
    let vm = http.get(&at(VMS, name)).ok();
    vm["status"]["printableStatus"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn until_printable(http: &Http, name: &str, expected: &str) {
    eventually(&format!("{name} is {expected}"), || printable(http, name) == expected);
}

#[track_caller]
fn until_phase(http: &Http, name: &str, expected: &str) -> Value {
    eventually(&format!("the instance of {name} is {expected}"), || {
        let vmi = http.get(&at(VMIS, name));
        vmi.status == 200 && vmi.json()["status"]["phase"] == expected
    });
    http.get(&at(VMIS, name)).ok()
}

/// The identity of the node's agent: reports of others about an instance's state are ignored.
fn agent(http: &Http) -> Http {
    http.with("impersonate-user", "system:node:one")
        .with("impersonate-group", "system:nodes")
        .with("impersonate-group", "system:masters")
}

/// As the agent does when the guest has started.
fn run(http: &Http, name: &str, address: &str) {
    let vmi = until_phase(http, name, "Scheduled");
    let mut times = vmi["status"]["phaseTransitionTimestamps"].clone();
    let time = "2026-01-01T00:00:00Z";
    times
        .as_array_mut()
        .unwrap()
        .push(json!({"phase": "Running", "phaseTransitionTimestamp": time}));
    let status = json!({"phase": "Running", "phaseTransitionTimestamps": times,
        "interfaces": [{"name": "default", "ipAddress": address, "ipAddresses": [address]}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]});
    agent(http).merge(&at(VMIS, name), &json!({"status": status})).ok();
}

/// As the agent does when the guest has ended.
fn finish(http: &Http, name: &str, phase: &str) {
    let vmi = http.get(&at(VMIS, name)).ok();
    let left: Vec<Value> = vmi["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|own| *own != AGENT)
        .cloned()
        .collect();
    let patch = json!({"metadata": {"finalizers": left}, "status": {"phase": phase}});
    agent(http).merge(&at(VMIS, name), &patch).ok();
}

#[test]
fn a_machine_is_placed_runs_and_stops() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({}))).ok();
    let vmi = until_phase(&http, "web", "Scheduled");
    assert_eq!(vmi["status"]["nodeName"], "one");
    assert_eq!(vmi["metadata"]["labels"]["kubevirt.io/nodeName"], "one");
    let phases: Vec<&str> = vmi["status"]["phaseTransitionTimestamps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["phase"].as_str().unwrap())
        .collect();
    assert!(phases.ends_with(&["Scheduling", "Scheduled"]), "{phases:?}");
    until_printable(&http, "web", "Starting");
    let pods = http.get(&format!("{PODS}?labelSelector=vm.kubevirt.io/name=web")).ok();
    assert_eq!(pods["items"].as_array().unwrap().len(), 1);

    run(&http, "web", "10.52.0.2");
    until_printable(&http, "web", "Running");
    assert_eq!(http.get(&at(VMS, "web")).ok()["status"]["ready"], true);

    http.merge(&at(VMS, "web"), &json!({"spec": {"runStrategy": "Halted"}})).ok();
    until_printable(&http, "web", "Stopping");
    finish(&http, "web", "Succeeded");
    until_printable(&http, "web", "Stopped");
    eventually("its instance is gone", || http.get(&at(VMIS, "web")).status == 404);
    eventually("its pod is gone", || {
        let pods = http.get(&format!("{PODS}?labelSelector=vm.kubevirt.io/name=web")).ok();
        pods["items"].as_array().unwrap().is_empty()
    });
}

#[test]
fn a_service_finds_the_machines_that_it_selects() {
    let (_sheaf, http) = cluster();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    http.post("/api/v1/namespaces/default/services", &service).ok();
    http.post(VMS, &machine("web", json!({}))).ok();
    run(&http, "web", "10.52.0.9");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                  ?labelSelector=kubernetes.io/service-name=web";
    eventually("the slice has the machine's address", || {
        let slices = http.get(slices).ok();
        let endpoint = &slices["items"][0]["endpoints"][0];
        endpoint["addresses"] == json!(["10.52.0.9"]) && endpoint["conditions"]["ready"] == true
    });
    eventually("so have the endpoints", || {
        let found = http.get("/api/v1/namespaces/default/endpoints/web").ok();
        found["subsets"][0]["addresses"][0]["ip"] == "10.52.0.9"
    });
    http.merge(&at(VMS, "web"), &json!({"spec": {"runStrategy": "Halted"}})).ok();
    eventually("it is asked to stop", || {
        http.get(&at(VMIS, "web")).ok()["metadata"]["deletionTimestamp"].is_string()
    });
    finish(&http, "web", "Succeeded");
    eventually("no endpoint is left", || {
        let slices = http.get(slices).ok();
        slices["items"][0]["endpoints"].as_array().is_none_or(Vec::is_empty)
    });
}

#[test]
fn a_machine_waits_for_its_claim_and_says_so() {
    let (_sheaf, http) = cluster();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "late"}, "provisioner": "example.com/none",
        "volumeBindingMode": "WaitForFirstConsumer"});
    http.post("/apis/storage.k8s.io/v1/storageclasses", &class).ok();
    let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let changes = json!({"template": {"spec": {"volumes": volumes}}});
    http.post(VMS, &machine("web", changes)).ok();
    until_printable(&http, "web", "ErrorPvcNotFound");
    let vmi = http.get(&at(VMIS, "web")).ok();
    assert_has(
        vmi["status"]["conditions"].to_string(),
        "PVC default/disk does not exist, waiting for it to appear",
    );
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}});
    http.post(CLAIMS, &claim).ok();
    eventually("the claim gets its node", || {
        let claim = http.get(&at(CLAIMS, "disk")).ok();
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "one"
    });
    until_printable(&http, "web", "WaitingForVolumeBinding");
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{}/status", at(CLAIMS, "disk")), &bound).ok();
    until_phase(&http, "web", "Scheduled");
}

#[test]
fn a_machine_that_fits_nowhere_says_why_and_starts_when_it_can() {
    let (_sheaf, http) = cluster();
    let changes = json!({"template": {"spec": {"nodeSelector": {"disk": "fast"}}}});
    http.post(VMS, &machine("web", changes)).ok();
    until_printable(&http, "web", "ErrorUnschedulable");
    let vmi = http.get(&at(VMIS, "web")).ok();
    assert_has(
        vmi["status"]["conditions"].to_string(),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
    );
    http.merge("/api/v1/nodes/one", &json!({"metadata": {"labels": {"disk": "fast"}}})).ok();
    until_phase(&http, "web", "Scheduled");
}

#[test]
fn a_machine_that_is_deleted_takes_everything_along() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({}))).ok();
    run(&http, "web", "10.52.0.2");
    until_printable(&http, "web", "Running");
    http.delete(&at(VMS, "web")).ok();
    eventually("the instance is asked to stop", || {
        http.get(&at(VMIS, "web")).ok()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(http.get(&at(VMS, "web")).status, 200, "it waits for its instance");
    finish(&http, "web", "Succeeded");
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    poll("all is gone", || {
        let left = [VMS, VMIS, PODS, revisions].map(|all| http.get(all).ok()["items"].clone());
        if left.iter().all(|items| *items == json!([])) {
            Ok(())
        } else {
            Err(json!(left).to_string())
        }
    });
}

#[test]
fn a_launcher_pod_that_is_deleted_shuts_its_instance_down() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({}))).ok();
    run(&http, "web", "10.52.0.2");
    let pod = || http.get(PODS).ok()["items"][0].clone();
    eventually("the pod runs", || pod()["status"]["phase"] == "Running");
    let first = pod()["metadata"].clone();
    let instance = http.get(&at(VMIS, "web")).ok()["metadata"]["uid"].clone();
    http.delete(&at(PODS, first["name"].as_str().unwrap())).ok();
    eventually("the instance is asked to shut down", || {
        let vmi = http.get(&at(VMIS, "web")).ok();
        vmi["metadata"]["annotations"]["sheaf.io/shut-down-by"].is_string()
    });
    assert_eq!(pod()["metadata"]["uid"], first["uid"], "the pod stays until the guest is down");
    finish(&http, "web", "Failed");
    let path = at(PODS, first["name"].as_str().unwrap());
    eventually("the pod is gone", || http.get(&path).status == 404);
    eventually("the machine has a new instance", || {
        let vmi = http.get(&at(VMIS, "web"));
        vmi.status == 200 && vmi.json()["metadata"]["uid"] != instance
    });
}

#[test]
fn an_instance_lives_on_when_its_machine_is_deleted_alone() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({}))).ok();
    run(&http, "web", "10.52.0.2");
    http.delete_with(&at(VMS, "web"), &json!({"propagationPolicy": "Orphan"})).ok();
    eventually("the machine is gone", || http.get(&at(VMS, "web")).status == 404);
    let vmi = http.get(&at(VMIS, "web")).ok();
    assert!(vmi["metadata"].get("deletionTimestamp").is_none());
    http.post(VMS, &machine("web", json!({}))).ok();
    until_printable(&http, "web", "Running");
    let adopted = http.get(&at(VMIS, "web")).ok();
    assert_eq!(adopted["metadata"]["uid"], vmi["metadata"]["uid"]);
}

#[test]
fn an_instance_needs_no_machine() {
    let (_sheaf, http) = cluster();
    let template = machine("x", json!({}))["spec"]["template"].clone();
    let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "alone"}, "spec": template["spec"]});
    http.post(VMIS, &vmi).ok();
    until_phase(&http, "alone", "Scheduled");
    http.delete(&at(VMIS, "alone")).ok();
    assert_eq!(http.get(&at(VMIS, "alone")).status, 200, "its node has to clean up");
    finish(&http, "alone", "Succeeded");
    eventually("it is gone", || http.get(&at(VMIS, "alone")).status == 404);
}

#[test]
fn a_machine_that_never_comes_up_is_tried_less_and_less_often() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({}))).ok();
    let first = until_phase(&http, "web", "Scheduled");
    finish(&http, "web", "Failed");
    until_printable(&http, "web", "CrashLoopBackOff");
    let vm = http.get(&at(VMS, "web")).ok();
    let failure = &vm["status"]["startFailure"];
    assert_eq!(failure["consecutiveFailCount"], 1);
    assert_eq!(failure["lastFailedVMIUID"], first["metadata"]["uid"]);
    eventually("the instance that failed is gone", || http.get(&at(VMIS, "web")).status == 404);
}

#[test]
fn a_machine_takes_its_size_from_an_instancetype_and_keeps_it() {
    let (_sheaf, http) = cluster();
    let sizes = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes";
    let size = json!({"apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype", "metadata": {"name": "tiny"},
        "spec": {"cpu": {"guest": 2}, "memory": {"guest": "384Mi"}}});
    http.post(sizes, &size).ok();
    let mut vm = machine("web", json!({"instancetype": {"name": "tiny"}}));
    vm["spec"]["template"]["spec"]["domain"].as_object_mut().unwrap().remove("memory");
    http.post(VMS, &vm).ok();
    let vmi = until_phase(&http, "web", "Scheduled");
    assert_eq!(vmi["spec"]["domain"]["memory"]["guest"], "384Mi");
    let key = "kubevirt.io/cluster-instancetype-name";
    assert_eq!(vmi["metadata"]["annotations"][key], "tiny");
    eventually("the machine remembers the version", || {
        let vm = http.get(&at(VMS, "web")).ok();
        vm["status"]["instancetypeRef"]["controllerRevisionRef"]["name"].is_string()
    });
    let vm = http.get(&at(VMS, "web")).ok();
    assert_eq!(vm["spec"]["instancetype"], json!({"name": "tiny"}), "as it was written");
}

#[test]
fn a_replica_set_keeps_as_many_instances_as_are_wanted() {
    let (_sheaf, http) = cluster();
    let sets = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets";
    let template = machine("web", json!({}))["spec"]["template"].clone();
    let set = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "web"}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    http.post(sets, &set).ok();
    let count = || http.get(VMIS).ok()["items"].as_array().unwrap().len();
    eventually("both are placed", || {
        let found = http.get(VMIS).ok();
        let found = found["items"].as_array().unwrap().clone();
        found.len() == 2 && found.iter().all(|vmi| vmi["status"]["phase"] == "Scheduled")
    });
    let scale = json!({"spec": {"replicas": 3}});
    http.merge(&format!("{sets}/web/scale"), &scale).ok();
    eventually("there is one more", || count() == 3);
    eventually("the set says so", || {
        http.get(&format!("{sets}/web")).ok()["status"]["replicas"] == 3
    });
}

#[test]
fn a_template_creates_a_machine() {
    let (_sheaf, http) = cluster();
    let mut web = machine("${NAME}", json!({"runStrategy": "Halted"}));
    web["metadata"]["name"] = json!("${NAME}");
    let template = json!({"apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplate", "metadata": {"name": "golden"},
        "spec": {"parameters": [{"name": "NAME", "required": true}], "virtualMachine": web}});
    let templates = "template.kubevirt.io/v1beta1/namespaces/default/virtualmachinetemplates";
    http.post(&format!("/apis/{templates}"), &template).ok();
    let create = format!("/apis/subresources.{templates}/golden/create");
    let missing = http.post(&create, &json!({}));
    assert_eq!(missing.status, 422, "{}", missing.text());
    let named = json!({"parameters": {"NAME": "from-template"}});
    let made = http.post(&create, &named).ok();
    assert_eq!(made["kind"], "ProcessedVirtualMachineTemplate");
    let vm = http.get(&at(VMS, "from-template")).ok();
    assert_eq!(made["virtualMachine"]["metadata"]["uid"], vm["metadata"]["uid"]);
    let again = http.post(&create, &named);
    assert_eq!(again.status, 409, "{}", again.text());
    assert_has(again.text(), "error creating VirtualMachine: ");
}

#[test]
fn an_autoscaler_keeps_a_replica_set_within_its_bounds() {
    let (_sheaf, http) = cluster();
    let sets = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets";
    let template = machine("web", json!({}))["spec"]["template"].clone();
    let set = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "web"}, "spec": {"replicas": 1,
            "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    http.post(sets, &set).ok();
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": {"minReplicas": 2, "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "kubevirt.io/v1", "name": "web",
                "kind": "VirtualMachineInstanceReplicaSet"}}});
    let made = http.post(autoscalers, &autoscaler);
    assert_eq!(made.headers.get("warning"), None, "a controller acts on it");
    made.ok();
    eventually("there are two", || http.get(VMIS).ok()["items"].as_array().unwrap().len() == 2);
    let path = format!("{autoscalers}/web");
    eventually("the autoscaler says so", || http.get(&path).ok()["status"]["desiredReplicas"] == 2);
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=SuccessfulRescale";
    eventually("it is recorded", || {
        let found = http.get(events).ok();
        found["items"][0]["message"]
            == "New size: 2; reason: Current number of replicas below Spec.MinReplicas"
    });
    // No agent runs the instances here, so there is no usage to go by.
    poll("the missing metrics are reported", || {
        let status = http.get(&path).ok()["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let reported = conditions.iter().any(|own| {
            own["type"] == "ScalingActive"
                && own["status"] == "False"
                && own["reason"] == "FailedGetResourceMetric"
        });
        if reported { Ok(()) } else { Err(status.to_string()) }
    });
    http.merge(&path, &json!({"spec": {"minReplicas": 1, "maxReplicas": 1}})).ok();
    eventually("the set is scaled down", || {
        http.get(&format!("{sets}/web")).ok()["spec"]["replicas"] == 1
    });
}

#[test]
fn a_preset_completes_the_instances_that_it_selects() {
    let (_sheaf, http) = cluster();
    let presets = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancepresets";
    let preset = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": "two"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    let refused = http.post(presets, &preset);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let mut preset = preset;
    preset["spec"]["domain"] = json!({"cpu": {"cores": 2}, "devices": {}});
    http.post(presets, &preset).ok();
    http.post(VMS, &machine("web", json!({}))).ok();
    let vmi = until_phase(&http, "web", "Scheduled");
    assert_eq!(vmi["spec"]["domain"]["cpu"]["cores"], 2);
    let applied = &vmi["metadata"]["annotations"]["virtualmachinepreset.kubevirt.io/two"];
    assert_eq!(applied, "kubevirt.io/v1");
}

const POOLS: &str = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools";

/// A pool of machines, with changes to its specification.
fn pool(name: &str, machine: Value, changes: Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"pool": name}}});
    template["spec"] = machine["spec"].clone();
    let mut spec = json!({"replicas": 1, "selector": {"matchLabels": {"pool": name}},
        "virtualMachineTemplate": template});
    merge(&mut spec, &changes);
    json!({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
        "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_pool_makes_machines_anew_that_do_not_come_up() {
    let (_sheaf, http) = cluster();
    let healing = json!({"autohealing": {"startUpFailureThreshold": 1}});
    http.post(POOLS, &pool("web", machine("web", json!({})), healing)).ok();
    until_phase(&http, "web-0", "Scheduled");
    let first = http.get(&at(VMS, "web-0")).ok()["metadata"]["uid"].clone();
    finish(&http, "web-0", "Failed");
    eventually("it is another machine", || {
        let vm = http.get(&at(VMS, "web-0")).json();
        vm["metadata"]["uid"].is_string() && vm["metadata"]["uid"] != first
    });
}

#[test]
fn a_pool_keeps_the_disks_of_machines_that_it_gives_up() {
    let (_sheaf, http) = cluster();
    let volumes = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";
    let template = json!([{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}},
        "storage": {"resources": {"requests": {"storage": "1Mi"}}}}}]);
    let mut machine = machine("web", json!({"runStrategy": "Halted"}));
    machine["spec"]["dataVolumeTemplates"] = template;
    machine["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "root", "dataVolume": {"name": "disk"}}]);
    let keeping = json!({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}});
    http.post(POOLS, &pool("web", machine, keeping)).ok();
    let owners = || {
        let disk = http.get(&at(volumes, "disk-0")).json();
        disk["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
    };
    eventually("the machine has its disk", || owners() == 1);
    let disk = http.get(&at(volumes, "disk-0")).ok()["metadata"]["uid"].clone();
    let scale = |count: u32| {
        let wanted = json!({"spec": {"replicas": count}});
        http.merge(&format!("{POOLS}/web/scale"), &wanted).ok();
    };
    scale(0);
    eventually("the machine is gone", || http.get(&at(VMS, "web-0")).status == 404);
    assert_eq!(owners(), 0);
    scale(1);
    eventually("it is back", || http.get(&at(VMS, "web-0")).status == 200);
    assert_eq!(http.get(&at(volumes, "disk-0")).ok()["metadata"]["uid"], disk);
}

#[test]
fn a_pool_records_what_its_machines_are_made_from() {
    let (_sheaf, http) = cluster();
    let mut written = pool("web", machine("web", json!({})), json!({}));
    written["spec"]["virtualMachineTemplate"]["metadata"]["creationTimestamp"] = Value::Null;
    http.post(POOLS, &written).ok();
    run(&http, "web-0", "10.52.0.2");
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let names = || -> Vec<String> {
        let all = http.get(revisions).ok()["items"].as_array().cloned().unwrap_or_default();
        let names = all.iter().map(|own| own["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("web-")).collect()
    };
    let pool = http.get(&at(POOLS, "web")).ok();
    let record = http.get(&at(revisions, "web-1")).ok();
    assert_eq!(record["data"], pool["spec"]);
    assert_eq!(record["metadata"]["ownerReferences"][0]["uid"], pool["metadata"]["uid"]);
    assert_eq!((&record["revision"], names()), (&json!(1), vec!["web-1".to_owned()]));

    // Another strategy is nothing that its instance would have to be restarted for.
    let first = http.get(&at(VMIS, "web-0")).ok()["metadata"]["uid"].clone();
    let change = |change: Value| {
        let patch = json!({"spec": {"virtualMachineTemplate": {"spec": change}}});
        http.merge(&at(POOLS, "web"), &patch).ok();
    };
    let label = |all: &str| {
        let object = http.get(&at(all, "web-0")).json();
        object["metadata"]["labels"]["kubevirt.io/vm-pool-revision-name"].clone()
    };
    change(json!({"runStrategy": "RerunOnFailure"}));
    eventually("the instance gets its new template", || label(VMIS) == "web-2");
    assert_eq!(http.get(&at(VMIS, "web-0")).ok()["metadata"]["uid"], first);
    eventually("the old template is forgotten", || names() == ["web-2"]);
    change(json!({"template": {"spec": {"hostname": "other"}}}));
    eventually("the instance is restarted", || {
        http.get(&at(VMIS, "web-0")).ok()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(label(VMS), "web-3");
    assert_eq!(names(), ["web-2", "web-3"], "it was made from the old one");
    http.delete(&at(POOLS, "web")).ok();
    eventually("the machine is being deleted", || {
        http.get(&at(VMS, "web-0")).json()["metadata"]["deletionTimestamp"].is_string()
    });
    finish(&http, "web-0", "Succeeded");
    eventually("its records go with a pool", || names().is_empty());
}

#[test]
fn a_pool_numbers_its_machines() {
    let (_sheaf, http) = cluster();
    let pools = POOLS;
    http.post(pools, &pool("web", machine("web", json!({})), json!({"replicas": 2}))).ok();
    for name in ["web-0", "web-1"] {
        until_phase(&http, name, "Scheduled");
    }
    http.merge(&format!("{pools}/web"), &json!({"spec": {"replicas": 1}})).ok();
    eventually("the last one is being deleted", || {
        http.get(&at(VMS, "web-1")).json()["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(http.get(&at(VMS, "web-0")).ok()["metadata"].get("deletionTimestamp").is_none());
}

#[test]
fn fractions_of_processors_are_amounts() {
    let (_sheaf, http) = cluster();
    let domain = json!({"memory": {"guest": "64Mi"}, "devices": {},
        "resources": {"requests": {"cpu": 2.2}, "limits": {"cpu": 2.5}}});
    let vm = |name: &str, domain: &Value| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}})
    };
    let made = http.post(VMS, &vm("a", &domain)).ok();
    let resources = &made["spec"]["template"]["spec"]["domain"]["resources"];
    assert_eq!(*resources, json!({"requests": {"cpu": "2200m"}, "limits": {"cpu": "2500m"}}));
    let mut cores = domain;
    cores["cpu"] = json!({"cores": 1.5});
    assert_has(http.post(VMS, &vm("b", &cores)).refused(422), "cores");
}

#[test]
fn an_instance_type_may_leave_memory_to_its_machines() {
    let (_sheaf, http) = cluster();
    let types =
        "/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/virtualmachineinstancetypes";
    for (name, memory) in [("absent", None), ("zero", Some(json!({"guest": "0"})))] {
        let mut size = json!({"apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineInstancetype", "metadata": {"name": name},
            "spec": {"cpu": {"guest": 2}}});
        if let Some(memory) = memory {
            size["spec"]["memory"] = memory;
        }
        http.post(types, &size).ok();
        let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name}, "spec": {"runStrategy": "Always",
                "instancetype": {"kind": "VirtualMachineInstancetype", "name": name},
                "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}}});
        http.post(VMS, &vm).ok();
        let made = poll("there is an instance", || {
            let reply = http.get(&format!("{VMIS}/{name}"));
            if reply.status == 200 { Ok(reply.json()) } else { Err(reply.text()) }
        });
        assert_eq!(made["spec"]["domain"]["memory"]["guest"], "64Mi", "{name}");
        assert_eq!(made["spec"]["domain"]["cpu"]["sockets"], 2, "{name}");
    }
}

/// `virtctl adm log-verbosity` and `virtctl permitted-devices` use nothing but the KubeVirt object.
#[test]
fn virtctl_finds_and_changes_the_configuration() {
    let (_sheaf, http) = cluster();
    let all = http.get("/apis/kubevirt.io/v1/kubevirts").ok();
    let [kubevirt] = &all["items"].as_array().unwrap()[..] else { panic!("{all}") };
    let meta = |field: &str| kubevirt["metadata"][field].as_str().unwrap().to_owned();
    let (namespace, name) = (meta("namespace"), meta("name"));
    let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/kubevirts/{name}");
    let options = "/spec/configuration/developerConfiguration";
    assert!(kubevirt.pointer(options).is_some(), "log-verbosity adds a field below it");
    let patch = |value: Value| {
        let patch = json!([{"op": "add", "path": format!("{options}/logVerbosity"),
            "value": value}]);
        http.patch(&path, "application/json-patch+json", patch.to_string()).ok()
    };
    let set = patch(json!({"virtAPI": 5, "virtHandler": 0}));
    let found = set.pointer(&format!("{options}/logVerbosity")).cloned().unwrap_or_default();
    assert_eq!(found, json!({"virtAPI": 5, "virtHandler": 0}));
    let reset = patch(json!({}));
    assert_eq!(reset.pointer(&format!("{options}/logVerbosity")), Some(&json!({})));
    let devices = json!({"pciHostDevices": [{"pciVendorSelector": "10DE:1EB8",
        "resourceName": "nvidia.com/TU104GL"}]});
    let change = json!({"spec": {"configuration": {"permittedHostDevices": devices}}});
    http.merge(&path, &change).ok();
    let listed = http.get("/apis/kubevirt.io/v1/kubevirts").ok();
    assert_eq!(listed["items"][0]["spec"]["configuration"]["permittedHostDevices"], devices);
}

/// KubeVirt's own test suite and other tools check this before anything else.
#[test]
fn the_operator_of_kubevirt_is_ready() {
    let (_sheaf, http) = cluster();
    let path = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-operator";
    poll("the operator is ready", || {
        let operator = http.get(path).json();
        let ready = operator["status"]["readyReplicas"].as_i64().unwrap_or_default();
        if ready >= 1 { Ok(()) } else { Err(operator.to_string()) }
    });
}

#[test]
fn a_machine_keeps_the_versions_of_its_specification() {
    let (_sheaf, http) = cluster();
    http.post(VMS, &machine("web", json!({"runStrategy": "Halted"}))).ok();
    let uid = http.get(&at(VMS, "web")).ok()["metadata"]["uid"].as_str().unwrap().to_owned();
    let all = format!(
        "/apis/apps/v1/namespaces/default/controllerrevisions?labelSelector=sheaf.io/history-of={uid}"
    );
    let memory = "/data/spec/template/spec/domain/memory/guest";
    let kept = || -> Vec<Value> {
        let found = http.get(&all).ok()["items"].as_array().cloned().unwrap_or_default();
        found.iter().map(|own| own.pointer(memory).cloned().unwrap_or_default()).collect()
    };
    eventually("the first version is kept", || kept() == ["256Mi"]);
    for size in 1..=12 {
        let size = format!("{}Mi", 256 + size);
        let change =
            json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": size}}}}}});
        http.merge(&format!("{}?fieldManager=operator", at(VMS, "web")), &change).ok();
        eventually("the new version is kept", || kept().iter().any(|own| *own == size));
    }
    eventually("the oldest are gone", || kept().len() == 10);
    assert!(!kept().iter().any(|own| *own == "256Mi") && kept().iter().any(|own| *own == "268Mi"));
    // Labels and the status are not versions.
    http.merge(&at(VMS, "web"), &json!({"metadata": {"labels": {"a": "b"}}})).ok();
    let newest = http.get(&all).ok()["items"].as_array().unwrap().clone();
    let newest = newest.iter().max_by_key(|own| own["revision"].as_i64()).unwrap();
    assert_eq!(newest["metadata"]["annotations"]["sheaf.io/changed-by"], "operator");
    let generation = http.get(&at(VMS, "web")).ok()["metadata"]["generation"].clone();
    assert_eq!(newest["revision"], generation);
    http.delete(&at(VMS, "web")).ok();
    eventually("they go with the machine", || kept().is_empty());
}
