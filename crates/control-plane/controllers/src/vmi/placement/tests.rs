use serde_json::json;

use super::*;
use crate::vmi::requests::requests;

fn node(name: &str, changes: Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (pointer, value) in entries(&changes, "") {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        node.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    node
}

fn spec(changes: Value) -> Value {
    let mut spec = json!({"domain": {"memory": {"guest": "1Gi"}}});
    for (field, value) in entries(&changes, "") {
        spec[field] = value.clone();
    }
    spec
}

fn tenant(node: &str, labels: Value) -> ScheduledInstance {
    let requests = requests(&json!({"spec": spec(json!({}))}));
    ScheduledInstance {
        namespace: "n".into(),
        labels,
        node: node.into(),
        requests,
        repels: Vec::new(),
    }
}

fn place(
    spec: &Value,
    reach: &[VolumeReach],
    nodes: &[Value],
    tenants: &[ScheduledInstance],
) -> String {
    let requests = requests(&json!({"spec": spec}));
    let labels = json!({"app": "a"});
    let wish =
        SchedulingRequest { namespace: "n", labels: &labels, spec, requests: &requests, reach };
    let tenants: Vec<&ScheduledInstance> = tenants.iter().collect();
    choose(&wish, nodes, &tenants).map_or_else(|error| error.to_string(), str::to_owned)
}

#[track_caller]
fn check(wanted: Value, changes: Value, expected: &str) {
    assert_eq!(place(&spec(wanted), &[], &[node("one", changes)], &[]), expected);
}

#[test]
fn a_node_that_meets_all_wishes_is_taken() {
    check(json!({}), json!({}), "one");
    check(json!({"nodeSelector": {"kubernetes.io/hostname": "one"}}), json!({}), "one");
    check(
        json!({"tolerations": [{"key": "k", "operator": "Exists"}]}),
        json!({"/spec/taints": [{"key": "k", "effect": "NoSchedule"}]}),
        "one",
    );
}

#[test]
fn unfit_nodes_are_explained_in_the_schedulers_words() {
    check(
        json!({}),
        json!({"/spec/unschedulable": true}),
        "0/1 nodes are available: 1 node(s) were unschedulable.",
    );
    let tainted = "0/1 nodes are available: 1 node(s) had untolerated taint(s).";
    let taints = json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
    check(json!({}), json!({"/spec/taints": taints}), tainted);
    let unready = json!([{"type": "Ready", "status": "Unknown"}]);
    check(json!({}), json!({"/status/conditions": unready}), tainted);
    let unwanted = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    check(json!({"nodeSelector": {"disk": "fast"}}), json!({}), unwanted);
    let pinned = json!({"domain": {"cpu": {"dedicatedCpuPlacement": true},
        "memory": {"guest": "1Gi"}}});
    let managed = |value: &str| json!({"/metadata/labels/cpumanager": value});
    check(pinned.clone(), managed("false"), unwanted);
    check(pinned, managed("true"), "one");
    check(json!({}), managed("false"), "one");
    let terms = json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": terms}});
    check(json!({"affinity": {"nodeAffinity": required}}), json!({}), unwanted);
    check(
        json!({"domain": {"cpu": {"cores": 64}, "memory": {"guest": "64Gi"}}}),
        json!({}),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
    );
    check(
        json!({}),
        json!({"/status/allocatable/pods": "0"}),
        "0/1 nodes are available: 1 Too many pods.",
    );
    assert_eq!(place(&spec(json!({})), &[], &[], &[]), "no nodes available to schedule pods");
}

#[test]
fn reasons_of_several_nodes_are_counted() {
    let nodes = [
        node("one", json!({"/spec/unschedulable": true})),
        node("two", json!({"/status/allocatable/memory": "1Gi"})),
        node("three", json!({"/spec/unschedulable": true})),
    ];
    assert_eq!(
        place(&spec(json!({})), &[], &nodes, &[]),
        "0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable."
    );
}

#[test]
fn resources_of_other_instances_are_not_free() {
    let tenants = [tenant("one", json!({})), tenant("one", json!({})), tenant("two", json!({}))];
    let nodes = [node("one", json!({})), node("two", json!({}))];
    assert_eq!(place(&spec(json!({})), &[], &nodes, &tenants), "two", "more is left there");
    let full: Vec<ScheduledInstance> = (0..3).map(|_| tenant("one", json!({}))).collect();
    assert_eq!(
        place(&spec(json!({})), &[], &nodes[..1], &full),
        "0/1 nodes are available: 1 Insufficient memory."
    );
}

#[test]
fn volumes_bind_their_machine_to_a_node() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname",
        "operator": "In", "values": ["two"]}]}]);
    let local = VolumeReach::Nodes(json!({"nodeSelectorTerms": terms}));
    let chosen = |name: &str| VolumeReach::Node(name.into());
    let place = |reach: &[VolumeReach]| place(&spec(json!({})), reach, &nodes, &[]);
    assert_eq!(place(std::slice::from_ref(&local)), "two");
    assert_eq!(place(&[chosen("two")]), "two");
    assert_eq!(
        place(&[local, chosen("one")]),
        "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
    );
}

fn near(kind: &str) -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "a"}}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[test]
fn neighbours_attract_and_repel() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let place =
        |wanted: Value, tenants: &[ScheduledInstance]| place(&spec(wanted), &[], &nodes, tenants);
    let friend = tenant("two", json!({"app": "a"}));
    let friends = std::slice::from_ref(&friend);
    assert_eq!(place(near("podAffinity"), friends), "two");
    assert_eq!(place(near("podAffinity"), &[]), "one", "the first of a group");
    assert_eq!(place(near("podAntiAffinity"), friends), "one");
    let both = [friend.clone(), tenant("one", json!({"app": "a"}))];
    assert_eq!(
        place(near("podAntiAffinity"), &both),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    );
    let mut shy = tenant("one", json!({}));
    shy.repels = list(
        &near("podAntiAffinity"),
        "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution",
    )
    .to_vec();
    assert_eq!(place(json!({}), &[shy]), "two", "it keeps others away as well");
}

#[test]
fn instances_are_spread() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let constraint = json!({"topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}});
    let wanted = spec(json!({"topologySpreadConstraints": [constraint]}));
    let friend = tenant("one", json!({"app": "a"}));
    assert_eq!(place(&wanted, &[], &nodes, std::slice::from_ref(&friend)), "two");
    assert_eq!(
        place(
            &wanted,
            &[],
            &[nodes[0].clone(), node("two", json!({"/spec/unschedulable": true}))],
            &[friend]
        ),
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, \
         1 node(s) were unschedulable."
    );
}

#[test]
fn preferences_decide_between_fit_nodes() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let preferred = json!([{"weight": 5, "preference": {"matchFields": [{"key": "metadata.name",
        "operator": "In", "values": ["two"]}]}}]);
    let wanted = spec(json!({"affinity": {"nodeAffinity":
        {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}));
    let tenants = [tenant("two", json!({}))];
    assert_eq!(place(&wanted, &[], &nodes, &tenants), "two");
}
