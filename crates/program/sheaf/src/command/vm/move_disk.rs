//! Moving a disk of a machine to another storage class while the machine runs.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use thiserror::Error;

use crate::cli::MoveDiskArgs;
use crate::command::link::ClusterClient;
use crate::command::{interrupt, print};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A disk of a machine with its claim.
#[derive(Debug, PartialEq, Eq)]
struct ClaimedDisk {
    /// The index in the volumes of the machine.
    index: usize,
    name: String,
    claim: String,
}

#[derive(Debug, PartialEq, Eq, Error)]
enum MoveDiskError {
    #[error("machine {machine} has no disk on a volume")]
    None { machine: String },
    #[error("machine {machine} has no disk {disk} on a volume; it has {}", disks.join(", "))]
    Unknown { machine: String, disk: String, disks: Vec<String> },
    #[error("machine {machine} has several disks: choose one with --disk {}", disks.join("|"))]
    Several { machine: String, disks: Vec<String> },
}

pub(super) async fn run(args: &MoveDiskArgs) -> Result<()> {
    let link = ClusterClient::to(&args.machine.place).await?;
    let name = &args.machine.name;
    let Some(vm) = link.find(&link.machine(name)).await? else {
        bail!("there is no machine {name} in namespace {}", link.namespace);
    };
    if args.cancel {
        return cancel(&link, &vm).await;
    }
    if vm["status"]["created"] != true {
        bail!("machine {name} is not running; start it first: sheaf vm start {name}");
    }
    if !active_moves(&vm).is_empty() {
        bail!(
            "a disk of {name} is being moved already; `sheaf vm move-disk {name} --cancel` ends that"
        );
    }
    let disk = choose(&vm, args.disk.as_deref())?;
    let path = link.core(&format!("persistentvolumeclaims/{}", disk.claim));
    let Some(source) = link.find(&path).await? else {
        bail!("the claim {} of disk {} does not exist", disk.claim, disk.name);
    };
    let class = args.class.as_deref().unwrap_or_default();
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    let Some(found) = link.find(&path).await? else {
        bail!("there is no storage class {class}; `kubectl get storageclass` lists them");
    };
    if source["spec"]["storageClassName"] == class && args.claim.is_none() {
        bail!("disk {} has the class {class} already; --claim NAME moves it anyway", disk.name);
    }
    let claim = new_claim(&source, &found, args.claim.as_deref());
    let made = link.post(&link.core("persistentvolumeclaims"), &claim).await?;
    let target = made["metadata"]["name"].as_str().unwrap_or_default();
    link.merge(&link.machine(name), &patch(&vm, &disk, target)).await?;
    let (old, disk) = (&disk.claim, &disk.name);
    print(&format!("disk {disk} of {name} moves from {old} to {target} ({class})\n"))?;
    if args.no_wait {
        return Ok(());
    }
    let continues = format!(
        "disk {disk} is still being moved; `sheaf vm why {name}` shows it, `sheaf vm move-disk \
         {name} --cancel` ends it"
    );
    interrupt::or_report(until_moved(&link, name, disk, target), continues).await?;
    print(&format!(
        "disk {disk} of {name} is on {target} now; `sheaf volume delete {old}` deletes the old one\n"
    ))
}

/// Ends the moves of a machine: its guest stays on the old claims.
async fn cancel(link: &ClusterClient, vm: &Value) -> Result<()> {
    let name = vm["metadata"]["name"].as_str().unwrap_or_default();
    let Some((patch, left)) = reverted(vm) else { bail!("no disk of {name} is being moved") };
    link.merge(&link.machine(name), &patch).await?;
    let left = left.join(" ");
    print(&format!(
        "the move is being cancelled; `sheaf volume delete {left}` deletes the copy that was begun\n"
    ))
}

