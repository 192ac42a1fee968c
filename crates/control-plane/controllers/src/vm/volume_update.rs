//! Volumes of a machine whose claims are replaced while its guest runs: pure.
//!
//! With the strategy `Migration` the instance gets the new claim and, in `migratedVolumes`, both:
//! its node copies the disk and switches the guest. Each volume moves on its own; a machine that
//! names the old claim again cancels it. A machine whose guest ended before the switch is started
//! from the old claims, because the new ones lack data, and moves again; one whose guest ended in
//! the moment of the switch waits for a person.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use virt::reason::VolumesChange;
use virt::{InstancePhase, is_migrating};

use super::record::{DiskOwner, MigratedVolume, VmFields, VolumeFields};
use crate::object::{list, name, quantity, read, text, uid};

/// As upstream.
const REVERT_ONLY: &str =
    "The volume can only be reverted to the previous version during the update";
const REPLACED: &str = "the volumes replacement is effective only after restart";
const RECOVERY: &str = "VMI was removed or was final during the volume migration";

/// The result of claims that differ between a machine and its instance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VolumeUpdate {
    Nothing,
    /// Volumes for the instance, and its whole list of migrations.
    Write {
        volumes: Vec<Value>,
        migrated: Vec<Value>,
    },
    /// It has an effect with the next start only: why.
    Restart(String),
    /// It has none, because of what goes on.
    Refused(&'static str),
}

/// Other objects that the decision depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumeUpdateContext<'a> {
    /// The claims on both sides.
    pub(crate) claims: &'a [Value],
    /// All instances of the namespace.
    pub(crate) instances: &'a [Value],
}

/// Whether the machine asks for migrations when its volumes change.
pub(crate) fn migrates(vm: &Value) -> bool {
    read::<VmFields<'_>>(vm).spec.update_volumes_strategy == "Migration"
}

fn volume(volume: &Value) -> VolumeFields<'_> {
    read(volume)
}

/// The PersistentVolumeClaim of a volume.
fn claim(own: &Value) -> Option<&str> {
    volume(own).claim()
}

fn named<'a>(volumes: &'a [Value], wanted: &str) -> Option<&'a Value> {
    volumes.iter().find(|own| volume(own).name == wanted)
}

fn moves(object: &Value) -> &[Value] {
    list(object, "/status/migratedVolumes")
}

fn entry(migrated: &Value) -> MigratedVolume<'_> {
    read(migrated)
}

fn move_of<'a>(entries: &'a [Value], moved: &Value) -> Option<MigratedVolume<'a>> {
    entries.iter().map(entry).find(|own| own.volume_name == volume(moved).name)
}

/// Pairs of an instance's volume and the machine's, with different claims.
fn changed<'a>(template: &'a Value, vmi: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    let wanted = list(template, "/volumes");
    let pair = |own: &'a Value| {
        let new = named(wanted, volume(own).name)?;
        let differs = claim(own)? != claim(new)?;
        (differs && !is_medium(own, new, vmi)).then_some((own, new))
    };
    list(vmi, "/spec/volumes").iter().filter_map(pair).collect()
}

/// Whether the volume is a medium, which is exchanged and not copied.
fn is_medium(own: &Value, new: &Value, vmi: &Value) -> bool {
    let (own, new) = (volume(own), volume(new));
    let disks = read::<DiskOwner<'_>>(vmi).spec.domain.devices.disks;
    let is_drive = disks.iter().any(|disk| disk.name == own.name && disk.cdrom.is_some());
    is_drive && own.is_pluggable() && new.is_pluggable()
}

/// The claims that have to be read to decide.
pub(crate) fn concerned_claims<'a>(template: &'a Value, vmi: &'a Value) -> BTreeSet<&'a str> {
    let pairs = changed(template, vmi).into_iter().flat_map(|(own, new)| [own, new]);
    pairs.filter_map(claim).collect()
}

/// Whether a volume that differs moves, and does not leave and come back.
pub(crate) fn is_moved(own: &Value, new: &Value, vmi: &Value, migrates: bool) -> bool {
    let differs = claim(own).is_some() && claim(new).is_some() && claim(own) != claim(new);
    differs && !is_medium(own, new, vmi) && (migrates || move_of(moves(vmi), own).is_some())
}

