//! What a restore makes of a snapshot: pure.

use base::clock;
use hci::together::{RESUME, SnapshotGroup, TOGETHER};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use types::Quantity;

use crate::condition::{self, Condition};
use crate::copied_spec::{remove_identity, volumes_mut};
use crate::json_patch::{self, PatchError};
use crate::object::{
    self, annotation, controlled_by, controller, copied_map, is_true, list, name, namespace,
    quantity, strings, text, uid,
};

/// The restore that made a machine what it is.
const RESTORED_BY: &str = "restore.kubevirt.io/lastRestoreUID";
/// Harvester's claims that a machine brings along.
const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
/// What kubectl remembers of another machine.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long the target may take to stop where nothing else is said.
const GRACE: SignedDuration = SignedDuration::from_mins(5);

/// A disk that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) volume: String,
    /// The claim that is made for it.
    pub(super) claim: String,
    /// The one that was captured.
    pub(super) former: String,
    pub(super) snapshot: String,
}

pub(super) fn is_over(restore: &Value) -> bool {
    is_true(restore, "/status/complete") || condition::is(restore, "Failure", "True")
}

/// Disks as the restore wrote them down, or as it will.
pub(super) fn disks(restore: &Value, content: &Value) -> Vec<Restored> {
    let override_of = |volume: &str| {
        let all = list(restore, "/spec/volumeRestoreOverrides").iter();
        let own = all.into_iter().find(|own| text(own, "/volumeName") == volume);
        own.map(|own| text(own, "/restoreName")).filter(|name| !name.is_empty())
    };
    list(content, "/spec/volumeBackups")
        .iter()
        .filter(|own| !text(own, "/volumeSnapshotName").is_empty())
        .map(|own| {
            let volume = text(own, "/volumeName");
            let claim = match override_of(volume) {
                Some(name) => name.to_owned(),
                None if text(restore, "/spec/volumeRestorePolicy") == "PrefixTargetName" => {
                    format!("{}-{volume}", text(restore, "/spec/target/name"))
                }
                None => format!("restore-{}-{volume}", uid(restore)),
            };
            Restored {
                volume: volume.to_owned(),
                claim,
                former: text(own, "/persistentVolumeClaim/metadata/name").to_owned(),
                snapshot: text(own, "/volumeSnapshotName").to_owned(),
            }
        })
        .collect()
}

/// Whether the target may be replaced now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetReadiness {
    Yes,
    Stop,
    Wait,
    Fail,
}

pub(super) fn readiness(restore: &Value, runs: bool, now: Timestamp) -> TargetReadiness {
    if !runs {
        return TargetReadiness::Yes;
    }
    let began = text(restore, "/metadata/creationTimestamp").parse::<Timestamp>();
    let late = began.is_ok_and(|began| now.duration_since(began) > GRACE);
    match text(restore, "/spec/targetReadinessPolicy") {
        "StopTarget" => TargetReadiness::Stop,
        "FailImmediate" => TargetReadiness::Fail,
        "WaitEventually" => TargetReadiness::Wait,
        _ if late => TargetReadiness::Fail,
        _ => TargetReadiness::Wait,
    }
}

