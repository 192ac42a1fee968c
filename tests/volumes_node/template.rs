//! Templates made of machines, as `virtctl template create` requests them.

use serde_json::{Value, json};

use super::lab::{DATA_VOLUMES, Lab, VMIS, VMS, machine};
use crate::harness::poll;

const TEMPLATES: &str = "/apis/template.kubevirt.io/v1beta1/namespaces/default";

#[test]
fn a_running_machine_becomes_a_template_that_others_are_made_of() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let root = lab.claim("root", "16Mi");
    lab.write_pulse(&root);
    lab.node.kubectl().apply(&machine("a", "root", "Always"));
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");
    let request = json!({
        "apiVersion": "template.kubevirt.io/v1beta1", "kind": "VirtualMachineTemplateRequest",
        "metadata": {"generateName": "a-"},
        "spec": {"templateName": "golden",
            "virtualMachineRef": {"namespace": "default", "name": "a"}},
    });
    let requests = format!("{TEMPLATES}/virtualmachinetemplaterequests");
    let made = http.post(&requests, &request).ok();
    let path = format!("{requests}/{}", made["metadata"]["name"].as_str().unwrap());
    poll("the template is ready", || {
        let request = http.get(&path).ok();
        let ready = &request["status"]["conditions"][0];
        let is_ready = ready["type"] == "Ready" && ready["status"] == "True";
        if is_ready { Ok(()) } else { Err(request["status"].to_string()) }
    });
    assert_eq!(http.get(&path).ok()["status"]["templateRef"]["name"], "golden");
    lab.node.until(&format!("{DATA_VOLUMES}/golden-root"), "/status/phase", "Succeeded");
    let snapshots = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
    poll("the snapshot is deleted", || {
        let left = http.get(snapshots).ok()["items"].as_array().map_or(0, Vec::len);
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    });
    // The template outlives the machine.
    http.delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    let template = http.get(&format!("{TEMPLATES}/virtualmachinetemplates/golden")).ok();
    let text = template["spec"]["virtualMachine"].to_string().replace("${NAME}", "b");
    let machine: Value = serde_json::from_str(&text).unwrap();
    http.post(VMS, &machine).ok();
    lab.node.until(&format!("{VMIS}/b"), "/status/phase", "Running");
    // The disk was captured after the first boot.
    lab.node.until_said("boot 2");
    http.delete(&format!("{VMS}/b")).ok();
    lab.node.until_empty();
}