async fn until_moved(link: &ClusterClient, machine: &str, disk: &str, target: &str) -> Result<()> {
    let mut said = String::new();
    loop {
        let Some(vmi) =
            link.find(&link.objects(&format!("virtualmachineinstances/{machine}"))).await?
        else {
            bail!("{machine} was stopped; its next start uses the claim that has all data");
        };
        let Some(vm) = link.find(&link.machine(machine)).await? else {
            bail!("{machine} was deleted");
        };
        match progress(&vm, &vmi, disk, target) {
            MoveProgress::Done => return Ok(()),
            MoveProgress::Canceled => bail!("the move of disk {disk} was cancelled"),
            MoveProgress::Refused(why) => bail!(
                "disk {disk} cannot be moved while the machine runs: {why}\n`sheaf vm move-disk \
                 {machine} --cancel` or a restart of the machine ends this"
            ),
            MoveProgress::Moving(message) => {
                if !message.is_empty() && message != said {
                    eprintln!("{message}");
                    said = message;
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum MoveProgress {
    Done,
    Canceled,
    Refused(String),
    Moving(String),
}

fn progress(vm: &Value, vmi: &Value, disk: &str, target: &str) -> MoveProgress {
    let condition = |object: &Value, kind: &str| {
        let all = object["status"]["conditions"].as_array()?;
        let found = all.iter().find(|own| own["type"] == kind)?;
        Some((found["status"] == "True", found["message"].as_str().unwrap_or_default().to_owned()))
    };
    let claim = disks(vm).into_iter().find(|own| own.name == disk).map(|own| own.claim);
    if claim.as_deref() != Some(target) {
        return MoveProgress::Canceled;
    }
    if let Some((true, why)) = condition(vm, "RestartRequired") {
        return MoveProgress::Refused(why);
    }
    let statuses = vmi["status"]["volumeStatus"].as_array();
    let own = statuses.and_then(|all| all.iter().find(|own| own["name"] == disk));
    let is_on_target =
        own.is_some_and(|own| own["persistentVolumeClaimInfo"]["claimName"] == target);
    let moves = vmi["status"]["migratedVolumes"].as_array().is_some_and(|all| !all.is_empty());
    if is_on_target && !moves && active_moves(vm).is_empty() {
        return MoveProgress::Done;
    }
    MoveProgress::Moving(condition(vmi, "VolumesChange").map(|it| it.1).unwrap_or_default())
}

fn active_moves(vm: &Value) -> &[Value] {
    let state = &vm["status"]["volumeUpdateState"]["volumeMigrationState"];
    state["migratedVolumes"].as_array().map_or(&[], Vec::as_slice)
}

fn volumes(vm: &Value) -> &[Value] {
    vm["spec"]["template"]["spec"]["volumes"].as_array().map_or(&[], Vec::as_slice)
}

fn disks(vm: &Value) -> Vec<ClaimedDisk> {
    let claimed = |(index, volume): (usize, &Value)| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        let claim = claim.or(volume["dataVolume"]["name"].as_str())?.to_owned();
        Some(ClaimedDisk { index, name: volume["name"].as_str()?.to_owned(), claim })
    };
    volumes(vm).iter().enumerate().filter_map(claimed).collect()
}

fn choose(vm: &Value, wanted: Option<&str>) -> Result<ClaimedDisk, MoveDiskError> {
    let machine = vm["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut all = disks(vm);
    let names = |all: &[ClaimedDisk]| all.iter().map(|disk| disk.name.clone()).collect();
    match (wanted, all.len()) {
        (_, 0) => Err(MoveDiskError::None { machine }),
        (None, 1) => Ok(all.remove(0)),
        (None, _) => Err(MoveDiskError::Several { machine, disks: names(&all) }),
        (Some(wanted), _) => match all.iter().position(|disk| disk.name == wanted) {
            Some(at) => Ok(all.swap_remove(at)),
            None => {
                let (disk, disks) = (wanted.to_owned(), names(&all));
                Err(MoveDiskError::Unknown { machine, disk, disks })
            }
        },
    }
}

/// A claim of another class for the data of `source`. It has the same owner, so that it is deleted
/// with the machine if the other would have been.
fn new_claim(source: &Value, class: &Value, name: Option<&str>) -> Value {
    let old = source["metadata"]["name"].as_str().unwrap_or_default();
    let size = match &source["status"]["capacity"]["storage"] {
        Value::Null => &source["spec"]["resources"]["requests"]["storage"],
        size => size,
    };
    let is_local = class["provisioner"].as_str().is_some_and(|own| own.starts_with("sheaf.io/"));
    let (access, mode) =
        if is_local { ("ReadWriteOnce", "Filesystem") } else { ("ReadWriteMany", "Block") };
    let owners = source["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let machines: Vec<&Value> = owners.filter(|own| own["kind"] == "VirtualMachine").collect();
    let mut metadata = json!({"namespace": source["metadata"]["namespace"]});
    match name {
        Some(name) => metadata["name"] = json!(name),
        None => metadata["generateName"] = json!(format!("{old}-")),
    }
    if !machines.is_empty() {
        metadata["ownerReferences"] = json!(machines);
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "accessModes": [access], "volumeMode": mode,
            "storageClassName": class["metadata"]["name"],
            "resources": {"requests": {"storage": size}},
        },
    })
}

/// The machine with another claim behind a disk.
fn patch(vm: &Value, disk: &ClaimedDisk, target: &str) -> Value {
    let mut volumes = volumes(vm).to_vec();
    let mut source = volumes[disk.index]["persistentVolumeClaim"].clone();
    if source.is_null() {
        source = json!({});
    }
    source["claimName"] = json!(target);
    volumes[disk.index] = json!({"name": disk.name, "persistentVolumeClaim": source});
    let mut spec = json!({
        "updateVolumesStrategy": "Migration",
        "template": {"spec": {"volumes": volumes}},
    });
    // Each template has to have a volume.
    if let Some(templates) = vm["spec"]["dataVolumeTemplates"].as_array() {
        let others = templates.iter().filter(|own| own["metadata"]["name"] != disk.claim);
        spec["dataVolumeTemplates"] = others.cloned().collect();
    }
    json!({"metadata": {"resourceVersion": vm["metadata"]["resourceVersion"]}, "spec": spec})
}

/// The machine with its old claims, and the claims that are not used then; nothing if no disk is
/// being moved.
fn reverted(vm: &Value) -> Option<(Value, Vec<String>)> {
    let mut volumes = volumes(vm).to_vec();
    let mut left = Vec::new();
    for entry in active_moves(vm) {
        let claim = |side: &str| entry[side]["claimName"].as_str();
        let (source, target) = (claim("sourcePVCInfo")?, claim("destinationPVCInfo")?);
        let volume = volumes.iter_mut().find(|own| own["name"] == entry["volumeName"])?;
        volume["persistentVolumeClaim"]["claimName"] = json!(source);
        left.push(target.to_owned());
    }
    let version = &vm["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version},
        "spec": {"template": {"spec": {"volumes": volumes}}}});
    (!left.is_empty()).then_some((patch, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Value {
        json!({"metadata": {"name": "web", "resourceVersion": "7"}, "spec": {
        "dataVolumeTemplates": [{"metadata": {"name": "web-disk"}}],
        "template": {"spec": {"volumes": [
            {"name": "root", "dataVolume": {"name": "web-disk"}},
            {"name": "seed", "cloudInitNoCloud": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d", "hotpluggable": true}},
        ]}}}})
    }

    #[test]
    fn a_disk_is_chosen_by_name_unless_there_is_only_one() {
        let (mut vm, message) = (machine(), |failure: MoveDiskError| failure.to_string());
        assert_eq!(choose(&vm, Some("data")).unwrap().claim, "d");
        let several = choose(&vm, None).map_err(message).unwrap_err();
        assert_eq!(several, "machine web has several disks: choose one with --disk root|data");
        let unknown = choose(&vm, Some("seed")).map_err(message).unwrap_err();
        assert_eq!(unknown, "machine web has no disk seed on a volume; it has root, data");
        vm["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap().truncate(2);
        assert_eq!(choose(&vm, None).unwrap().name, "root");
        vm["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap().remove(0);
        let none = choose(&vm, None).map_err(message).unwrap_err();
        assert_eq!(none, "machine web has no disk on a volume");
    }

    #[test]
    fn the_new_claim_is_as_large_and_has_the_same_owner() {
        let owner = json!({"kind": "VirtualMachine", "name": "web", "uid": "u"});
        let data = json!({"kind": "DataVolume", "name": "web-disk", "uid": "v"});
        let source = json!({"metadata": {"name": "web-disk", "namespace": "n",
            "ownerReferences": [data, owner]}, "spec": {"storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}}}, "status": {"capacity": {"storage": "2Gi"}}});
        let class = json!({"metadata": {"name": "fast"}, "provisioner": "driver.longhorn.io"});
        let claim = new_claim(&source, &class, None);
        assert_eq!(claim["metadata"]["generateName"], "web-disk-");
        assert_eq!(claim["metadata"]["ownerReferences"], json!([owner]));
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
        let modes = (&claim["spec"]["accessModes"][0], &claim["spec"]["volumeMode"]);
        assert_eq!(modes, (&json!("ReadWriteMany"), &json!("Block")));
        let class = json!({"metadata": {"name": "local"}, "provisioner": "sheaf.io/local"});
        let claim = new_claim(&source, &class, Some("mine"));
        assert_eq!(
            (&claim["metadata"]["name"], &claim["spec"]["accessModes"][0]),
            (&json!("mine"), &json!("ReadWriteOnce"))
        );
    }

    #[test]
    fn a_move_replaces_the_claim_and_its_template_and_a_cancel_names_the_old_one() {
        let mut vm = machine();
        let root = choose(&vm, Some("root")).unwrap();
        let made = patch(&vm, &root, "new");
        assert_eq!(made["metadata"]["resourceVersion"], "7");
        assert_eq!(made["spec"]["updateVolumesStrategy"], "Migration");
        assert_eq!(made["spec"]["dataVolumeTemplates"], json!([]));
        let volumes = &made["spec"]["template"]["spec"]["volumes"];
        assert_eq!(
            volumes[0],
            json!({"name": "root", "persistentVolumeClaim": {"claimName": "new"}})
        );
        assert_eq!(volumes[2]["persistentVolumeClaim"]["hotpluggable"], true, "others stay");
        vm["spec"] = made["spec"].clone();
        assert_eq!(reverted(&vm), None);
        vm["status"]["volumeUpdateState"] = json!({"volumeMigrationState": {"migratedVolumes": [
            {"volumeName": "root", "sourcePVCInfo": {"claimName": "web-disk"},
                "destinationPVCInfo": {"claimName": "new"}}]}});
        let (back, left) = reverted(&vm).unwrap();
        assert_eq!(left, ["new"]);
        let root = &back["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"];
        assert_eq!(root["claimName"], "web-disk");
    }

    #[test]
    fn a_move_is_over_when_the_guest_is_on_the_new_claim() {
        let mut vm = machine();
        let data = choose(&vm, Some("data")).unwrap();
        assert_eq!(progress(&vm, &json!({}), "data", "new"), MoveProgress::Canceled);
        vm["spec"] = patch(&vm, &data, "new")["spec"].clone();
        let status = |claim: &str, moves: Value| {
            json!({"status": {"migratedVolumes": moves, "volumeStatus": [{"name": "data",
                "persistentVolumeClaimInfo": {"claimName": claim}}],
                "conditions": [{"type": "VolumesChange", "status": "True", "message": "copying"}]}})
        };
        let moving = MoveProgress::Moving("copying".into());
        assert_eq!(progress(&vm, &status("d", json!([])), "data", "new"), moving);
        assert_eq!(progress(&vm, &status("new", json!([{}])), "data", "new"), moving);
        assert_eq!(progress(&vm, &status("new", json!([])), "data", "new"), MoveProgress::Done);
        vm["status"]["conditions"] =
            json!([{"type": "RestartRequired", "status": "True", "message": "too small"}]);
        let refused = MoveProgress::Refused("too small".into());
        assert_eq!(progress(&vm, &status("d", json!([])), "data", "new"), refused);
    }
}
