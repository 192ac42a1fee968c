//! The content of a template of a virtual machine, and the status of its request: pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use virt::api::template::VirtualMachineTemplateRequest;

use crate::condition::{self, Condition};
use crate::copied_spec::{remove, remove_identity, volumes_mut};
use crate::object::{controlled_by, list, name, namespace, text, uid};
use crate::populate::IMMEDIATE;

pub(super) const API: &str = "template.kubevirt.io/v1beta1";
const REQUEST: &str = "VirtualMachineTemplateRequest";
const TEMPLATE: &str = "VirtualMachineTemplate";
/// On a template: the request that it was created for.
pub(super) const REQUEST_UID: &str = "template.kubevirt.io/RequestUID";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The parameter that names a new machine, as text in the template.
const NAME: &str = "${NAME}";

/// The state of a template request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestProgress {
    /// An object that the request needs is missing or not ready.
    Waiting(String),
    Working(String),
    Failed(String),
    /// The template of this name is complete.
    Ready(String),
}

pub(super) fn template_name(request: &Value, own: &VirtualMachineTemplateRequest) -> String {
    let wanted = own.spec.template_name.clone().filter(|name| !name.is_empty());
    wanted.unwrap_or_else(|| name(request).to_owned())
}

pub(super) fn snapshot_name(request: &Value) -> String {
    format!("tmp-template-{}", uid(request))
}

pub(super) fn snapshot(request: &Value, machine: &str) -> Value {
    json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
        "metadata": {
            "name": snapshot_name(request), "namespace": namespace(request),
            "ownerReferences": [controlled_by(request, API, REQUEST)],
        },
        "spec": {"source": {
            "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine,
        }},
    })
}

/// The template of a machine as its snapshot captured it.
pub(super) fn template(
    request: &Value,
    own: &VirtualMachineTemplateRequest,
    content: &Value,
) -> Value {
    let captured = &content["spec"]["source"]["virtualMachine"];
    let template = template_name(request, own);
    let mut labels = json!(own.spec.template_labels);
    labels[REQUEST_UID] = json!(uid(request));
    json!({
        "apiVersion": API, "kind": TEMPLATE,
        "metadata": {"name": template, "namespace": namespace(request), "labels": labels},
        "spec": {
            "virtualMachine": machine(captured, content, namespace(request), &template),
            "parameters": [{
                "name": "NAME",
                "description": "Name of the new virtual machine",
                "generate": "expression",
                "from": format!("{}-[a-z0-9]{{5}}", name(captured)),
            }],
        },
    })
}

/// The machine with a parameter for its name, disks that are copied from those of the template,
/// and without what identifies one machine.
fn machine(captured: &Value, content: &Value, namespace: &str, template: &str) -> Value {
    let mut spec = captured["spec"].clone();
    let mut copies = Vec::new();
    for backup in backups(content) {
        let volume = text(backup, "/volumeName");
        copies.push(json!({
            "metadata": {"name": format!("{NAME}-{volume}")},
            "spec": {
                "source": {"pvc": {"namespace": namespace, "name": disk_name(template, volume)}},
                "storage": storage(backup),
            },
        }));
    }
    let is_copied = |name: &str| backups(content).any(|own| text(own, "/volumeName") == name);
    if let Some(volumes) = volumes_mut(&mut spec) {
        volumes.retain(|volume| volume.get("memoryDump").is_none());
        for volume in volumes.iter_mut().filter(|own| is_copied(text(own, "/name"))) {
            let own = text(volume, "/name").to_owned();
            *volume = json!({"name": own, "dataVolume": {"name": format!("{NAME}-{own}")}});
        }
    }
    spec["dataVolumeTemplates"] = json!(copies);
    remove_identity(&mut spec);
    let mut annotations = captured["metadata"]["annotations"].clone();
    remove(&mut annotations, LAST_APPLIED);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": NAME, "labels": captured["metadata"]["labels"], "annotations": annotations,
        },
        "spec": spec,
    })
}

fn disk_name(template: &str, volume: &str) -> String {
    format!("{template}-{volume}")
}

/// The disks of the machine that the snapshot holds.
fn backups(content: &Value) -> impl Iterator<Item = &Value> {
    let all = list(content, "/spec/volumeBackups").iter();
    all.filter(|backup| !text(backup, "/volumeSnapshotName").is_empty())
}

fn storage(backup: &Value) -> Value {
    let claim = &backup["persistentVolumeClaim"]["spec"];
    json!({
        "storageClassName": claim["storageClassName"],
        "accessModes": claim["accessModes"],
        "volumeMode": claim["volumeMode"],
        "resources": {"requests": claim["resources"]["requests"]},
    })
}

/// The disks of a template, as data volumes that belong to it.
pub(super) fn disks(template: &Value, content: &Value) -> Vec<Value> {
    backups(content)
        .map(|backup| {
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": {
                    "name": disk_name(name(template), text(backup, "/volumeName")),
                    "namespace": namespace(template),
                    "annotations": {IMMEDIATE: "true"},
                    "ownerReferences": [controlled_by(template, API, TEMPLATE)],
                },
                "spec": {
                    "source": {"snapshot": {
                        "namespace": namespace(template),
                        "name": text(backup, "/volumeSnapshotName"),
                    }},
                    "storage": storage(backup),
                },
            })
        })
        .collect()
}

