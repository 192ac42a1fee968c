//! Draining a node: evictions of launcher pods, with real kubectl and real guests.

use serde_json::{Value, json};

use crate::harness::{Node, eventually};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn machine(node: &Node, strategy: &str, spec: &str, domain: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: a}}
spec:
  runStrategy: {strategy}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      {spec}
      domain:
        memory: {{guest: 16Mi}}
        devices:
          disks: [{{name: root, disk: {{bus: virtio}}}}]
        {domain}
      volumes:
      - name: root
        hostDisk: {{path: {}, type: Disk}}
",
        node.disk("a.img").display()
    )
}

fn pod(node: &Node) -> Value {
    let pods = node.sheaf.http().get(PODS).json();
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    pods[0].clone()
}

#[test]
fn a_drained_node_has_no_guests_until_it_is_uncordoned() {
    for strategy in ["Always", "RerunOnFailure"] {
        let node = Node::start();
        let kubectl = node.kubectl();
        kubectl.apply(&machine(&node, strategy, "", ""));
        node.until(VMIS, "/status/phase", "Running");
        node.until_said("boot 1");
        let drained = kubectl.run("drain one --timeout=600s");
        assert!(drained.contains("evicted") && drained.contains("drained"), "{drained}");
        assert!(node.processes().is_empty(), "{strategy}: a drained node runs a guest");
        node.until(VMS, "/status/printableStatus", "ErrorUnschedulable");
        assert_eq!(node.sheaf.http().get(PODS).json()["items"], json!([]));
        kubectl.run("uncordon one");
        node.until(VMS, "/status/printableStatus", "Running");
        node.until_said("boot 2");
    }
}

#[test]
fn an_eviction_that_the_strategy_forbids_is_refused_in_kubevirts_words() {
    let webhook = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the \
                   request: ";
    let triggered = "Eviction triggered evacuation of VMI \"default/a\"";
    let table = [
        ("LiveMigrate", "VMI a is configured with an eviction strategy but is not live-migratable"),
        ("External", triggered),
    ];
    for (strategy, message) in table {
        let node = Node::start();
        let spec = format!("evictionStrategy: {strategy}");
        node.kubectl().apply(&machine(&node, "Always", &spec, ""));
        node.until(VMIS, "/status/phase", "Running");
        let pod = pod(&node);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let evict = |options: Value| {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name}, "deleteOptions": options});
            node.sheaf.http().post(&format!("{PODS}/{name}/eviction"), &eviction)
        };
        let dry = evict(json!({"dryRun": ["All"]}));
        assert_eq!(dry.status, 429, "{}", dry.text());
        let marked = || {
            let vmi = node.sheaf.http().get(VMIS).json();
            vmi["status"]["evacuationNodeName"].clone()
        };
        assert_eq!(marked(), Value::Null, "a dry run changes nothing");
        let reply = evict(json!({}));
        assert_eq!(reply.status, 429, "{}", reply.text());
        assert_eq!(reply.json()["message"], format!("{webhook}{message}"));
        if strategy == "External" {
            assert_eq!(marked(), "one");
            let again = evict(json!({})).json();
            let expected = format!("{webhook}Evacuation in progress: {triggered}");
            assert_eq!(again["message"], expected);
            let cancel = "/apis/subresources.kubevirt.io/v1/namespaces/default/\
                          virtualmachineinstances/a/evacuate/cancel";
            let reply = node.sheaf.http().put(cancel, &json!({"evacuationNodeName": "one"}));
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(marked(), Value::Null);
        }
        assert_eq!(node.processes().len(), 1, "{strategy}: the guest runs on");
    }
}

#[test]
fn machines_with_limits_start_and_a_quota_sets_limits() {
    let node = Node::start();
    let kubectl = node.kubectl();
    let limited = "resources: {limits: {memory: 16Mi, cpu: 1}}";
    kubectl.apply(&machine(&node, "Always", "", limited));
    node.until(VMIS, "/status/phase", "Running");
    let resources = pod(&node)["spec"]["containers"][0]["resources"].clone();
    assert_eq!(resources["limits"]["memory"], resources["requests"]["memory"]);
    kubectl.run("delete vm a");
    node.until_empty();
    eventually("the pod is gone", || node.sheaf.http().get(PODS).json()["items"] == json!([]));

    kubectl.run("create quota q --hard=limits.memory=1Gi,limits.cpu=4");
    kubectl.apply(&machine(&node, "Always", "", ""));
    node.until(VMIS, "/status/phase", "Running");
    assert_eq!(pod(&node)["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A small machine that is not started again.
fn small(node: &Node, name: &str) -> String {
    let machine = machine(node, "Once", "", "");
    let named = machine.replace("metadata: {name: a}", &format!("metadata: {{name: {name}}}"));
    named.replace("a.img", &format!("{name}.img"))
}

#[test]
fn a_disruption_budget_refuses_the_eviction_of_the_last_healthy_pod() {
    let node = Node::start();
    let http = node.sheaf.http();
    let budget = json!({"metadata": {"name": "guard"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}}});
    assert_eq!(http.post(BUDGETS, &budget).status, 201);
    let counted = |healthy: i64| {
        eventually("the budget counts the pods", || {
            let status = node.sheaf.http().get(&format!("{BUDGETS}/guard")).json();
            status["status"]["currentHealthy"] == healthy
                && status["status"]["expectedPods"] == healthy
        });
    };
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name}});
        node.sheaf.http().post(&format!("{PODS}/{name}/eviction"), &eviction)
    };
    let machines = ["a", "b"].map(|name| small(&node, name));
    node.disk("b.img");
    node.kubectl().apply(&machines[0]);
    node.until(VMIS, "/status/phase", "Running");
    counted(1);
    let first = pod(&node)["metadata"]["name"].as_str().unwrap().to_owned();
    let reply = evict(&first);
    assert_eq!(reply.status, 429, "{}", reply.text());
    let refusal = reply.json();
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(refusal["message"], message);
    let cause = "The disruption budget guard needs 1 healthy pods and has 1 currently";
    assert_eq!(refusal["details"]["causes"][0]["message"], cause);

    node.kubectl().apply(&machines[1]);
    node.until(&VMIS.replace("instances/a", "instances/b"), "/status/phase", "Running");
    counted(2);
    let reply = evict(&first);
    assert_eq!(reply.status, 201, "{}", reply.text());
    counted(1);
    let left = pod(&node)["metadata"]["name"].as_str().unwrap().to_owned();
    assert_ne!(left, first);
    assert_eq!(evict(&left).status, 429);
}
