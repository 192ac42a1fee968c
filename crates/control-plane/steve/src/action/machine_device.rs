//! Changes that actions write to devices of machines: discs in drives, interfaces, processors and
//! memory. Pure.

use serde_json::{Value, json};

use super::machine_change::{DISKS, VOLUMES, list, name, templates, write_templates};

const GIB: i64 = 1 << 30;
const INTERFACES: [&str; 5] = ["template", "spec", "domain", "devices", "interfaces"];
const NETWORKS: [&str; 3] = ["template", "spec", "networks"];

/// Why a device cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DeviceError {
    #[error("can not find the SATA CD-ROM device {device} from the VM {machine}")]
    NoCdRom { device: String, machine: String },
    #[error("the CD-ROM device {0} has a volume already; eject it first")]
    Filled(String),
    #[error("interface {0} exists already")]
    InterfaceExists(String),
    #[error("interface {0} doesn't exist")]
    NoInterface(String),
    #[error("interface {0} is not hot-unpluggable")]
    NotUnpluggable(String),
    #[error("network {0} is not hot-pluggable")]
    NotPluggable(String),
    #[error("{0} doesn't support both HotPlugNic and HotUnplugNic as it is a guest cluster node")]
    GuestCluster(String),
    #[error("{0} doesn't support HotUnplugNic as it has only one nic")]
    OnlyNic(String),
    #[error("CPU and memory hotplug is not supported for this VM")]
    NoHotplug,
    #[error("sockets must be greater than 0")]
    Sockets,
}

pub(super) fn is_sata_cdrom(disk: &Value) -> bool {
    disk["cdrom"]["bus"].as_str().is_some_and(|bus| bus.eq_ignore_ascii_case("sata"))
}

/// Puts a claim with the data of an image into a drive.
pub(super) fn insert_cdrom(
    vm: &mut Value,
    device: &str,
    image_id: &str,
    image: &Value,
    claim: &str,
) -> Result<(), DeviceError> {
    let machine = name(vm);
    let disks = list(&mut vm["spec"], &DISKS);
    if !disks.iter().any(|disk| disk["name"] == device && is_sata_cdrom(disk)) {
        return Err(DeviceError::NoCdRom { device: device.to_owned(), machine });
    }
    let volumes = list(&mut vm["spec"], &VOLUMES);
    if volumes.iter().any(|volume| volume["name"] == device) {
        return Err(DeviceError::Filled(device.to_owned()));
    }
    volumes.push(json!({
        "name": device,
        "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true},
    }));
    let size = |field: &str| image["status"][field].as_i64().unwrap_or(0);
    let gib = size("virtualSize").max(size("size")).max(1).saturating_add(GIB - 1) / GIB;
    let mut templates = templates(vm);
    templates.push(json!({
        "metadata": {"name": claim, "annotations": {"harvesterhci.io/imageId": image_id}},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "storageClassName": image["status"]["storageClassName"],
            "resources": {"requests": {"storage": format!("{gib}Gi")}},
        },
    }));
    write_templates(vm, &templates);
    Ok(())
}

/// Whether interfaces of a running guest can be on a network: those on bridges, but those of the
/// platform.
pub(super) fn check_network(name: &str, definition: &Value) -> Result<(), DeviceError> {
    let config = definition["spec"]["config"].as_str().unwrap_or_default();
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    let metadata = &definition["metadata"];
    let is_pluggable = config["type"] == "bridge"
        && metadata["deletionTimestamp"].is_null()
        && metadata["namespace"] != "harvester-system";
    if is_pluggable { Ok(()) } else { Err(DeviceError::NotPluggable(name.to_owned())) }
}

/// Nodes of guest clusters keep the interfaces that their cluster knows.
fn check_owner(vm: &Value) -> Result<(), DeviceError> {
    match vm["metadata"]["labels"]["harvesterhci.io/creator"] == "docker-machine-driver-harvester" {
        true => Err(DeviceError::GuestCluster(name(vm))),
        false => Ok(()),
    }
}

/// Adds an interface on a bridge.
pub(super) fn add_nic(
    vm: &mut Value,
    interface: &str,
    network: &str,
    mac: &str,
) -> Result<(), DeviceError> {
    check_owner(vm)?;
    let interfaces = list(&mut vm["spec"], &INTERFACES);
    if interfaces.iter().any(|own| own["name"] == interface) {
        return Err(DeviceError::InterfaceExists(interface.to_owned()));
    }
    let mut added = json!({"name": interface, "model": "virtio", "bridge": {}});
    if !mac.is_empty() {
        added["macAddress"] = mac.into();
    }
    interfaces.push(added);
    let multus = json!({"networkName": network});
    list(&mut vm["spec"], &NETWORKS).push(json!({"name": interface, "multus": multus}));
    Ok(())
}

fn is_unpluggable(interface: &Value) -> bool {
    let model = interface["model"].as_str().unwrap_or("virtio");
    interface["bridge"].is_object() && model == "virtio" && interface["state"] != "absent"
}

/// Takes an interface off.
pub(super) fn remove_nic(vm: &mut Value, interface: &str) -> Result<(), DeviceError> {
    check_owner(vm)?;
    let machine = name(vm);
    let interfaces = list(&mut vm["spec"], &INTERFACES);
    if interfaces.len() < 2 {
        return Err(DeviceError::OnlyNic(machine));
    }
    let own = interfaces.iter_mut().find(|own| own["name"] == interface);
    let own = own.ok_or_else(|| DeviceError::NoInterface(interface.to_owned()))?;
    if !is_unpluggable(own) {
        return Err(DeviceError::NotUnpluggable(interface.to_owned()));
    }
    own["state"] = "absent".into();
    Ok(())
}