/// The decision about claims that were replaced in the template of a running machine.
pub(crate) fn update(
    vm: &Value,
    template: &Value,
    vmi: &Value,
    around: VolumeUpdateContext<'_>,
) -> VolumeUpdate {
    let pairs = changed(template, vmi);
    if pairs.is_empty() || InstancePhase::of(vmi) != InstancePhase::Running || is_migrating(vmi) {
        return VolumeUpdate::Nothing;
    }
    let mut migrated = moves(vmi).to_vec();
    let (mut volumes, mut invalid) = (Vec::new(), InvalidVolumes::default());
    for (own, new) in pairs {
        let (Some(before), Some(after)) = (claim(own), claim(new)) else { continue };
        match move_of(moves(vmi), own) {
            Some(entry) if after == entry.source() || after == entry.target() => {}
            Some(_) => return VolumeUpdate::Refused(REVERT_ONLY),
            None if !migrates(vm) && volume(own).is_pluggable() && volume(new).is_pluggable() => {
                continue;
            }
            None if !migrates(vm) => return VolumeUpdate::Restart(REPLACED.into()),
            None => {
                invalid.check(own, vmi);
                if let Some(why) = unsuitable(before, after, vmi, around) {
                    let name = volume(own).name;
                    return VolumeUpdate::Restart(format!("cannot migrate volume {name}: {why}"));
                }
                migrated.push(json!({
                    "volumeName": volume(own).name,
                    "sourcePVCInfo": claim_info(before, around.claims),
                    "destinationPVCInfo": claim_info(after, around.claims),
                }));
            }
        }
        volumes.push(new.clone());
    }
    match invalid.message() {
        Some(why) => VolumeUpdate::Restart(why),
        None if volumes.is_empty() => VolumeUpdate::Nothing,
        None => VolumeUpdate::Write { volumes, migrated },
    }
}

/// Volumes that cannot move while the guest runs.
#[derive(Debug, Default)]
struct InvalidVolumes<'a> {
    filesystems: Vec<&'a str>,
    shareable: Vec<&'a str>,
    luns: Vec<&'a str>,
    cdroms: Vec<&'a str>,
}

impl<'a> InvalidVolumes<'a> {
    fn check(&mut self, own: &'a Value, vmi: &Value) {
        let name = volume(own).name;
        let devices = read::<DiskOwner<'_>>(vmi).spec.domain.devices;
        let disk = devices.disks.iter().find(|disk| disk.name == name);
        if devices.filesystems.iter().any(|own| own.name == name) {
            self.filesystems.push(name);
        } else if disk.is_some_and(|disk| disk.shareable) {
            self.shareable.push(name);
        } else if disk.is_some_and(|disk| disk.lun.is_some()) {
            self.luns.push(name);
        } else if disk.is_some_and(|disk| disk.cdrom.is_some()) {
            self.cdroms.push(name);
        }
    }

    /// As upstream says it.
    fn message(&self) -> Option<String> {
        let kinds = [
            ("filesystems", &self.filesystems),
            ("shareable", &self.shareable),
            ("luns", &self.luns),
            ("cdroms", &self.cdroms),
        ];
        let found: Vec<String> = kinds
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!(" {kind}: [{}]", names.join(" ")))
            .collect();
        let all = found.concat();
        (!all.is_empty()).then(|| format!("invalid volumes to update with migration:{all}"))
    }
}

/// Why a claim cannot take the place of another.
fn unsuitable(
    before: &str,
    after: &str,
    vmi: &Value,
    around: VolumeUpdateContext<'_>,
) -> Option<String> {
    let find = |wanted: &str| around.claims.iter().find(|own| name(own) == wanted);
    let size = |wanted: &str| quantity(find(wanted)?, "/status/capacity/storage");
    if let (Some(have), Some(need)) = (size(after), size(before))
        && have < need
    {
        return Some(format!("claim {after} has {have}, less than the {need} of claim {before}"));
    }
    let uses = |own: &&Value| {
        let wanted = list(own, "/spec/volumes").iter().filter_map(claim);
        let held = read::<DiskOwner<'_>>(own).status.volume_status;
        let held = held.iter().map(|held| held.persistent_volume_claim_info.claim_name);
        !InstancePhase::of(own).is_final() && wanted.chain(held).any(|claim| claim == after)
    };
    let user = around.instances.iter().find(uses)?;
    Some(match uid(user) == uid(vmi) {
        true => format!("claim {after} is another volume of the machine"),
        false => format!("claim {after} is in use by virtual machine instance {}", name(user)),
    })
}

