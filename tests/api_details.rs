//! Details of the API that clients and upstream's test suites rely on.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, cpu: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": 1.5e6}},
        }]},
    })
}

#[test]
fn people_read_indented_json() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let path = "/api/v1/namespaces/default";
    assert!(!http.get(path).text().contains('\n'));
    for reader in [
        http.with("user-agent", "curl/8.5.0").get(path),
        http.with("accept", "application/json;pretty=1").get(path),
        http.get(&format!("{path}?pretty=true")),
    ] {
        let text = reader.text();
        assert!(text.starts_with("{\n  \"apiVersion\": \"v1\",\n"), "{text}");
        assert_eq!(reader.ok()["metadata"]["name"], "default");
    }
    let curl = http.with("user-agent", "curl/8.5.0");
    for path in ["/api/v1/namespaces", "/apis", "/api/v1/namespaces/missing"] {
        assert!(curl.get(path).text().starts_with("{\n  \""), "{path}");
    }
    // A watch stays one event a line.
    let mut events = curl.watch(&format!("{path}/configmaps?pretty=true"));
    assert_eq!(events.change()["type"], "ADDED");
    assert!(http.get("/version").text().starts_with("{\n  \""));
}

#[test]
fn health_is_reported_under_the_names_of_upstream() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    for probe in ["healthz", "livez", "readyz"] {
        let text = http.get(&format!("/{probe}?verbose")).text();
        for check in [
            "ping",
            "log",
            "etcd",
            "poststarthook/start-apiextensions-controllers",
            "poststarthook/rbac/bootstrap-roles",
            "poststarthook/apiservice-registration-controller",
            "autoregister-completion",
        ] {
            assert_has(text.as_str(), &format!("[+]{check} ok\n"));
            assert_eq!(http.get(&format!("/{probe}/{check}")).text(), "ok");
        }
        assert_has(text, &format!("{probe} check passed"));
    }
    let ready = http.get("/readyz?verbose").text();
    assert_has(ready.as_str(), "[+]informer-sync ok");
    assert_has(ready, "[+]shutdown ok");
}

#[test]
fn components_are_listed_for_old_clients() {
    let sheaf = Sheaf::start();
    let list = sheaf.http().get("/api/v1/componentstatuses");
    assert_has(list.warnings().join(""), "v1 ComponentStatus is deprecated in v1.19+");
    let list = list.ok();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["etcd-0", "controller-manager", "scheduler"]);
    for kubectl in sheaf.every_kubectl() {
        assert_has(kubectl.run("get componentstatuses"), "Healthy");
        assert_has(kubectl.run("get cs etcd-0"), "ok");
    }
    sheaf.http().get("/api/v1/componentstatuses/other").refused(404);
}

#[test]
fn pods_can_be_made_but_nothing_runs_them() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let kubectl = sheaf.kubectl();
    let output = kubectl.output("run shell --image=busybox", "");
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_has(warning, "no pod runtime in this control plane");
    for sub in ["attach", "exec", "portforward", "log", "proxy"] {
        let refusal = http.get(&format!("{PODS}/shell/{sub}?command=ls")).refused(503);
        assert_has(refusal, &format!("the subresource \"{sub}\" of pods needs a pod runtime"));
        http.get(&format!("{PODS}/missing/{sub}?command=ls")).refused(404);
    }
    for sub in ["ephemeralcontainers", "resize"] {
        let path = format!("{PODS}/shell/{sub}");
        assert_eq!(http.get(&path).ok()["metadata"]["name"], "shell");
        assert_has(http.merge(&path, &json!({})).refused(503), "needs a pod runtime");
    }
    assert_has(kubectl.fails("attach shell"), "needs a pod runtime");
    let list = http.get("/api/v1").ok();
    let find = |name: &str| {
        let mut resources = list["resources"].as_array().unwrap().iter();
        resources.find(|resource| resource["name"] == name).unwrap()
    };
    assert_eq!(find("pods/exec")["kind"], "PodExecOptions");
    assert_eq!(find("pods/exec")["verbs"], json!(["create", "get"]));
    assert!(find("pods/exec").get("group").is_none());
    assert_eq!(find("pods/eviction")["group"], "policy");
}

#[test]
fn quantities_may_be_numbers() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let made = http.post(PODS, &pod("a", json!(2.2))).ok();
    let requests = &made["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(requests, &json!({"cpu": "2200m", "memory": "1500k"}));
    let applied = http.apply(&format!("{PODS}/b"), "me", &pod("b", json!(0.5))).ok();
    assert_eq!(applied["spec"]["containers"][0]["resources"]["requests"]["cpu"], "500m");
    sheaf.kubectl().apply(
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {limits.cpu: 2.2}}}",
    );
    let quota = http.get("/api/v1/namespaces/default/resourcequotas/q").ok();
    assert_eq!(quota["spec"]["hard"]["limits.cpu"], "2200m");
}