/// The interfaces that can be taken off.
pub(super) fn unpluggable_nics(vm: &Value) -> Vec<&str> {
    let interfaces = &vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"];
    let interfaces = interfaces.as_array().filter(|all| all.len() >= 2);
    let found = interfaces.into_iter().flatten().filter(|own| is_unpluggable(own));
    found.filter_map(|own| own["name"].as_str()).collect()
}

/// The patch that gives a machine more processors and memory.
pub(super) fn grow(vm: &Value, sockets: i64, memory: &str) -> Result<Value, DeviceError> {
    let enabled = &vm["metadata"]["annotations"]["harvesterhci.io/enableCPUAndMemoryHotplug"];
    if enabled != "true" {
        return Err(DeviceError::NoHotplug);
    }
    let mut domain = json!({});
    if sockets < 0 || (sockets == 0 && memory.is_empty()) {
        return Err(DeviceError::Sockets);
    }
    if sockets > 0 {
        domain["cpu"] = json!({"sockets": sockets});
    }
    if !memory.is_empty() {
        domain["memory"] = json!({"guest": memory});
    }
    Ok(json!({"spec": {"template": {"spec": {"domain": domain}}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Value {
        json!({
            "metadata": {"namespace": "n", "name": "web", "annotations": {}},
            "spec": {"template": {"spec": {
                "domain": {"devices": {
                    "disks": [{"name": "cd", "cdrom": {"bus": "SATA"}}, {"name": "root", "disk": {}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                }},
                "networks": [{"name": "default", "pod": {}}],
            }}},
        })
    }

    #[test]
    fn a_disc_goes_into_an_empty_drive() {
        let image =
            json!({"status": {"virtualSize": GIB + 1, "size": 5, "storageClassName": "lh-1"}});
        let mut vm = machine();
        let mut insert = |device: &str| insert_cdrom(&mut vm, device, "n/iso", &image, "web-cd-1");
        let missing = "can not find the SATA CD-ROM device root from the VM n/web";
        assert_eq!(insert("root").unwrap_err().to_string(), missing);
        assert_eq!(insert("cd"), Ok(()));
        assert_eq!(insert("cd"), Err(DeviceError::Filled("cd".into())));
        let volumes = &vm["spec"]["template"]["spec"]["volumes"];
        let claim = json!({"claimName": "web-cd-1", "hotpluggable": true});
        assert_eq!(*volumes, json!([{"name": "cd", "persistentVolumeClaim": claim}]));
        let templates = templates(&vm);
        assert_eq!(templates[0]["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert_eq!(templates[0]["spec"]["storageClassName"], "lh-1");
    }

    #[test]
    fn interfaces_come_and_go() {
        let mut vm = machine();
        assert!(unpluggable_nics(&vm).is_empty());
        let only = "n/web doesn't support HotUnplugNic as it has only one nic";
        assert_eq!(remove_nic(&mut vm, "default").unwrap_err().to_string(), only);
        add_nic(&mut vm, "lan", "n/lan", "02:00:00:00:00:01").unwrap();
        let taken = DeviceError::InterfaceExists("lan".into());
        assert_eq!(add_nic(&mut vm, "lan", "n/lan", ""), Err(taken));
        assert_eq!(unpluggable_nics(&vm), ["lan"]);
        let fixed = DeviceError::NotUnpluggable("default".into());
        assert_eq!(remove_nic(&mut vm, "default"), Err(fixed));
        assert_eq!(remove_nic(&mut vm, "x"), Err(DeviceError::NoInterface("x".into())));
        assert_eq!(remove_nic(&mut vm, "lan"), Ok(()));
        assert!(unpluggable_nics(&vm).is_empty());
    }

    #[test]
    fn interfaces_are_plugged_into_bridges_of_machines() {
        let definition = |namespace: &str, kind: &str| {
            json!({"metadata": {"namespace": namespace},
                "spec": {"config": json!({"type": kind}).to_string()}})
        };
        let refused = Err(DeviceError::NotPluggable("n/lan".into()));
        for (definition, expected) in [
            (definition("n", "bridge"), Ok(())),
            (definition("n", "kube-ovn"), refused.clone()),
            (definition("harvester-system", "bridge"), refused.clone()),
            (json!({"metadata": {"deletionTimestamp": "x"}}), refused),
        ] {
            assert_eq!(check_network("n/lan", &definition), expected, "{definition}");
        }
        let text = DeviceError::NotPluggable("n/lan".into()).to_string();
        assert_eq!(text, "network n/lan is not hot-pluggable");
        let mut vm = machine();
        vm["metadata"]["labels"] =
            json!({"harvesterhci.io/creator": "docker-machine-driver-harvester"});
        let fixed =
            "n/web doesn't support both HotPlugNic and HotUnplugNic as it is a guest cluster node";
        assert_eq!(add_nic(&mut vm, "lan", "n/lan", "").unwrap_err().to_string(), fixed);
        assert_eq!(remove_nic(&mut vm, "default").unwrap_err().to_string(), fixed);
    }

    #[test]
    fn machines_grow_if_they_were_made_for_it() {
        let mut vm = machine();
        assert_eq!(grow(&vm, 2, "4Gi"), Err(DeviceError::NoHotplug));
        vm["metadata"]["annotations"]["harvesterhci.io/enableCPUAndMemoryHotplug"] = "true".into();
        let domain = json!({"cpu": {"sockets": 2}, "memory": {"guest": "4Gi"}});
        let patch = json!({"spec": {"template": {"spec": {"domain": domain}}}});
        assert_eq!(grow(&vm, 2, "4Gi"), Ok(patch));
        assert_eq!(grow(&vm, 0, ""), Err(DeviceError::Sockets));
    }
}
