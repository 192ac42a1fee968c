//! Attaching and detaching volumes: a machine's template is edited, and the controller and the
//! node of the guest act on the difference.

use serde_json::{Value, json};

use super::{Patch, PatchTarget, add, name, test};
use crate::refusal::{Refusal, RefusalSubject};
use crate::state::{InstancePhase, list, text};

/// The owner of the volumes in a request.
#[derive(Clone, Copy, Debug)]
pub enum Volumes<'a> {
    /// A machine: its template is edited, so the volume outlives the run.
    OfMachine(&'a Value),
    /// An instance without a machine.
    OfInstance(&'a Value),
}

impl<'a> Volumes<'a> {
    fn object(self) -> &'a Value {
        match self {
            Self::OfMachine(object) | Self::OfInstance(object) => object,
        }
    }

    fn spec(self) -> (&'a Value, &'static str) {
        match self {
            Self::OfMachine(vm) => (&vm["spec"]["template"]["spec"], "/spec/template/spec"),
            Self::OfInstance(vmi) => (&vmi["spec"], "/spec"),
        }
    }

    fn conflict(self, why: &str) -> Refusal {
        let subject = match self {
            Self::OfMachine(_) => RefusalSubject::Machine,
            Self::OfInstance(_) => RefusalSubject::Instance,
        };
        subject.conflict(name(self.object()), why)
    }

    fn check(self) -> Result<(), Refusal> {
        let Self::OfInstance(vmi) = self else { return Ok(()) };
        let owners = list(&vmi["metadata"]["ownerReferences"]);
        if owners
            .iter()
            .any(|owner| owner["kind"] == "VirtualMachine" && owner["controller"] == true)
        {
            let namespace = text(vmi, "/metadata/namespace");
            let why = format!("VMI {namespace}/{} is owned by a VM", name(vmi));
            return Err(Refusal::bad_request(why));
        }
        if InstancePhase::of(vmi) == InstancePhase::Running {
            Ok(())
        } else {
            Err(self.conflict("VMI is not running"))
        }
    }

    /// Replaces both lists, if they are still what they were.
    fn replace(self, volumes: &[Value], disks: &[Value]) -> Patch {
        let (spec, base) = self.spec();
        let volume_path = format!("{base}/volumes");
        let disk_path = format!("{base}/domain/devices/disks");
        let target = match self {
            Self::OfMachine(_) => PatchTarget::Machine,
            Self::OfInstance(_) => PatchTarget::Instance,
        };
        Patch::new(
            target,
            vec![
                test(&volume_path, &spec["volumes"]),
                test(&disk_path, &spec["domain"]["devices"]["disks"]),
                add(&volume_path, &json!(volumes)),
                add(&disk_path, &json!(disks)),
            ],
        )
    }
}

/// Attaches a volume. `options` is the request's body, an `AddVolumeOptions`.
pub fn add_volume(of: Volumes<'_>, options: &Value) -> Result<Patch, Refusal> {
    let wanted = text(options, "/name");
    let need = |what: &str| Err(Refusal::bad_request(format!("AddVolumeOptions requires {what}")));
    if wanted.is_empty() {
        return need("name to be set");
    }
    if !options["disk"].is_object() {
        return need("disk to not be nil");
    }
    if !options["volumeSource"].is_object() {
        return need("VolumeSource to not be nil");
    }
    of.check()?;
    let mut volume = json!({"name": wanted});
    let mut source = "";
    for kind in ["dataVolume", "persistentVolumeClaim"] {
        let given = &options["volumeSource"][kind];
        if given.is_object() {
            volume[kind] = given.clone();
            volume[kind]["hotpluggable"] = true.into();
            source = source_name(given);
            break;
        }
    }
    let (spec, _) = of.spec();
    for known in list(&spec["volumes"]) {
        if known["name"] == wanted {
            let why = format!(
                "Unable to add volume [{wanted}] because volume with that name already exists"
            );
            return Err(of.conflict(&why));
        }
        if has_source(known, source) {
            let why = format!("Unable to add volume source [{source}] because it already exists");
            return Err(of.conflict(&why));
        }
    }
    let mut disk = options["disk"].clone();
    disk["name"] = wanted.into();
    let mut volumes = list(&spec["volumes"]).to_vec();
    let mut disks = list(&spec["domain"]["devices"]["disks"]).to_vec();
    volumes.push(volume);
    disks.push(disk);
    Ok(of.replace(&volumes, &disks))
}

/// Detaches a volume that was attached while the guest ran. `options` is a
/// `RemoveVolumeOptions`; its name may be the volume's or its claim's.
pub fn remove_volume(of: Volumes<'_>, options: &Value) -> Result<Patch, Refusal> {
    let wanted = text(options, "/name");
    if wanted.is_empty() {
        return Err(Refusal::bad_request("RemoveVolumeOptions requires name to be set"));
    }
    of.check()?;
    let (spec, _) = of.spec();
    let known = list(&spec["volumes"]);
    let found = known.iter().find(|volume| volume["name"] == wanted || has_source(volume, wanted));
    let Some(found) = found else {
        let why = format!("Unable to remove volume [{wanted}] because it does not exist");
        return Err(of.conflict(&why));
    };
    let label = text(found, "/name");
    if !is_hotpluggable(found) {
        let why = format!("Unable to remove volume [{label}] because it is not hotpluggable");
        return Err(of.conflict(&why));
    }
    let without = |items: &[Value]| -> Vec<Value> {
        items.iter().filter(|item| item["name"] != label).cloned().collect()
    };
    Ok(of.replace(&without(known), &without(list(&spec["domain"]["devices"]["disks"]))))
}

fn has_source(volume: &Value, source: &str) -> bool {
    !source.is_empty()
        && ["dataVolume", "persistentVolumeClaim"]
            .iter()
            .any(|kind| volume[kind].is_object() && source_name(&volume[kind]) == source)
}

fn source_name(source: &Value) -> &str {
    source["name"].as_str().or(source["claimName"].as_str()).unwrap_or_default()
}

/// Whether a volume may come and go while the guest runs.
pub(crate) fn is_hotpluggable(volume: &Value) -> bool {
    ["dataVolume", "persistentVolumeClaim"].iter().any(|kind| volume[kind]["hotpluggable"] == true)
}
