//! Quotas, limit ranges, addresses, leases and the life of events.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually};

fn pod(name: &str, resources: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["ports"] = json!([{"port": 80}]);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Waits until the quota has counted what exists.
fn counted(http: &Http, name: &str, field: &str) {
    eventually("the quota is counted", || {
        let quota = http.get(&format!("/api/v1/namespaces/default/resourcequotas/{name}")).ok();
        quota["status"]["used"].get(field).is_some()
    });
}

#[test]
fn a_quota_is_never_exceeded() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"secrets": "3", "count/leases.coordination.k8s.io": "1"}},
    });
    http.post("/api/v1/namespaces/default/resourcequotas", &quota).ok();
    counted(&http, "few", "secrets");
    let secrets = "/api/v1/namespaces/default/secrets";
    // All at once: the count must hold under a race as well.
    let outcomes: Vec<u16> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let http = http.clone();
            scope.spawn(move || {
                let name = format!("s{number}");
                let secret =
                    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
                http.post(secrets, &secret).status
            })
        };
        let running: Vec<_> = (0..8).map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|&&code| code == 201).count(), 3, "{outcomes:?}");
    assert!(outcomes.iter().all(|code| matches!(code, 201 | 403)), "{outcomes:?}");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "more"}});
    let refused = http.post(secrets, &secret).refused(403);
    assert_has(
        refused,
        "exceeded quota: few, requested: secrets=1, used: secrets=3, limited: secrets=3",
    );
    let made = http.get(secrets).ok()["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    http.delete(&format!("{secrets}/{made}")).ok();
    eventually("there is room again", || http.post(secrets, &secret).status == 201);
}

#[test]
fn a_quota_of_compute_wants_requests() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu"},
        "spec": {"hard": {"requests.cpu": "1", "pods": "5"}},
    });
    http.post("/api/v1/namespaces/default/resourcequotas", &quota).ok();
    counted(&http, "cpu", "requests.cpu");
    assert_has(http.post(PODS, &pod("bare", json!({}))).refused(403), "must specify requests.cpu");
    http.post(PODS, &pod("half", json!({"requests": {"cpu": "600m"}}))).ok();
    let refused = http.post(PODS, &pod("more", json!({"requests": {"cpu": "600m"}}))).refused(403);
    assert_has(
        refused,
        "requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1",
    );
}

#[test]
fn a_limit_range_fills_in_and_refuses() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"},
        "spec": {"limits": [{
            "type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"},
            "max": {"cpu": "1"}, "min": {"cpu": "50m"},
        }]},
    });
    http.post("/api/v1/namespaces/default/limitranges", &range).ok();
    let filled = http.post(PODS, &pod("a", json!({}))).ok();
    assert_eq!(
        filled["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    let refused = http.post(PODS, &pod("b", json!({"limits": {"cpu": "2"}}))).refused(403);
    assert_has(refused, "maximum cpu usage per Container is 1, but limit is 2");
    let refused = http.post(PODS, &pod("c", json!({"requests": {"cpu": "10m"}}))).refused(403);
    assert_has(refused, "minimum cpu usage per Container is 50m, but request is 10m");
}

#[test]
fn services_get_addresses_of_their_own() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let own = http.get(&format!("{SERVICES}/kubernetes")).ok();
    assert_eq!(own["spec"]["clusterIP"], "10.53.0.1");
    let a = http.post(SERVICES, &service("a", json!({}))).ok();
    let b = http.post(SERVICES, &service("b", json!({}))).ok();
    let address = |service: &Value| service["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address(&a).starts_with("10.53."), "{a}");
    assert_ne!(address(&a), address(&b));
    assert_eq!(a["spec"]["clusterIPs"], json!([address(&a)]));
    assert_eq!(a["spec"]["type"], "ClusterIP");
    let taken = http.post(SERVICES, &service("c", json!({"clusterIP": address(&a)}))).refused(422);
    assert_has(taken, "provided IP is already allocated");
    let outside =
        http.post(SERVICES, &service("c", json!({"clusterIP": "192.0.2.1"}))).refused(422);
    assert_has(outside, "spec.clusterIPs");
    http.delete(&format!("{SERVICES}/a")).ok();
    let again = http.post(SERVICES, &service("c", json!({"clusterIP": address(&a)}))).ok();
    assert_eq!(address(&again), address(&a));
    let headless = http.post(SERVICES, &service("d", json!({"clusterIP": "None"}))).ok();
    assert_eq!(headless["spec"]["clusterIP"], "None");
    let port = http.post(SERVICES, &service("e", json!({"type": "NodePort"}))).ok();
    let port = port["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30000..=32767).contains(&port), "{port}");
}

#[test]
fn events_are_forgotten() {
    let sheaf = Sheaf::with(&["--event-ttl=2"]);
    let http = sheaf.http();
    let events = "/api/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "default"},
        "reason": "R", "message": "m", "type": "Normal",
    });
    // From before it was written: it may be gone when a busy machine begins to watch.
    let before = http.get(events).ok()["metadata"]["resourceVersion"].clone();
    let before = before.as_str().unwrap();
    http.post(events, &event).ok();
    let selected = format!("{events}?fieldSelector=metadata.name=e&resourceVersion={before}");
    let mut watch = http.watch(&selected);
    assert_eq!(watch.next()["type"], "ADDED");
    assert_eq!(watch.change()["type"], "DELETED", "watchers see it go");
    http.get(&format!("{events}/e")).refused(404);
}

#[test]
fn a_lease_has_one_winner() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lead"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"},
    });
    let live = http.post(leases, &lease).ok();
    assert_eq!(live["spec"]["renewTime"], "2026-01-01T00:00:00.000001Z");
    let outcomes: Vec<u16> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let (http, mut mine) = (http.clone(), live.clone());
            mine["spec"]["holderIdentity"] = json!(format!("candidate-{number}"));
            scope.spawn(move || http.put(&format!("{leases}/lead"), &mine).status)
        };
        let running: Vec<_> = (0..6).map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|&&code| code == 200).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|code| matches!(code, 200 | 409)), "{outcomes:?}");
}

#[test]
fn names_are_generated_and_versions_compared() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let maps = "/api/v1/namespaces/default/configmaps";
    let generated =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}});
    let [one, two] = [(); 2].map(|()| http.post(maps, &generated).ok());
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    let name = one["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), "gen-".len() + 5);
    let mut first = one.clone();
    first["data"] = json!({"a": "1"});
    http.put(&format!("{maps}/{name}"), &first).ok();
    let conflict = http.put(&format!("{maps}/{name}"), &first).refused(409);
    assert_has(
        conflict,
        "the object has been modified; please apply your changes to the latest version and try again",
    );
    let mut recreated = one.clone();
    recreated["metadata"]["resourceVersion"] = json!("");
    recreated["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    assert_has(
        http.put(&format!("{maps}/{name}"), &recreated).refused(409),
        "Precondition failed: UID in precondition",
    );
    let dry = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry"}});
    assert!(http.post(&format!("{maps}?dryRun=All"), &dry).ok()["metadata"]["uid"].is_string());
    http.get(&format!("{maps}/dry")).refused(404);
    http.post(&format!("{maps}?dryRun=Some"), &dry).refused(422);
}
