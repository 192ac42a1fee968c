//! Usage and scopes, case by case.

use serde_json::json;

use super::*;

fn used(plural: &str, object: &Value) -> String {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let each: Vec<String> = usage("", plural, object, now)
        .iter()
        .map(|(name, quantity)| format!("{name}={quantity}"))
        .collect();
    each.join(" ")
}

fn container(requests: &Value) -> Value {
    json!({"resources": {"requests": requests}})
}

#[test]
fn every_name_belongs_to_one_kind() {
    let cases = [
        ("count/things.a.io", Some(("a.io", "things"))),
        ("count/secrets", Some(("", "secrets"))),
        ("pods", Some(("", "pods"))),
        ("limits.memory", Some(("", "pods"))),
        ("requests.hugepages-2Mi", Some(("", "pods"))),
        ("requests.nvidia.com/gpu", Some(("", "pods"))),
        ("services.nodeports", Some(("", "services"))),
        ("requests.storage", Some(("", "persistentvolumeclaims"))),
        ("gold.storageclass.storage.k8s.io/requests.storage", Some(("", "persistentvolumeclaims"))),
        ("limits.storage", None),
        ("nonsense", None),
    ];
    for (name, expected) in cases {
        assert_eq!(counted(name), expected, "{name}");
    }
}

#[test]
fn plain_objects_count_as_one() {
    assert_eq!(used("configmaps", &json!({})), "configmaps=1 count/configmaps=1");
    assert_eq!(used("endpoints", &json!({})), "count/endpoints=1");
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert!(usage("a.io", "things", &json!({}), now).contains_key("count/things.a.io"));
}

#[test]
fn services_count_ports_by_type() {
    let service = |kind: &str, allocate: bool| {
        json!({"spec": {"type": kind, "allocateLoadBalancerNodePorts": allocate,
            "ports": [{"port": 1}, {"port": 2, "nodePort": 30000}]}})
    };
    let cases = [
        ("ClusterIP", true, "services.loadbalancers=0 services.nodeports=0"),
        ("NodePort", true, "services.loadbalancers=0 services.nodeports=2"),
        ("LoadBalancer", true, "services.loadbalancers=1 services.nodeports=2"),
        ("LoadBalancer", false, "services.loadbalancers=1 services.nodeports=1"),
    ];
    for (kind, allocate, expected) in cases {
        let used = used("services", &service(kind, allocate));
        assert_eq!(used, format!("count/services=1 services=1 {expected}"), "{kind}");
    }
}

#[test]
fn claims_are_charged_to_their_class_too() {
    let claim = json!({"spec": {"storageClassName": "gold",
        "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"allocatedResources": {"storage": "12Gi"}}});
    assert_eq!(
        used("persistentvolumeclaims", &claim),
        "count/persistentvolumeclaims=1 \
         gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
         gold.storageclass.storage.k8s.io/requests.storage=12Gi \
         persistentvolumeclaims=1 requests.storage=12Gi"
    );
}

#[test]
fn storage_is_rounded_up_to_whole_bytes() {
    let claim = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}});
    assert!(used("persistentvolumeclaims", &claim).ends_with("requests.storage=2"));
}

#[test]
fn pods_sum_their_containers_and_peak_with_their_init_containers() {
    let pod = json!({"spec": {
        "containers": [container(&json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1})),
            container(&json!({"cpu": "500m"}))],
        "initContainers": [container(&json!({"memory": "3Gi"})),
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}],
        "overhead": {"cpu": "10m"}}});
    assert_eq!(
        used("pods", &pod),
        "count/pods=1 cpu=1610m memory=3Gi pods=1 requests.cpu=1610m requests.memory=3Gi \
         requests.nvidia.com/gpu=1"
    );
}

#[test]
fn a_figure_for_the_whole_pod_overrides_its_containers() {
    let pod = json!({"spec": {"resources": {"limits": {"cpu": "4"}},
        "containers": [{"resources": {"limits": {"cpu": "1"}}}]}});
    assert_eq!(used("pods", &pod), "count/pods=1 limits.cpu=4 pods=1");
}

#[test]
fn pods_that_ended_count_only_as_objects() {
    let ended = json!({"status": {"phase": "Succeeded"},
        "spec": {"containers": [container(&json!({"cpu": "1"}))]}});
    assert_eq!(used("pods", &ended), "count/pods=1");
    let overdue = json!({"metadata": {"deletionTimestamp": "2025-12-31T23:00:00Z",
        "deletionGracePeriodSeconds": 30}});
    assert_eq!(used("pods", &overdue), "count/pods=1");
    let leaving = json!({"metadata": {"deletionTimestamp": "2025-12-31T23:59:50Z",
        "deletionGracePeriodSeconds": 30}});
    assert_eq!(used("pods", &leaving), "count/pods=1 pods=1");
}

#[test]
fn scopes_choose_pods() {
    let best = json!({"spec": {"containers": [{}]}});
    let busy = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
        "containers": [container(&json!({"cpu": "1"}))]}});
    let cases = [
        ("BestEffort", true, false),
        ("NotBestEffort", false, true),
        ("Terminating", false, true),
        ("NotTerminating", true, false),
        ("PriorityClass", false, true),
        ("CrossNamespacePodAffinity", false, false),
    ];
    for (scope, on_best, on_busy) in cases {
        let quota = json!({"spec": {"scopes": [scope]}});
        assert_eq!(in_scope(&quota, "", "pods", &best), on_best, "{scope}");
        assert_eq!(in_scope(&quota, "", "pods", &busy), on_busy, "{scope}");
        assert!(!in_scope(&quota, "", "services", &json!({})), "{scope} is for pods");
    }
    assert!(in_scope(&json!({"spec": {}}), "", "services", &json!({})));
}

#[test]
fn a_scope_selector_compares_the_class() {
    let pod = |class: &str| json!({"spec": {"priorityClassName": class}});
    let quota = |operator: &str, values: &[&str]| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}}})
    };
    let cases = [
        ("In", "high", true),
        ("In", "low", false),
        ("NotIn", "low", true),
        ("NotIn", "", true),
        ("Exists", "", false),
        ("DoesNotExist", "", true),
    ];
    for (operator, class, expected) in cases {
        let found = in_scope(&quota(operator, &["high"]), "", "pods", &pod(class));
        assert_eq!(found, expected, "{operator} {class}");
    }
}

#[test]
fn containers_must_state_what_is_limited() {
    let hard = |names: &[&str]| {
        let one = Quantity::from_units(1);
        names.iter().map(|&name| (name.to_owned(), one.clone())).collect::<Amounts>()
    };
    let pod = json!({"spec": {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}],
        "initContainers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}],
    }});
    let cases: [(&[&str], Option<&str>); 6] = [
        (&["requests.cpu"], Some("must specify requests.cpu for: b,c")),
        (&["cpu", "limits.memory"], Some("must specify cpu for: b,c; limits.memory for: a,b")),
        (&["pods", "count/pods", "requests.storage"], None),
        (&["requests.example.com/gpu", "ephemeral-storage"], None),
        (&["limits.cpu"], Some("must specify limits.cpu for: a,b,c")),
        (&[], None),
    ];
    for (names, expected) in cases {
        assert_eq!(unstated(&hard(names), "", "pods", &pod).as_deref(), expected, "{names:?}");
    }
    let whole =
        json!({"spec": {"resources": {"requests": {"cpu": "1"}}, "containers": [{"name": "a"}]}});
    assert_eq!(unstated(&hard(&["cpu"]), "", "pods", &whole), None);
    assert_eq!(unstated(&hard(&["cpu"]), "", "services", &pod), None);
}
