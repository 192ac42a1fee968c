//! Actions on a machine that runs, on its volumes and on its node.

use serde_json::{Value, json};

use crate::harness::{Http, Reply, assert_has, eventually, poll};
use crate::volume::web::{Fault, Web};
use crate::volumes_node::lab::{CLAIMS, Lab};

const MACHINE: &str = "/v1/harvester/kubevirt.io.virtualmachines/default/a";
const INSTANCE: &str = "/v1/harvester/kubevirt.io.virtualmachineinstances/default/a";
const VOLUME: &str = "/v1/harvester/persistentvolumeclaims/default/a-root";
const SNAPSHOTS: &str = "/v1/harvester/snapshot.storage.k8s.io.volumesnapshots/default";
const IMAGES: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";
const TEMPLATES: &str = "/v1/harvester/harvesterhci.io";

/// A machine with a disk from the image `pulse` and an empty CD-ROM drive.
fn machine(class: &str) -> Value {
    let claim = json!({
        "metadata": {"name": "a-root", "annotations": {"harvesterhci.io/imageId": "default/pulse"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "storageClassName": class, "resources": {"requests": {"storage": "16Mi"}}},
    });
    json!({
        "type": "kubevirt.io.virtualmachine",
        "metadata": {"name": "a", "namespace": "default",
            "annotations": {"harvesterhci.io/volumeClaimTemplates": json!([claim]).to_string()}},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 5,
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "a-root"}}],
            "domain": {
                "cpu": {"cores": 1}, "resources": {"limits": {"cpu": 1, "memory": "128Mi"}},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}},
                        {"name": "cd", "cdrom": {"bus": "sata"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
        }}},
    })
}

struct Test {
    lab: Lab,
    http: Http,
}

impl Test {
    /// A node, an image and a machine that has booted from it.
    fn start() -> Self {
        let lab = Lab::start();
        let http = lab.node.sheaf.http();
        let web = Web::start();
        web.put("pulse.qcow2", lab.pulse_qcow2(), Fault::None);
        lab.node.sheaf.run(&format!("image import pulse {}", web.url("pulse.qcow2")));
        let image = http.get(&format!("{IMAGES}/pulse")).ok();
        assert!(image["links"]["download"].is_string(), "{image}");
        let class = image["status"]["storageClassName"].as_str().unwrap();
        let machines = MACHINE.trim_end_matches("/a");
        http.post(machines, &machine(class)).ok();
        lab.node.until_said("boot 1");
        Self { lab, http }
    }

    fn act(&self, path: &str, action: &str, body: &Value) -> Reply {
        self.http.post(&format!("{path}?action={action}"), body)
    }

    #[track_caller]
    fn done(&self, path: &str, action: &str, body: &Value) {
        let reply = self.act(path, action, body);
        assert_eq!(reply.status, 204, "{action}: {}", reply.text());
    }

    #[track_caller]
    fn impossible(&self, path: &str, action: &str, body: &Value, why: &str) {
        let reply = self.act(path, action, body);
        assert_eq!(reply.status, 500, "{action}: {}", reply.text());
        assert_has(reply.text(), why);
    }

    /// Waits until an action is possible.
    #[track_caller]
    fn until_possible(&self, path: &str, action: &str) -> Value {
        poll(&format!("{action} is possible"), || {
            let shown = self.http.get(path).json();
            if shown["actions"][action].is_string() { Ok(shown) } else { Err(shown.to_string()) }
        })
    }

    #[track_caller]
    fn until_imported(&self, part: &str) {
        poll(&format!("an image {part} is complete"), || {
            let list = self.http.get(IMAGES).ok();
            let mut images = list["data"].as_array().into_iter().flatten();
            let named = |own: &&Value| own["spec"]["displayName"].to_string().contains(part);
            let found = images.find(named).cloned().unwrap_or_default();
            if found["links"]["download"].is_string() { Ok(()) } else { Err(list.to_string()) }
        });
    }
}

#[test]
fn a_running_guest_its_volumes_and_its_node_are_controlled_by_actions() {
    let test = Test::start();
    the_guest_is_paused_and_rebooted(&test);
    a_disc_is_inserted_and_ejected(&test);
    a_template_has_the_data_of_the_machine(&test);
    one_node_is_not_enough(&test);
    the_volume_is_captured_copied_and_exported(&test);
    let nothing = json!({});
    test.done(MACHINE, "forceStop", &nothing);
    test.lab.node.until_empty();
    assert_eq!(test.http.get(MACHINE).ok()["spec"]["runStrategy"], "Halted");
}

