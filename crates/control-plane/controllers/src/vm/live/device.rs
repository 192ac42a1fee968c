//! Volumes and network interfaces that come and go while the guest runs.

use serde_json::{Map, Value, json};

use super::super::volume_update;
use crate::object::{is_true, list, text};

/// Volumes that can be plugged in: gone or changed ones leave the instance, new ones join
/// it. A changed one leaves first and joins once its node has released it, unless it moves.
pub(super) fn volumes(
    template: &Value,
    vmi: &Value,
    spec: &mut Map<String, Value>,
    domain: &mut Map<String, Value>,
    migrates: bool,
) {
    let (wanted, own) = (list(template, "/volumes"), list(vmi, "/spec/volumes"));
    let stays = |volume: &&Value| {
        !is_pluggable(volume)
            || named(wanted, volume).is_some_and(|other| {
                !is_pluggable(other)
                    || other == *volume
                    || volume_update::is_moved(volume, other, vmi, migrates)
            })
    };
    let mut new: Vec<Value> = own.iter().filter(stays).cloned().collect();
    let held = list(vmi, "/status/volumeStatus");
    let joins = |volume: &&Value| {
        is_pluggable(volume) && named(own, volume).is_none() && named(held, volume).is_none()
    };
    new.extend(wanted.iter().filter(joins).cloned());
    let disks = disks(template, vmi, &new);
    if own != new {
        spec.insert("volumes".into(), json!(new));
    }
    if list(vmi, "/spec/domain/devices/disks") != disks {
        domain.insert("devices".into(), json!({"disks": disks}));
    }
}

/// The disks that go with the new volumes. A drive stays when its medium is taken out.
fn disks(template: &Value, vmi: &Value, volumes: &[Value]) -> Vec<Value> {
    let (wanted, own) =
        (list(template, "/domain/devices/disks"), list(vmi, "/spec/domain/devices/disks"));
    let stays = |disk: &&Value| {
        if named(volumes, disk).is_some() {
            return true;
        }
        let Some(other) = named(wanted, disk) else { return false };
        let drive = disk.get("cdrom").is_some() && other.get("cdrom").is_some();
        drive || named(list(template, "/volumes"), disk).is_none()
    };
    let mut new: Vec<Value> = own.iter().filter(stays).cloned().collect();
    let joins = |disk: &&Value| {
        named(volumes, disk).is_some_and(is_pluggable) && named(own, disk).is_none()
    };
    new.extend(wanted.iter().filter(joins).cloned());
    new
}

/// Interfaces on further networks join; those that have to go or change their link say so
/// in `state`.
pub(super) fn interfaces(
    template: &Value,
    vmi: &Value,
    spec: &mut Map<String, Value>,
    domain: &mut Map<String, Value>,
) {
    let wanted = list(template, "/domain/devices/interfaces");
    let own = list(vmi, "/spec/domain/devices/interfaces");
    let mut new = own.to_vec();
    for interface in &mut new {
        let Some(wanted) = named(wanted, interface) else { continue };
        match wanted.get("state").filter(|state| !state.is_null()) {
            Some(state) => interface["state"] = state.clone(),
            None => {
                if let Some(interface) = interface.as_object_mut() {
                    interface.remove("state");
                }
            }
        }
    }
    let networks = list(template, "/networks");
    let mut joined = list(vmi, "/spec/networks").to_vec();
    for interface in wanted.iter().filter(|interface| named(own, interface).is_none()) {
        let Some(network) = named(networks, interface) else { continue };
        let further = network.get("multus").is_some();
        let bridged = interface.get("bridge").is_some() || interface.get("sriov").is_some();
        if further && bridged && text(interface, "/state") != "absent" {
            new.push(interface.clone());
            if named(&joined, network).is_none() {
                joined.push(network.clone());
            }
        }
    }
    if own != new {
        let devices = domain.entry("devices").or_insert_with(|| json!({}));
        devices["interfaces"] = json!(new);
    }
    if list(vmi, "/spec/networks") != joined {
        spec.insert("networks".into(), json!(joined));
    }
}

fn is_pluggable(volume: &Value) -> bool {
    is_true(volume, "/dataVolume/hotpluggable")
        || is_true(volume, "/persistentVolumeClaim/hotpluggable")
}

/// The entry of the same name.
fn named<'a>(entries: &'a [Value], of: &Value) -> Option<&'a Value> {
    entries.iter().find(|own| text(own, "/name") == text(of, "/name"))
}
