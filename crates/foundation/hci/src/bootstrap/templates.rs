//! The templates for all users: a disk image or an installation medium, for Linux and
//! for Windows.

use serde_json::{Value, json};

const NAMESPACE: &str = "harvester-public";

/// One template with its only version.
struct Template {
    name: &'static str,
    version: &'static str,
    about: &'static str,
    cpu: u32,
    memory: &'static str,
    disks: &'static [TemplateDisk],
    user_data: Option<&'static str>,
    windows: bool,
}

struct TemplateDisk {
    name: &'static str,
    bus: &'static str,
    cdrom: bool,
    order: u32,
    size: &'static str,
    /// The image goes onto this disk.
    image: bool,
}

const fn cdrom(order: u32, size: &'static str) -> TemplateDisk {
    TemplateDisk { name: "cdrom-disk", bus: "sata", cdrom: true, order, size, image: true }
}

const fn root(bus: &'static str, order: u32, size: &'static str, image: bool) -> TemplateDisk {
    TemplateDisk { name: "rootdisk", bus, cdrom: false, order, size, image }
}

const LINUX: Template = Template {
    name: "",
    version: "",
    about: "",
    cpu: 1,
    memory: "2048Mi",
    disks: &[],
    user_data: None,
    windows: false,
};

const WINDOWS: Template = Template { windows: true, ..LINUX };

const TEMPLATES: &[Template] = &[
    Template {
        name: "iso-image-base-template",
        version: "iso-image-base-version",
        about: "Template for booting the virtual machine from an ISO image",
        disks: &[cdrom(2, "10Gi"), root("virtio", 1, "10Gi", false)],
        user_data: Some("iso-image-template-userdata"),
        ..LINUX
    },
    Template {
        name: "raw-image-base-template",
        version: "raw-image-base-version",
        about: "Template for booting the virtual machine from a QCOW2 or raw image",
        disks: &[root("virtio", 1, "10Gi", true)],
        user_data: Some("raw-image-template-userdata"),
        ..LINUX
    },
    Template {
        name: "windows-raw-image-base-template",
        version: "windows-raw-image-base-version",
        about: "Template for booting a Windows machine from a QCOW2 or raw image",
        disks: &[root("scsi", 1, "32Gi", true)],
        ..WINDOWS
    },
    Template {
        name: "windows-iso-image-base-template",
        version: "windows-iso-image-base-version",
        about: "Template for booting a Windows machine from an ISO image",
        disks: &[cdrom(1, "20Gi"), root("scsi", 2, "32Gi", false)],
        ..WINDOWS
    },
];

const USER_DATA: &str = "#cloud-config\npackage_update: true\npackages:\n  - qemu-guest-agent\nruncmd:\n  - - systemctl\n    - enable\n    - --now\n    - qemu-guest-agent.service\n";

/// Secrets, templates and versions, in the order of their creation.
pub(super) fn objects() -> Vec<Value> {
    let secrets = TEMPLATES.iter().filter_map(|template| template.user_data).map(|name| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"harvesterhci.io/cloud-init-template": "harvester"},
            },
            "type": "secret",
            "stringData": {"userdata": USER_DATA, "networkdata": ""},
        })
    });
    let templates = TEMPLATES.iter().map(|template| {
        json!({
            "apiVersion": "harvesterhci.io/v1beta1",
            "kind": "VirtualMachineTemplate",
            "metadata": {"name": template.name, "namespace": NAMESPACE},
            "spec": {
                "description": template.about,
                "defaultVersionId": format!("{NAMESPACE}/{}", template.version),
            },
        })
    });
    secrets.chain(templates).chain(TEMPLATES.iter().map(version)).collect()
}

fn version(template: &Template) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "VirtualMachineTemplateVersion",
        "metadata": {"name": template.version, "namespace": NAMESPACE},
        "spec": {
            "templateId": format!("{NAMESPACE}/{}", template.name),
            "description": template.about,
            "vm": {"metadata": metadata(template), "spec": machine(template)},
        },
    })
}

fn metadata(template: &Template) -> Value {
    let claims: Vec<Value> = template.disks.iter().map(|disk| claim(template, disk)).collect();
    let mut metadata = json!({
        "annotations": {"harvesterhci.io/volumeClaimTemplates": Value::from(claims).to_string()},
    });
    if template.windows {
        metadata["labels"] = json!({"harvesterhci.io/os": "windows"});
    }
    metadata
}

/// Names get a suffix of the machine that is made of the template.
fn claim_name(template: &Template, disk: &TemplateDisk) -> String {
    format!("pvc-{}-{}", template.version, disk.name)
}

fn claim(template: &Template, disk: &TemplateDisk) -> Value {
    let mut claim = json!({
        "metadata": {"name": claim_name(template, disk)},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block",
            "resources": {"requests": {"storage": disk.size}},
        },
    });
    if disk.image {
        claim["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": ""});
    }
    claim
}

fn machine(template: &Template) -> Value {
    let mut disks: Vec<Value> = template.disks.iter().map(device).collect();
    let mut volumes: Vec<Value> = template
        .disks
        .iter()
        .map(|disk| {
            let claim = claim_name(template, disk);
            json!({"name": disk.name, "persistentVolumeClaim": {"claimName": claim}})
        })
        .collect();
    if let Some(secret) = template.user_data {
        disks.push(json!({"name": "cloudinitdisk", "disk": {"bus": "virtio"}}));
        volumes.push(json!({
            "name": "cloudinitdisk",
            "cloudInitNoCloud": {
                "secretRef": {"name": secret},
                "networkDataSecretRef": {"name": secret},
            },
        }));
    }
    let limits = json!({"cpu": template.cpu.to_string(), "memory": template.memory});
    let model = if template.windows { "e1000" } else { "virtio" };
    let mut domain = json!({
        "cpu": {"cores": template.cpu, "sockets": 1, "threads": 1},
        "devices": {
            "disks": disks,
            "interfaces": [{"name": "default", "masquerade": {}, "model": model}],
            "inputs": [{"bus": "usb", "name": "tablet", "type": "tablet"}],
        },
        "resources": {"limits": limits},
    });
    if template.windows {
        domain["features"] = windows_features();
        domain["clock"] = json!({
            "utc": {},
            "timer": {
                "hpet": {"present": false},
                "hyperv": {},
                "pit": {"tickPolicy": "delay"},
                "rtc": {"tickPolicy": "catchup"},
            },
        });
    }
    json!({
        "runStrategy": "RerunOnFailure",
        "template": {
            "spec": {
                "domain": domain,
                "evictionStrategy": "LiveMigrateIfPossible",
                "networks": [{"name": "default", "pod": {}}],
                "volumes": volumes,
            },
        },
    })
}

fn device(disk: &TemplateDisk) -> Value {
    let kind = if disk.cdrom { "cdrom" } else { "disk" };
    json!({"name": disk.name, kind: {"bus": disk.bus}, "bootOrder": disk.order})
}

/// Features of KVM that Windows runs faster with.
fn windows_features() -> Value {
    json!({
        "acpi": {"enabled": true},
        "apic": {},
        "smm": {"enabled": true},
        "hyperv": {
            "relaxed": {},
            "vapic": {},
            "spinlocks": {"spinlocks": 8191},
            "vpindex": {},
            "synic": {},
            "synictimer": {"direct": {}},
            "ipi": {},
            "runtime": {},
            "reset": {},
        },
    })
}