fn the_guest_is_paused_and_rebooted(test: &Test) {
    let nothing = json!({});
    let shown = test.until_possible(MACHINE, "pause");
    assert_eq!(shown["actions"].get("unpause"), None, "{shown}");
    test.done(MACHINE, "pause", &nothing);
    let shown = test.until_possible(MACHINE, "unpause");
    assert_eq!(shown["actions"].get("softreboot"), None, "{shown}");
    test.done(MACHINE, "unpause", &nothing);
    test.until_possible(MACHINE, "softreboot");
    // Without an agent in the guest the power button does it.
    test.done(MACHINE, "softreboot", &nothing);
    test.lab.node.until_said("boot 2");
    test.until_possible(MACHINE, "restart");
    test.done(MACHINE, "restart", &nothing);
    test.lab.node.until_said("boot 3");
}

fn a_disc_is_inserted_and_ejected(test: &Test) {
    test.until_possible(MACHINE, "insertCdRomVolume");
    let disc = json!({"DeviceName": "cd", "imageName": "default/pulse"});
    test.done(MACHINE, "insertCdRomVolume", &disc);
    let shown = test.until_possible(MACHINE, "ejectCdRomVolume");
    assert_eq!(shown["actions"].get("insertCdRomVolume"), None, "{shown}");
    let volumes = &shown["spec"]["template"]["spec"]["volumes"];
    let claim = volumes[1]["persistentVolumeClaim"]["claimName"].as_str().unwrap().to_owned();
    poll("the disc is in the drive", || {
        let instance = test.http.get(INSTANCE).json();
        let mut volumes = instance["status"]["volumeStatus"].as_array().into_iter().flatten();
        let is_in = volumes.any(|own| own["name"] == "cd" && own["phase"] == "Ready");
        if is_in { Ok(()) } else { Err(instance["status"].to_string()) }
    });
    let reply = test.act(MACHINE, "ejectCdRomVolume", &json!({"deviceName": "root"}));
    assert_eq!(reply.status, 422, "{}", reply.text());
    assert_has(reply.text(), "can not find the SATA CD-ROM device");
    test.done(MACHINE, "ejectCdRomVolume", &json!({"deviceName": "cd"}));
    test.until_possible(MACHINE, "insertCdRomVolume");
    eventually("the claim of the disc is gone", || {
        test.http.get(&format!("{CLAIMS}/{claim}")).status == 404
    });
}

fn a_template_has_the_data_of_the_machine(test: &Test) {
    test.until_possible(MACHINE, "createTemplate");
    let template = json!({"name": "base", "description": "d", "withData": true});
    test.done(MACHINE, "createTemplate", &template);
    let path = format!("{TEMPLATES}.virtualmachinetemplates/default/base");
    assert_eq!(test.http.get(&path).ok()["spec"]["description"], "d");
    test.until_imported("templateversion-base-");
    let versions = test.http.get(&format!("{TEMPLATES}.virtualmachinetemplateversions")).ok();
    let vm = &versions["data"][0]["spec"]["vm"];
    let claims = vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str();
    assert_has(claims.unwrap(), "default/templateversion-base-");
}

/// Actions that need a second node are refused with the reason.
fn one_node_is_not_enough(test: &Test) {
    let any = json!({"nodeName": ""});
    test.impossible(MACHINE, "migrate", &any, "no matching migratable nodes found");
    let none = json!({});
    test.impossible(MACHINE, "abortMigration", &none, "The VM is not in migrating state");
    let node = "/v1/harvester/nodes/one";
    let shown = test.http.get(node).ok();
    assert!(shown["actions"]["enableMaintenanceMode"].is_string(), "{shown}");
    assert_eq!(shown["actions"].get("disableMaintenanceMode"), None);
    let force = json!({"force": "false"});
    test.impossible(node, "enableMaintenanceMode", &force, "single controlplane cluster");
    let why = "Node one is not in maintenance mode";
    test.impossible(node, "disableMaintenanceMode", &none, why);
}

fn the_volume_is_captured_copied_and_exported(test: &Test) {
    test.until_possible(VOLUME, "snapshot");
    test.done(VOLUME, "snapshot", &json!({"name": "s"}));
    let snapshot = format!("{SNAPSHOTS}/s");
    let shown = test.until_possible(&snapshot, "restore");
    let owner = &shown["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("PersistentVolumeClaim"), &json!("a-root"))
    );
    test.done(&snapshot, "restore", &json!({"name": "back"}));
    test.lab.until_bound("back");
    let other = json!({"name": "other", "storageClassName": "harvester-longhorn"});
    let reply = test.act(&snapshot, "restore", &other);
    assert_eq!(reply.status, 422, "{}", reply.text());
    test.done(VOLUME, "clone", &json!({"name": "copy"}));
    test.lab.until_bound("copy");
    let export = json!({"displayName": "exported", "namespace": "default",
        "storageClassName": "harvester-longhorn"});
    let reply = test.act(VOLUME, "export", &export);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["spec"]["pvcName"], "a-root");
    test.until_imported("exported");
}