/// The status of a request, as a patch.
pub(super) fn status(request: &Value, progress: &RequestProgress, now: Timestamp) -> Value {
    let (ready, working, reason, message) = match progress {
        RequestProgress::Waiting(why) => ("False", "True", "Waiting", why.clone()),
        RequestProgress::Working(what) => ("False", "True", "Reconciling", what.clone()),
        RequestProgress::Failed(why) => ("False", "False", "Failed", why.clone()),
        RequestProgress::Ready(name) => {
            let message = format!("VirtualMachineTemplate {name} was created");
            ("True", "False", "Reconciled", message)
        }
    };
    let mut conditions = condition::of(request);
    for (kind, status) in [("Ready", ready), ("Progressing", working)] {
        let wanted = Condition::new(kind, status).because(reason, message.clone());
        condition::set(&mut conditions, &wanted, now);
    }
    let mut status = json!({"conditions": conditions});
    if let RequestProgress::Ready(name) = progress {
        status["templateRef"] = json!({"name": name});
    }
    json!({"status": status})
}

/// The status of a template whose disks are complete.
pub(super) fn template_status(template: &Value, now: Timestamp) -> Value {
    let mut conditions = condition::of(template);
    let ready = Condition::new("Ready", "True").because("Reconciled", "The template can be used");
    condition::set(&mut conditions, &ready, now);
    json!({"status": {"conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> (Value, VirtualMachineTemplateRequest) {
        let object = json!({
            "metadata": {"name": "r", "namespace": "n", "uid": "u"},
            "spec": {"virtualMachineRef": {"namespace": "n", "name": "m"},
                "templateName": "t", "templateLabels": {"a": "b"}},
        });
        let own = serde_json::from_value(object.clone()).unwrap();
        (object, own)
    }

    fn content() -> Value {
        json!({"spec": {
            "source": {"virtualMachine": {
                "metadata": {"name": "m", "labels": {"x": "y"}, "uid": "v",
                    "annotations": {LAST_APPLIED: "{}", "k": "v"}},
                "spec": {"runStrategy": "Always", "dataVolumeTemplates": [{}], "template": {
                    "spec": {
                        "domain": {"firmware": {"uuid": "1", "serial": "2"}, "devices": {
                            "interfaces": [{"name": "default", "macAddress": "02:00"}]}},
                        "volumes": [
                            {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
                            {"name": "seed", "cloudInitNoCloud": {}},
                        ],
                    }}},
            }},
            "volumeBackups": [{"volumeName": "root", "volumeSnapshotName": "s",
                "persistentVolumeClaim": {"spec": {"storageClassName": "l",
                    "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
                    "resources": {"requests": {"storage": "1Gi"}}}}}],
        }})
    }

    #[test]
    fn a_template_is_the_machine_with_a_parameter_and_disks_of_its_own() {
        let (object, own) = request();
        let made = template(&object, &own, &content());
        assert_eq!(name(&made), "t");
        assert_eq!(made["metadata"]["labels"], json!({"a": "b", REQUEST_UID: "u"}));
        let machine = &made["spec"]["virtualMachine"];
        assert_eq!(machine["metadata"]["name"], "${NAME}");
        assert_eq!(machine["metadata"]["annotations"], json!({"k": "v"}));
        assert_eq!(machine["metadata"].get("uid"), None);
        let spec = &machine["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["dataVolume"]["name"], "${NAME}-root");
        assert!(spec["volumes"][1].get("cloudInitNoCloud").is_some());
        assert_eq!(spec["domain"]["firmware"], json!({}));
        let interface = &spec["domain"]["devices"]["interfaces"][0];
        assert_eq!(interface, &json!({"name": "default"}));
        let copies = machine["spec"]["dataVolumeTemplates"].as_array().unwrap();
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0]["spec"]["source"]["pvc"], json!({"namespace": "n", "name": "t-root"}));
        assert_eq!(made["spec"]["parameters"][0]["from"], "m-[a-z0-9]{5}");
        let disks = disks(&made, &content());
        assert_eq!(name(&disks[0]), "t-root");
        assert_eq!(disks[0]["spec"]["source"]["snapshot"]["name"], "s");
        assert_eq!(disks[0]["spec"]["storage"]["resources"]["requests"]["storage"], "1Gi");
    }

    #[test]
    fn a_request_says_how_far_it_is() {
        let now = "2026-11-16T08:00:00Z".parse().unwrap();
        let (object, _) = request();
        for (progress, ready, working, reason) in [
            (RequestProgress::Waiting("w".into()), "False", "True", "Waiting"),
            (RequestProgress::Working("w".into()), "False", "True", "Reconciling"),
            (RequestProgress::Failed("w".into()), "False", "False", "Failed"),
            (RequestProgress::Ready("t".into()), "True", "False", "Reconciled"),
        ] {
            let patch = status(&object, &progress, now);
            let all = &patch["status"]["conditions"];
            assert_eq!((&all[0]["status"], &all[1]["status"]), (&json!(ready), &json!(working)));
            assert_eq!(all[0]["reason"], reason);
            assert_eq!(patch["status"].get("templateRef").is_some(), ready == "True");
        }
    }
}
