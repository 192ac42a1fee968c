//! The changes of a machine that need a restart. The controller of machines copies the other ones
//! to the running instance.
//!
//! The machine of the time when the instance was created and the current one are compared, both
//! with their sizes applied. Fields that can change live are removed before; every other
//! difference needs a restart.

use serde_json::Value;

use crate::condition;
use crate::config::ClusterConfig;
use crate::default::object;
use crate::lifecycle::is_hotpluggable;
use crate::state::{list, text};

/// The message of the condition when no better one is known.
pub const CHANGED: &str = "a non-live-updatable field was changed in the template spec";

/// Whether the difference between two specifications of a machine needs a restart.
pub fn needs_restart(
    before: &Value,
    now: &Value,
    vmi: Option<&Value>,
    config: &ClusterConfig,
) -> bool {
    let strategy = text(now, "/updateVolumesStrategy");
    let mut old = before["template"]["spec"].clone();
    let new = &now["template"]["spec"];
    if volumes_are_live(&old, new, strategy == "Migration") {
        copy(&mut old, new, "/volumes");
    }
    if disks_are_live(&old, new) {
        copy(&mut old, new, "/domain/devices/disks");
    }
    if config.updates_live() {
        if old["domain"]["cpu"].is_object() && new["domain"]["cpu"].is_object() {
            copy(&mut old, new, "/domain/cpu/sockets");
        }
        if !new["domain"]["memory"]["guest"].is_null() {
            copy(&mut old, new, "/domain/memory/guest");
        }
        for field in ["/nodeSelector", "/affinity", "/tolerations"] {
            copy(&mut old, new, field);
        }
    }
    if vmi.is_some_and(|vmi| networks_are_live(new, vmi)) {
        copy(&mut old, new, "/domain/devices/interfaces");
        copy(&mut old, new, "/networks");
    }
    let uuid = &new["domain"]["firmware"]["uuid"];
    if vmi.is_some_and(|vmi| vmi["spec"]["domain"]["firmware"]["uuid"] == *uuid) {
        copy(&mut old, new, "/domain/firmware/uuid");
    }
    old != *new
}

/// Makes a field the same in both, also if it is missing in one.
fn copy(target: &mut Value, source: &Value, pointer: &str) {
    let mut parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let Some(last) = parts.pop() else { return };
    match source.pointer(pointer) {
        Some(value) => {
            let holder = parts.into_iter().fold(target, |holder, part| object(holder, part));
            holder[last] = value.clone();
        }
        None => {
            let holder = pointer.strip_suffix(last).and_then(|path| path.strip_suffix('/'));
            if let Some(Value::Object(fields)) = target.pointer_mut(holder.unwrap_or_default()) {
                fields.remove(last);
            }
        }
    }
}

fn find<'a>(items: &'a Value, name: &Value) -> Option<&'a Value> {
    list(items).iter().find(|item| item["name"] == *name)
}

fn volumes_are_live(old: &Value, new: &Value, migrates: bool) -> bool {
    let claims = |volume: &Value| {
        volume["persistentVolumeClaim"].is_object() || volume["dataVolume"].is_object()
    };
    let kept = list(&new["volumes"]).iter().all(|volume| {
        let before = find(&old["volumes"], &volume["name"]);
        is_hotpluggable(volume)
            || before.is_some_and(|before| before == volume || (migrates && claims(volume)))
    });
    let removed = list(&old["volumes"])
        .iter()
        .filter(|volume| find(&new["volumes"], &volume["name"]).is_none());
    kept && removed.into_iter().all(is_hotpluggable)
}

fn disks_are_live(old: &Value, new: &Value) -> bool {
    let (before, after) = (&old["domain"]["devices"]["disks"], &new["domain"]["devices"]["disks"]);
    let comes_and_goes = |spec: &Value, disk: &Value| {
        find(&spec["volumes"], &disk["name"]).is_some_and(is_hotpluggable)
    };
    let kept = list(after).iter().all(|disk| {
        comes_and_goes(new, disk) || find(before, &disk["name"]).is_some_and(|old| old == disk)
    });
    let mut removed = list(before).iter().filter(|disk| find(after, &disk["name"]).is_none());
    let gone = removed.all(|disk| {
        let volume = find(&old["volumes"], &disk["name"]);
        volume.is_none_or(is_hotpluggable) && !disk["cdrom"].is_object()
    });
    kept && gone
}

/// Interfaces may be added, taken away by their state, and switched up and down.
fn networks_are_live(new: &Value, vmi: &Value) -> bool {
    let has_pod = |networks: &Value| list(networks).iter().any(|one| one["pod"].is_object());
    let (wanted, current) = (&new["networks"], &vmi["spec"]["networks"]);
    if has_pod(wanted) && !has_pod(current) {
        return false;
    }
    let movable = condition::is_true(vmi, "LiveMigratable");
    let plain = |network: &Value| {
        let mut network = network.clone();
        if movable && network["multus"].is_object() {
            network["multus"]["networkName"] = Value::Null;
        }
        network
    };
    let same_networks = list(current).iter().all(|network| {
        find(wanted, &network["name"]).is_some_and(|wanted| plain(wanted) == plain(network))
    });
    let stateless = |interface: &Value| {
        let mut interface = interface.clone();
        if let Some(fields) = interface.as_object_mut() {
            fields.remove("state");
        }
        interface
    };
    let interfaces = &new["domain"]["devices"]["interfaces"];
    same_networks
        && list(&vmi["spec"]["domain"]["devices"]["interfaces"]).iter().all(|interface| {
            find(interfaces, &interface["name"])
                .is_some_and(|wanted| stateless(wanted) == stateless(interface))
        })
}

#[cfg(test)]
mod tests;