/// As in the status of an instance.
fn claim_info(wanted: &str, claims: &[Value]) -> Value {
    let mut info = json!({"claimName": wanted});
    if let Some(claim) = claims.iter().find(|own| name(own) == wanted) {
        for (field, value) in [
            ("accessModes", &claim["spec"]["accessModes"]),
            ("volumeMode", &claim["spec"]["volumeMode"]),
            ("requests", &claim["spec"]["resources"]["requests"]),
            ("capacity", &claim["status"]["capacity"]),
        ] {
            if !value.is_null() {
                info[field] = value.clone();
            }
        }
    }
    info
}

/// Migrations that a machine's status keeps: those of its instance, and those that the next
/// instance has to begin with.
fn unfinished(vm: &Value, vmi: Option<&Value>) -> Vec<Value> {
    let wanted = list(vm, "/spec/template/spec/volumes");
    let mut all = vmi.map(|vmi| moves(vmi).to_vec()).unwrap_or_default();
    for recorded in recorded(vm) {
        let moved = entry(recorded);
        let is_wanted = migrates(vm)
            && named(wanted, moved.volume_name).and_then(claim) == Some(moved.target());
        let is_behind = vmi.is_none_or(|vmi| {
            let own = named(list(vmi, "/spec/volumes"), moved.volume_name);
            own.and_then(claim) == Some(moved.source())
        });
        let is_known = all.iter().any(|own| entry(own).volume_name == moved.volume_name);
        if is_wanted && is_behind && !is_known {
            all.push(recorded.clone());
        }
    }
    all
}

fn recorded(vm: &Value) -> &[Value] {
    list(vm, "/status/volumeUpdateState/volumeMigrationState/migratedVolumes")
}

/// `volumeUpdateState` of a machine; null if nothing moves.
pub(crate) fn state(vm: &Value, vmi: Option<&Value>) -> Value {
    match unfinished(vm, vmi) {
        all if all.is_empty() => Value::Null,
        all => json!({"volumeMigrationState": {"migratedVolumes": all}}),
    }
}

/// The state of migrations that an instance did not finish, by the conditions of its machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Recovery {
    /// Nothing moves, and nothing is left of an earlier migration.
    NotNeeded,
    /// As it was said before.
    Unchanged,
    /// The guest ended while it was on either claim.
    Needed { reason: &'static str, message: String },
}

pub(crate) fn recovery(vm: &Value, vmi: Option<&Value>) -> Recovery {
    if unfinished(vm, vmi).is_empty() {
        return Recovery::NotNeeded;
    }
    let is_switching = |vmi: &&Value| {
        let condition = virt::condition::find(vmi, "VolumesChange");
        InstancePhase::of(vmi).is_final()
            && !moves(vmi).is_empty()
            && condition
                .is_some_and(|own| text(own, "/reason") == VolumesChange::Switching.as_str())
    };
    let Some(vmi) = vmi.filter(is_switching) else { return Recovery::Unchanged };
    let claims: Vec<String> = moves(vmi)
        .iter()
        .map(entry)
        .map(|own| format!("{}: {} or {}", own.volume_name, own.source(), own.target()))
        .collect();
    let message = format!(
        "the guest ended while it was switched to another claim, and either may have its last \
         writes ({}): set the claim that has them in the template with updateVolumesStrategy \
         Replacement",
        claims.join(", ")
    );
    Recovery::Needed { reason: RECOVERY, message }
}

/// Makes a new instance begin on the claims that have its data: the source of each migration that
/// the last instance did not finish.
pub(crate) fn begin_on_sources(vm: &Value, vmi: &mut Value) {
    let unfinished = unfinished(vm, None);
    let Some(volumes) = vmi["spec"]["volumes"].as_array_mut() else { return };
    for own in volumes {
        let Some(entry) = move_of(&unfinished, own) else { continue };
        let mut claim = json!({"claimName": entry.source()});
        if volume(own).is_pluggable() {
            claim["hotpluggable"] = json!(true);
        }
        *own = json!({"name": volume(own).name, "persistentVolumeClaim": claim});
    }
}

#[cfg(test)]
mod tests;
