//! The objects of a new machine. Pure.

use serde_json::{Value, json};

/// The options that a user gave.
#[derive(Debug, Clone, Default)]
pub(super) struct VmRequest<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) cpus: u32,
    pub(super) memory: &'a str,
    pub(super) storage_class: Option<&'a str>,
    pub(super) efi: bool,
    pub(super) started: bool,
    pub(super) user_data: Option<String>,
}

/// Where the disk comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BootSource {
    Url(String),
    Registry(String),
    /// The bytes are sent once the volume is there.
    Upload,
    /// A volume of an image's class begins as the image.
    Image {
        id: String,
        class: String,
    },
}

/// The machine, with its disk as a template so that both are deleted together.
pub(super) fn machine(wish: &VmRequest<'_>, source: &BootSource, size: &str) -> Value {
    let disk = format!("{}-disk", wish.name);
    let mut disks = vec![json!({"name": "disk", "bootOrder": 1, "disk": {"bus": "virtio"}})];
    let is_claim = matches!(source, BootSource::Image { .. });
    let mut volumes = vec![match is_claim {
        true => json!({"name": "disk", "persistentVolumeClaim": {"claimName": disk}}),
        false => json!({"name": "disk", "dataVolume": {"name": disk}}),
    }];
    if let Some(user_data) = &wish.user_data {
        disks.push(json!({"name": "cloud-init", "disk": {"bus": "virtio"}}));
        volumes.push(json!({"name": "cloud-init", "cloudInitNoCloud": {"userData": user_data}}));
    }
    let mut domain = json!({
        "cpu": {"sockets": wish.cpus, "cores": 1, "threads": 1},
        "memory": {"guest": wish.memory},
        "devices": {
            "disks": disks,
            "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
            "rng": {},
        },
    });
    if wish.efi {
        domain["firmware"] = json!({"bootloader": {"efi": {"secureBoot": false}}});
    }
    let templates = match is_claim {
        true => Vec::new(),
        false => vec![volume(&disk, source, size, wish.storage_class)],
    };
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": wish.name, "namespace": wish.namespace},
        "spec": {
            "runStrategy": if wish.started { "Always" } else { "Halted" },
            "dataVolumeTemplates": templates,
            "template": {
                "metadata": {"labels": {"kubevirt.io/vm": wish.name}},
                "spec": {
                    "domain": domain,
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": volumes,
                },
            },
        },
    })
}

/// The claim of a machine whose disk begins as an image; it goes with the machine.
pub(super) fn claim(machine: &Value, source: &BootSource, size: &str) -> Option<Value> {
    let BootSource::Image { id, class } = source else { return None };
    let meta = &machine["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    Some(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("{name}-disk"), "namespace": meta["namespace"],
            "annotations": {"harvesterhci.io/imageId": id},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "name": name, "uid": meta["uid"],
            }],
        },
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
            "resources": {"requests": {"storage": size}},
        },
    }))
}

fn volume(name: &str, source: &BootSource, size: &str, class: Option<&str>) -> Value {
    let from = match source {
        BootSource::Url(url) => json!({"http": {"url": url}}),
        BootSource::Registry(url) => json!({"registry": {"url": url}}),
        BootSource::Upload => json!({"upload": {}}),
        // Its claim is made beside the machine.
        BootSource::Image { .. } => json!({"blank": {}}),
    };
    let mut storage = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    });
    if let Some(class) = class {
        storage["storageClassName"] = class.into();
    }
    json!({
        "metadata": {
            "name": name,
            // An upload has no consumer to wait for.
            "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": ""},
        },
        "spec": {"source": from, "storage": storage},
    })
}

/// The user data for cloud-init; nothing if it would be empty.
pub(super) fn user_data(name: &str, keys: &[String], password: Option<&str>) -> Option<String> {
    if keys.is_empty() && password.is_none() {
        return None;
    }
    let mut lines = vec!["#cloud-config".to_owned(), format!("hostname: {name}")];
    if let Some(password) = password {
        // JSON strings are YAML strings, whatever is in them.
        lines.push(format!("password: {}", Value::from(password)));
        lines.push("chpasswd: {expire: false}".to_owned());
        lines.push("ssh_pwauth: true".to_owned());
    }
    if !keys.is_empty() {
        lines.push("ssh_authorized_keys:".to_owned());
        lines.extend(keys.iter().map(|key| format!("  - {}", Value::from(key.as_str()))));
    }
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_owns_its_disk_and_boots_from_it() {
        let wish = VmRequest {
            name: "web",
            cpus: 2,
            memory: "1Gi",
            started: true,
            ..VmRequest::default()
        };
        let vm = machine(&wish, &BootSource::Url("http://x/i.qcow2".into()), "10Gi");
        let template = &vm["spec"]["dataVolumeTemplates"][0];
        assert_eq!(template["metadata"]["name"], "web-disk");
        assert_eq!(template["spec"]["source"]["http"]["url"], "http://x/i.qcow2");
        let spec = &vm["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["dataVolume"]["name"], "web-disk");
        assert_eq!(spec["volumes"].as_array().map(Vec::len), Some(1));
        assert_eq!(vm["spec"]["runStrategy"], "Always");
    }

    #[test]
    fn a_machine_of_an_image_has_a_claim_of_its_class() {
        let wish = VmRequest { name: "web", namespace: "n", memory: "1Gi", ..VmRequest::default() };
        let source = BootSource::Image { id: "n/debian".into(), class: "lh-1".into() };
        let mut vm = machine(&wish, &source, "2Gi");
        assert_eq!(vm["spec"]["dataVolumeTemplates"], json!([]));
        let disk = &vm["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(disk["persistentVolumeClaim"]["claimName"], "web-disk");
        vm["metadata"]["uid"] = "u".into();
        let claim = claim(&vm, &source, "2Gi").unwrap();
        assert_eq!(claim["spec"]["storageClassName"], "lh-1");
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[test]
    fn user_data_holds_only_what_was_given() {
        assert_eq!(user_data("a", &[], None), None);
        let text = user_data("a", &["ssh-ed25519 K me".into()], Some("p: \"x\"")).unwrap();
        assert_eq!(
            text,
            "#cloud-config\nhostname: a\npassword: \"p: \\\"x\\\"\"\nchpasswd: {expire: false}\n\
             ssh_pwauth: true\nssh_authorized_keys:\n  - \"ssh-ed25519 K me\"\n"
        );
    }
}
