//! `metrics.k8s.io`: the current usage of nodes and machines. `metrics.sheaf.io`: their recent
//! usage.

use serde_json::{Value, json};

use crate::harness::{Node, assert_has, poll};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const SERIES: &str = "/apis/metrics.sheaf.io/v1";

#[test]
fn kubectl_top_shows_nodes_and_machines() {
    let node = Node::start();
    let kubectl = node.kubectl();
    let disk = node.disk("a.img");
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {
                "memory": {"guest": "16Mi"},
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            },
            "volumes": [{"name": "root", "hostDisk": {"path": disk, "type": "Disk"}}],
        }}},
    });
    kubectl.apply(&machine.to_string());
    let instance = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
    node.until(instance, "/status/phase", "Running");
    let http = node.sheaf.http();
    let nodes = http.get(&format!("{METRICS}/nodes")).ok();
    assert_eq!(nodes["items"][0]["metadata"]["name"], "one");
    let used = |usage: &Value| {
        let number = |text: &Value, unit: &str| {
            let text = text.as_str().and_then(|text| text.strip_suffix(unit)).unwrap_or("");
            text.parse::<u64>().unwrap()
        };
        (number(&usage["cpu"], "n"), number(&usage["memory"], "Ki"))
    };
    let (cpu, memory) = used(&nodes["items"][0]["usage"]);
    assert!(cpu > 0 && memory > 0, "{nodes}");
    let pods = poll("the machine is counted", || {
        let pods = http.get(&format!("{METRICS}/namespaces/default/pods")).ok();
        if pods["items"][0].is_object() { Ok(pods) } else { Err(pods.to_string()) }
    });
    let container = &pods["items"][0]["containers"][0];
    assert_eq!(container["name"], "compute");
    assert!(used(&container["usage"]).1 > 1024, "{pods}");
    assert_eq!(http.get(&format!("{METRICS}/nodes/absent")).status, 404);
    assert_has(kubectl.run("top nodes --no-headers"), "one");
    assert_has(kubectl.run("top pods --no-headers"), "virt-launcher-a");
    node.sheaf.anonymous().get(&format!("{METRICS}/nodes")).refused(403);
    let series = |path: &str| {
        poll("there are samples", || {
            let reply = http.get(&format!("{SERIES}/{path}"));
            if reply.status == 404 {
                return Err(reply.text());
            }
            let series = reply.ok();
            if series["values"][1][0].is_number() { Ok(series) } else { Err(series.to_string()) }
        })
    };
    assert_eq!(series("nodes/one/series")["step"], 10);
    let machine = series("namespaces/default/virtualmachineinstances/a/series?span=24h");
    assert_eq!(
        (machine["step"].as_u64(), machine["columns"][1].as_str()),
        (Some(300), Some("memory"))
    );
    assert_eq!(http.get(&format!("{SERIES}/nodes/absent/series")).status, 404);
    assert_eq!(http.get(&format!("{SERIES}/nodes/one/series?span=2h")).status, 400);
    node.sheaf.anonymous().get(&format!("{SERIES}/nodes/one/series")).refused(403);
}