/// A claim like the one that was captured, with what it held then.
pub(super) fn claim(
    restore: &Value,
    content: &Value,
    disk: &Restored,
    taken: Option<&Value>,
) -> Value {
    let backups = list(content, "/spec/volumeBackups").iter();
    let backup = backups.into_iter().find(|own| text(own, "/volumeName") == disk.volume);
    let former = backup.map_or(Value::Null, |own| own["persistentVolumeClaim"].clone());
    let asked = quantity(&former, "/spec/resources/requests/storage");
    let held = taken.and_then(|own| quantity(own, "/status/restoreSize"));
    let size: Option<Quantity> = asked.max(held);
    let mut spec = json!({
        "accessModes": former["spec"]["accessModes"],
        "resources": {"requests": {"storage": size.map(|own| own.to_string())}},
        "dataSource": {"apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot",
            "name": disk.snapshot},
    });
    for field in ["storageClassName", "volumeMode"] {
        if let Some(own) = former["spec"].get(field) {
            spec[field] = own.clone();
        }
    }
    let mut metadata = json!({
        "name": disk.claim, "namespace": namespace(restore),
        "annotations": {"restore.kubevirt.io/name": name(restore)},
    });
    if let Some(labels) = former["metadata"].get("labels").filter(|own| own.is_object()) {
        metadata["labels"] = labels.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": spec})
}

/// Bound, or sure to be when somebody uses it.
pub(super) fn is_usable(claim: &Value) -> bool {
    text(claim, "/status/phase") == "Bound"
}

pub(super) fn is_restored(vm: &Value, restore: &Value) -> bool {
    annotation(vm, RESTORED_BY) == Some(uid(restore))
}

/// The reason of a restore that waits because its target is another machine.
pub(super) const FOREIGN: &str =
    "restore source and restore target are different but restore target already exists";

/// Whether the target is there and is another machine than the captured one, which nothing may
/// replace. What this restore has made is its own; a restore that was made for a clone or for a
/// backup has been judged by that.
pub(super) fn is_foreign(vm: &Value, snapshot: &Value, restore: &Value) -> bool {
    let judged = controller(restore).is_some_and(|own| text(own, "/kind") != "VirtualMachine");
    let source = text(snapshot, "/status/sourceUID");
    !judged && !source.is_empty() && source != uid(vm) && !is_restored(vm, restore)
}

/// The patch that makes the machine the owner of a restore without a controller.
pub(super) fn adoption(restore: &Value, vm: &Value) -> Option<Value> {
    controller(restore).is_none().then(|| {
        let mut owners = list(restore, "/metadata/ownerReferences").to_vec();
        owners.push(controlled_by(vm, "kubevirt.io/v1", "VirtualMachine"));
        json!({"metadata": {"ownerReferences": owners}})
    })
}

/// The spec that was captured, with the new claims in place of the former.
fn spec(content: &Value, disks: &[Restored]) -> Value {
    let mut spec = content["spec"]["source"]["virtualMachine"]["spec"].clone();
    let new = |volume: &str| disks.iter().find(|disk| disk.volume == volume);
    for volume in volumes_mut(&mut spec).into_iter().flatten() {
        let Some(disk) = new(text(volume, "/name")) else { continue };
        let hot = ["/dataVolume/hotpluggable", "/persistentVolumeClaim/hotpluggable"]
            .iter()
            .any(|pointer| is_true(volume, pointer));
        let mut source = json!({"claimName": disk.claim});
        if hot {
            source["hotpluggable"] = json!(true);
        }
        *volume = json!({"name": disk.volume, "persistentVolumeClaim": source});
    }
    // What was made from a template is a claim now, and must not be made again.
    let gone: Vec<&str> = disks.iter().map(|disk| disk.former.as_str()).collect();
    if let Some(templates) = spec.get_mut("dataVolumeTemplates").and_then(Value::as_array_mut) {
        templates.retain(|own| !gone.contains(&name(own)));
    }
    spec
}

/// Harvester's annotation with the new claims' names.
fn templates(content: &Value, disks: &[Restored]) -> Option<String> {
    let machine = &content["spec"]["source"]["virtualMachine"];
    let mut templates: Value = serde_json::from_str(annotation(machine, TEMPLATES)?).ok()?;
    for own in templates.as_array_mut()? {
        let disk = disks.iter().find(|disk| disk.former == text(own, "/metadata/name"));
        if let Some(disk) = disk {
            own["metadata"]["name"] = json!(disk.claim);
        }
    }
    Some(templates.to_string())
}

/// The target becomes what was captured. Whether it runs stays its own matter.
pub(super) fn machine_patch(
    restore: &Value,
    content: &Value,
    vm: &Value,
    disks: &[Restored],
) -> Value {
    let mut wanted = spec(content, disks);
    for field in ["running", "runStrategy"] {
        wanted[field] = vm["spec"].get(field).cloned().unwrap_or(Value::Null);
    }
    // A merge keeps what it does not name.
    for (field, _) in vm["spec"].as_object().into_iter().flatten() {
        if wanted.get(field).is_none() {
            wanted[field.as_str()] = Value::Null;
        }
    }
    let template = replacing(&vm["spec"]["template"], &wanted["template"]);
    wanted["template"] = template;
    let mut annotations = json!({RESTORED_BY: uid(restore), RESUME: memory(content)});
    if let Some(templates) = templates(content, disks) {
        annotations[TEMPLATES] = json!(templates);
    }
    json!({"metadata": {"uid": uid(vm), "annotations": annotations}, "spec": wanted})
}

/// The instant whose memory was captured with the disks. Only the machine itself goes on with it:
/// another one would be in the network under the same addresses.
fn memory(content: &Value) -> Option<String> {
    let together = SnapshotGroup::parse(annotation(content, TOGETHER)?)?;
    together.memory.then_some(together.instant)
}

/// The merge patch from one object to another.
fn replacing(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let mut patch = new.clone();
    for (key, value) in &mut patch {
        if let Some(before) = old.get(key) {
            *value = replacing(before, value);
        }
    }
    for key in old.keys() {
        patch.entry(key.clone()).or_insert(Value::Null);
    }
    Value::Object(patch)
}

/// A new machine like the one that was captured, which stands still at first. Two of one address
/// cannot be in one network.
pub(super) fn machine(
    restore: &Value,
    content: &Value,
    disks: &[Restored],
) -> Result<Value, PatchError> {
    let mut spec = spec(content, disks);
    if spec.get("running").is_some_and(Value::is_boolean) {
        spec["running"] = json!(false);
    } else {
        spec["runStrategy"] = json!("Halted");
    }
    remove_identity(&mut spec);
    let source = &content["spec"]["source"]["virtualMachine"];
    let mut annotations = copied_map(object::annotations(source));
    annotations.remove(LAST_APPLIED);
    annotations.remove(RESUME);
    annotations.insert(RESTORED_BY.to_owned(), json!(uid(restore)));
    if let Some(templates) = templates(content, disks) {
        annotations.insert(TEMPLATES.to_owned(), json!(templates));
    }
    let mut metadata = json!({
        "name": text(restore, "/spec/target/name"), "namespace": namespace(restore),
        "annotations": annotations,
    });
    if let Some(labels) = source["metadata"].get("labels").filter(|own| own.is_object()) {
        metadata["labels"] = labels.clone();
    }
    let mut machine = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": metadata, "spec": spec});
    let patches: Vec<&str> = strings(restore, "/spec/patches").collect();
    json_patch::apply(&mut machine, &patches)?;
    Ok(machine)
}

/// New claims go with their machine, unless the restore says otherwise.
pub(super) fn ownership(restore: &Value, machine: &Value) -> Option<Value> {
    if text(restore, "/spec/volumeOwnershipPolicy") == "None" {
        return None;
    }
    let owner = controlled_by(machine, "kubevirt.io/v1", "VirtualMachine");
    Some(json!({"metadata": {"ownerReferences": [owner]}}))
}

/// Data volumes of the target's templates whose disks are replaced.
pub(super) fn former_data_volumes(vm: Option<&Value>, disks: &[Restored]) -> Vec<String> {
    let templates = vm.map_or(&[][..], |vm| list(vm, "/spec/dataVolumeTemplates")).iter();
    let replaced = |own: &&Value| disks.iter().any(|disk| disk.former == name(own));
    templates.filter(replaced).map(|own| name(own).to_owned()).collect()
}

fn with_conditions(restore: &Value, wanted: &[Condition], now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(restore);
    for own in wanted {
        condition::set(&mut conditions, own, now);
    }
    conditions
}

pub(super) fn waiting(restore: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because(why, why),
        Condition::new("Ready", "False").because(why, why),
    ];
    json!({"status": {
        "complete": false, "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(super) fn begun(restore: &Value, disks: &[Restored], now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "True").because("Creating new PVCs", "Creating new PVCs"),
        Condition::new("Ready", "False").because("Waiting for new PVCs", "Waiting for new PVCs"),
    ];
    let restores: Vec<Value> = disks
        .iter()
        .map(|disk| {
            json!({"volumeName": disk.volume, "persistentVolumeClaim": disk.claim,
                "volumeSnapshotName": disk.snapshot})
        })
        .collect();
    json!({"status": {
        "complete": false, "restores": restores,
        "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(super) fn complete(restore: &Value, former: &[String], now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because("Operation complete", "Operation complete"),
        Condition::new("Ready", "True").because("Operation complete", "Operation complete"),
    ];
    json!({"status": {
        "complete": true, "restoreTime": clock::rfc3339(now), "deletedDataVolumes": former,
        "conditions": with_conditions(restore, &conditions, now),
    }})
}

pub(super) fn failed(restore: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because(why, why),
        Condition::new("Ready", "False").because(why, why),
        Condition::new("Failure", "True").because(why, why),
    ];
    json!({"status": {
        "complete": false, "conditions": with_conditions(restore, &conditions, now),
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Value {
        let claim = json!({
            "metadata": {"name": "data", "labels": {"a": "b"}},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "longhorn",
                "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}},
        });
        json!({"spec": {
            "source": {"virtualMachine": {
                "metadata": {"name": "m", "annotations":
                    {TEMPLATES: r#"[{"metadata":{"name":"data"}},{"metadata":{"name":"x"}}]"#}},
                "spec": {
                    "runStrategy": "Always", "dataVolumeTemplates": [{"metadata": {"name": "data"}}],
                    "template": {"spec": {
                        "domain": {"devices": {"interfaces": [{"name": "i", "macAddress": "a"}]}},
                        "volumes": [{"name": "root", "dataVolume": {"name": "data"}},
                            {"name": "seed", "cloudInitNoCloud": {}}],
                    }},
                },
            }},
            "volumeBackups": [{"volumeName": "root", "volumeSnapshotName": "vs",
                "persistentVolumeClaim": claim}],
        }})
    }

    fn restore(changes: Value) -> Value {
        let mut spec = json!({"target": {"name": "t"}, "virtualMachineSnapshotName": "s"});
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"metadata": {"name": "r", "namespace": "n", "uid": "u",
            "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": spec})
    }

    #[test]
    fn another_machine_is_replaced_only_for_somebody_who_judged() {
        let snapshot = |source: &str| json!({"status": {"sourceUID": source}});
        let owned = |kind: &str| {
            let mut own = restore(json!({}));
            let owner = json!({"kind": kind, "name": "o", "uid": "o", "controller": true});
            own["metadata"]["ownerReferences"] = json!([owner]);
            own
        };
        let vm = |made_by: &str| {
            json!({"metadata": {"name": "m", "uid": "v",
            "annotations": {RESTORED_BY: made_by}}})
        };
        let own = restore(json!({}));
        for (vm, source, restore, expected) in [
            (vm("x"), "v", &own, false),
            (vm("x"), "w", &own, true),
            (vm("x"), "", &own, false),
            (vm("u"), "w", &own, false),
            (vm("x"), "w", &owned("VirtualMachine"), true),
            (vm("x"), "w", &owned("VirtualMachineClone"), false),
        ] {
            assert_eq!(is_foreign(&vm, &snapshot(source), restore), expected, "{vm} {source}");
        }
    }

    #[test]
    fn disks_come_back_as_claims_of_their_size() {
        let own = restore(json!({}));
        let disks = disks(&own, &content());
        assert_eq!(disks[0].claim, "restore-u-root");
        let taken = json!({"status": {"restoreSize": "2Gi"}});
        let made = claim(&own, &content(), &disks[0], Some(&taken));
        assert_eq!(made["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert_eq!(made["spec"]["dataSource"]["name"], "vs");
        assert_eq!(made["spec"]["volumeMode"], "Block");
        let prefixed = restore(json!({"volumeRestorePolicy": "PrefixTargetName"}));
        assert_eq!(super::disks(&prefixed, &content())[0].claim, "t-root");
        let named = restore(json!({"volumeRestoreOverrides": [
            {"volumeName": "root", "restoreName": "mine"}]}));
        assert_eq!(super::disks(&named, &content())[0].claim, "mine");
    }

    #[test]
    fn a_machine_becomes_what_it_was_with_new_disks() {
        let own = restore(json!({}));
        let disks = disks(&own, &content());
        let vm = json!({"metadata": {"name": "t", "uid": "v"}, "spec": {
            "runStrategy": "Halted", "instancetype": {"name": "x"},
            "template": {"spec": {"hostname": "later", "volumes": []}}}});
        let patch = machine_patch(&own, &content(), &vm, &disks);
        let spec = &patch["spec"];
        assert_eq!(spec["runStrategy"], "Halted");
        assert_eq!(
            (&spec["instancetype"], &spec["template"]["spec"]["hostname"]),
            (&Value::Null, &Value::Null)
        );
        let volumes = &spec["template"]["spec"]["volumes"];
        assert_eq!(
            volumes[0],
            json!({"name": "root", "persistentVolumeClaim": {"claimName": "restore-u-root"}})
        );
        assert_eq!(volumes[1]["name"], "seed");
        assert_eq!(spec["dataVolumeTemplates"], json!([]));
        let templates = patch["metadata"]["annotations"][TEMPLATES].as_str().unwrap();
        assert!(templates.contains("restore-u-root") && templates.contains("\"x\""), "{templates}");
        let new = machine(&own, &content(), &disks).unwrap();
        assert_eq!(new["spec"]["runStrategy"], "Halted");
        assert_eq!(name(&new), "t");
        let interface = new.pointer("/spec/template/spec/domain/devices/interfaces/0").unwrap();
        assert_eq!(interface, &json!({"name": "i"}));
    }

    #[test]
    fn a_target_that_runs_is_awaited_stopped_or_too_much() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (policy, second, expected) in [
            ("WaitGracePeriod", 10, TargetReadiness::Wait),
            ("WaitGracePeriod", 301, TargetReadiness::Fail),
            ("WaitEventually", 301, TargetReadiness::Wait),
            ("StopTarget", 10, TargetReadiness::Stop),
            ("FailImmediate", 10, TargetReadiness::Fail),
        ] {
            let own = restore(json!({"targetReadinessPolicy": policy}));
            assert_eq!(readiness(&own, true, at(second)), expected, "{policy} at {second}");
            assert_eq!(readiness(&own, false, at(second)), TargetReadiness::Yes);
        }
    }
}
