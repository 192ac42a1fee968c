//! A flood of requests from one client leaves the others served, and priority levels are
//! respected.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Hook, Http, Said, Sheaf, assert_has, eventually};

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A user who may read config maps, with a token.
fn config_reader(server: &Sheaf, name: &str) -> Http {
    let token = server.run(&format!("token create --user {name}"));
    let http = server.bearer(token.trim());
    let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    server.http().post(rbac, &binding).ok();
    eventually("the token is known", || http.get(MAPS).status == 200);
    http
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

#[test]
fn answers_say_where_their_request_belonged() {
    let server = Sheaf::start();
    let admin = server.http();
    let get = |path: &str| admin.get(&format!("{FLOW}/{path}")).ok();
    let reply = admin.get(MAPS);
    assert_eq!(reply.header("x-kubernetes-pf-flowschema-uid"), uid(&get("flowschemas/exempt")));
    let jane = config_reader(&server, "jane");
    let reply = jane.get(MAPS);
    let (schema, level) =
        (get("flowschemas/global-default"), get("prioritylevelconfigurations/global-default"));
    assert_eq!(reply.header("x-kubernetes-pf-flowschema-uid"), uid(&schema));
    assert_eq!(reply.header("x-kubernetes-pf-prioritylevel-uid"), uid(&level));

    // A schema of one's own counts from the moment it is there.
    let own = json!({"metadata": {"name": "for-jane"}, "spec": {
        "priorityLevelConfiguration": {"name": "workload-high"}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"],
                "namespaces": ["default"]}]}]}});
    let own = admin.post(&format!("{FLOW}/flowschemas"), &own).ok();
    assert_eq!(jane.get(MAPS).header("x-kubernetes-pf-flowschema-uid"), uid(&own));
    assert_eq!(
        jane.get("/api/v1/namespaces/default/services").header("x-kubernetes-pf-flowschema-uid"),
        uid(&schema)
    );
}

#[test]
fn a_request_without_a_seat_is_asked_to_retry() {
    let server = Sheaf::start();
    let admin = server.http();
    let level = json!({"metadata": {"name": "tiny"}, "spec": {"type": "Limited",
        "limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}}});
    admin.post(&format!("{FLOW}/prioritylevelconfigurations"), &level).ok();
    let jane = config_reader(&server, "jane");
    let schema = json!({"metadata": {"name": "jane"}, "spec": {
        "priorityLevelConfiguration": {"name": "tiny"}, "matchingPrecedence": 50,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "namespaces": ["*"], "clusterScope": true}]}]}});
    admin.post(&format!("{FLOW}/flowschemas"), &schema).ok();
    let reply = jane.get(MAPS);
    assert_eq!((reply.status, reply.header("retry-after")), (429, "1"));
    assert_has(reply.text(), "Too many requests, please try again later.");
    let joe = config_reader(&server, "joe");
    assert_eq!(joe.get(MAPS).status, 200);
    assert_has(admin.get("/metrics").text(), "apiserver_flowcontrol_rejected_requests_total 1");
}

#[test]
fn a_flood_is_served_and_so_are_all_others() {
    let server = Sheaf::start();
    let (noisy, quiet) = (config_reader(&server, "noisy"), config_reader(&server, "quiet"));
    let (over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if noisy.get(MAPS).status == 200 {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for index in 0..40 {
            let map = json!({"metadata": {"name": format!("m{index}")}});
            quiet.post(MAPS, &map).ok();
            assert_eq!(quiet.get(&format!("{MAPS}/m{index}")).status, 200);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(answered.load(Ordering::Relaxed) > 0);
    let metrics = server.http().get("/metrics").text();
    for part in [
        "apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\"",
        "apiserver_request_duration_seconds_bucket{",
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"}",
        "apiserver_longrunning_requests{verb=\"WATCH\"}",
        "apiserver_storage_objects{resource=\"configmaps\"}",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"global-default\"}",
        "apiserver_request_sli_duration_seconds_bucket{",
        "workqueue_adds_total{name=\"namespace\"}",
        "workqueue_queue_duration_seconds_bucket{name=\"namespace\"",
        "process_resident_memory_bytes ",
        "kubernetes_build_info{git_version=\"v",
    ] {
        assert_has(&metrics, part);
    }
}

#[test]
fn requests_that_wait_for_a_slow_webhook_do_not_block_others() {
    let hook = Hook::start(|_| Said::Nothing);
    let server = Sheaf::start();
    let jane = config_reader(&server, "jane");
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": hook.url("/"), "caBundle": hook.bundle()}, "timeoutSeconds": 30,
        "objectSelector": {"matchLabels": {"slow": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE"]}],
    }]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    server.http().post(hooks, &configuration).ok();
    // More than there are seats for.
    let many = 20 * thread::available_parallelism().unwrap().get();
    thread::scope(|scope| {
        for number in 0..many {
            let jane = jane.clone();
            let slow =
                json!({"metadata": {"name": format!("slow-{number}"), "labels": {"slow": "yes"}}});
            scope.spawn(move || jane.post(MAPS, &slow).refused(500));
        }
        eventually("all of them wait for the webhook", || hook.asked().len() == many);
        jane.post(MAPS, &json!({"metadata": {"name": "quick"}})).ok();
        // Now they learn that there is no webhook any longer.
        drop(hook);
    });
}