#[test]
fn a_resource_version_is_refused_after_everything_else() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let maps = "/api/v1/namespaces/default/configmaps";
    let with_version = |name: &str, version: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "resourceVersion": version},
        })
    };
    let map = |name: &str| with_version(name, "5");
    let text = "resourceVersion should not be set on objects to be created";
    assert_eq!(http.post(maps, &map("a")).refused(500), text);
    assert_has(http.post(maps, &map("Not A Name")).refused(422), "metadata.name: Invalid value");
    http.post(&format!("{maps}?dryRun=All"), &map("a")).ok();
    assert_eq!(http.get(&format!("{maps}/a")).status, 404);
    // No version of a stored object.
    for (name, version) in [("zero", "0"), ("text", "x")] {
        let made = http.post(maps, &with_version(name, version)).ok();
        assert_ne!(made["metadata"]["resourceVersion"], version);
    }
}

#[test]
fn placing_a_pod_does_not_change_its_generation() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    http.post(PODS, &pod("a", json!(1))).ok();
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "somewhere"},
    });
    http.post(&format!("{PODS}/a/binding"), &binding).ok();
    let placed = http.get(&format!("{PODS}/a")).ok();
    assert_eq!(placed["spec"]["nodeName"], "somewhere");
    assert_eq!(placed["metadata"]["generation"], 1);
}

#[test]
fn flow_schemas_say_whether_their_level_exists() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let dangling = |http: &Http, name: &str| {
        let schema = http.get(&format!("{group}/flowschemas/{name}")).ok();
        let conditions = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == "Dangling");
        found.map_or(Value::Null, |condition| condition["status"].clone())
    };
    eventually("the first schemas are judged", || dangling(&http, "catch-all") == "False");
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "mine"},
        "spec": {"priorityLevelConfiguration": {"name": "mine"}, "matchingPrecedence": 9000},
    });
    http.post(&format!("{group}/flowschemas"), &schema).ok();
    eventually("its level is missed", || dangling(&http, "mine") == "True");
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "mine"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"},
        }},
    });
    http.post(&format!("{group}/prioritylevelconfigurations"), &level).ok();
    eventually("its level is found", || dangling(&http, "mine") == "False");
    http.delete(&format!("{group}/prioritylevelconfigurations/mine")).ok();
    eventually("its level is missed again", || dangling(&http, "mine") == "True");
}

#[test]
fn devices_are_stored() {
    let sheaf = Sheaf::start();
    let kubectl = sheaf.kubectl();
    kubectl.apply(
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: [{cel: \
         {expression: 'device.driver == \"gpu.example.com\"'}}]}}",
    );
    let claim = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: one}, spec: {devices: \
                 {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}";
    let output = kubectl.output("apply -f -", claim);
    assert_has(
        String::from_utf8_lossy(&output.stderr),
        "ResourceClaim is stored, but nothing acts on it yet in this version",
    );
    assert_has(kubectl.run("get resourceclaims"), "pending");
    let count = ".spec.devices.requests[0].exactly.count";
    assert_eq!(kubectl.value("get resourceclaim one", count), "1");
    assert_has(
        kubectl.fails(
            "patch resourceclaim one --type=merge -p {\"spec\":{\"devices\":{\"requests\":[]}}}",
        ),
        "field is immutable",
    );
}

#[test]
fn kinds_without_effect_are_stored_with_a_warning() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let text =
        |subject: &str| format!("{subject} is stored, but nothing acts on it yet in this version");
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "p"},
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
    });
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let made = http.post(ingresses, &ingress);
    made.ok();
    assert_has(made.warnings().join(""), &text("Ingress"));
    let changed =
        http.merge(&format!("{ingresses}/p"), &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_has(changed.warnings().join(""), &text("Ingress"));
    let services = "/api/v1/namespaces/default/services";
    for (kind, warned) in [("ClusterIP", false), ("NodePort", false), ("LoadBalancer", true)] {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": kind.to_lowercase()},
            "spec": {"type": kind, "ports": [{"port": 80}]},
        });
        let made = http.post(services, &service);
        made.ok();
        let is_warned =
            made.warnings().join("").contains(&text("the load balancer of this Service"));
        assert_eq!(is_warned, warned, "{kind}: {:?}", made.warnings());
    }
}

#[test]
fn a_short_name_of_kubevirt_means_its_kind() {
    let sheaf = Sheaf::start();
    let restore = json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
        "metadata": {"name": "back"},
        "spec": {
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"},
            "virtualMachineSnapshotName": "before",
        },
    });
    let path = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores";
    sheaf.http().post(path, &restore).ok();
    let output = sheaf.kubectl().output("get vmrestore back -o name", "");
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(warnings, "", "there is no second meaning to warn of");
    let name = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(name.trim(), "virtualmachinerestore.snapshot.kubevirt.io/back");
}
