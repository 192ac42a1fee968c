//! Volumes of running machines that move to other claims, and claims that are copied to other
//! classes. The objects to write are decided by pure functions.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::machine_change::{self as change, VOLUMES};
use super::{ActionTarget, Input, impossible, invalid};
use crate::error::SteveError;
use crate::objects::ResourceCall;

const STRATEGY: &str = "updateVolumesStrategy";
/// How often a machine is read anew that a controller has written meanwhile.
const ATTEMPTS: usize = 10;

/// Why volumes do not move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum MoveError {
    #[error("source volume {volume} not found in virtual machine {machine}")]
    NoSource { volume: String, machine: String },
    #[error("volume {volume} is already used by virtual machine {machine}")]
    TargetUsed { volume: String, machine: String },
    #[error("no active storage migration found")]
    NotActive,
}

/// The migrations that a machine has not finished.
pub(super) fn active(vm: &Value) -> &[Value] {
    let state = &vm["status"]["volumeUpdateState"]["volumeMigrationState"];
    state["migratedVolumes"].as_array().map_or(&[], Vec::as_slice)
}

/// Replaces a claim by another, which moves the data of a running guest.
fn replace(vm: &mut Value, source: &str, target: &Value) -> Result<(), MoveError> {
    let machine = vm["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let to = target["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let volumes = change::list(&mut vm["spec"], &VOLUMES);
    let is = |volume: &Value, claim: &str| {
        volume["persistentVolumeClaim"]["claimName"] == claim
            || volume["dataVolume"]["name"] == claim
    };
    if volumes.iter().any(|volume| is(volume, &to)) {
        return Err(MoveError::TargetUsed { volume: to, machine });
    }
    let Some(volume) = volumes.iter_mut().find(|volume| is(volume, source)) else {
        return Err(MoveError::NoSource { volume: source.to_owned(), machine });
    };
    set_claim(volume, &to);
    vm["spec"][STRATEGY] = json!("Migration");
    change::replace_template(vm, source, target);
    Ok(())
}

/// Names the old claims again.
fn revert(vm: &mut Value) -> Result<Vec<(String, String)>, MoveError> {
    let claim = |entry: &Value, side: &str| entry[side]["claimName"].as_str().map(str::to_owned);
    let mut reverted = Vec::new();
    for entry in active(vm).to_vec() {
        let (Some(from), Some(to)) =
            (claim(&entry, "sourcePVCInfo"), claim(&entry, "destinationPVCInfo"))
        else {
            continue;
        };
        let volumes = change::list(&mut vm["spec"], &VOLUMES);
        if let Some(volume) = volumes.iter_mut().find(|own| own["name"] == entry["volumeName"]) {
            set_claim(volume, &from);
            reverted.push((to, from));
        }
    }
    if reverted.is_empty() { Err(MoveError::NotActive) } else { Ok(reverted) }
}

fn set_claim(volume: &mut Value, claim: &str) {
    let mut source = volume["persistentVolumeClaim"].clone();
    if source.is_null() {
        source = json!({});
        if volume["dataVolume"]["hotpluggable"] == true {
            source["hotpluggable"] = json!(true);
        }
    }
    source["claimName"] = json!(claim);
    *volume = json!({"name": volume["name"], "persistentVolumeClaim": source});
}

async fn claim(call: &ResourceCall<'_>, namespace: &str, name: &str) -> Result<Value, SteveError> {
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
    call.session.get(&path).await
}

/// Writes the machine; false if another client has since it was read.
async fn write(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    vm: &Value,
) -> Result<bool, SteveError> {
    let bytes = serde_json::to_vec(vm).unwrap_or_default();
    let kind = "application/json";
    match call.session.send(Method::PUT, target.path, kind, &bytes, kind).await {
        Err(error) if error.status == StatusCode::CONFLICT => Ok(false),
        result => result.map(|_| true),
    }
}

/// Repeats a change of a machine until no other client writes between its reading and its writing.
async fn repeat<F: Future<Output = Result<bool, SteveError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<(), SteveError> {
    for _ in 0..ATTEMPTS {
        if attempt().await? {
            return Ok(());
        }
    }
    let message = "the virtual machine changes too often; try again";
    Err(SteveError::new(StatusCode::CONFLICT, "Conflict", message))
}

/// Moves a volume of a machine to another claim.
pub(super) async fn start(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    input: &Input,
) -> Result<(), SteveError> {
    repeat(|| try_start(call, target, input)).await
}

async fn try_start(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    input: &Input,
) -> Result<bool, SteveError> {
    let (source, to) = (input.text("sourceVolume"), input.text("targetVolume"));
    let mut vm = call.session.get(target.path).await?;
    if source.is_empty() || to.is_empty() {
        return Err(invalid("Parameter `sourceVolume` and `targetVolume` are required"));
    }
    if source == to {
        return Err(invalid("sourceVolume and targetVolume must be different"));
    }
    if vm["status"]["created"] != true {
        return Err(impossible("The VM is not in running state"));
    }
    if !active(&vm).is_empty() {
        return Err(impossible("a storage migration is already in progress"));
    }
    let wanted = claim(call, target.namespace, to).await?;
    replace(&mut vm, source, &wanted).map_err(|error| match error {
        MoveError::NoSource { .. } => impossible(error.to_string()),
        MoveError::TargetUsed { .. } | MoveError::NotActive => invalid(&error.to_string()),
    })?;
    write(call, target, &vm).await
}

/// Gives up the migrations of a machine.
pub(super) async fn cancel(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<(), SteveError> {
    repeat(|| try_cancel(call, target)).await
}

async fn try_cancel(call: &ResourceCall<'_>, target: ActionTarget<'_>) -> Result<bool, SteveError> {
    let mut vm = call.session.get(target.path).await?;
    let reverted = revert(&mut vm).map_err(|error| impossible(error.to_string()))?;
    for (to, from) in reverted {
        let claim = claim(call, target.namespace, &from).await?;
        change::replace_template(&mut vm, &to, &claim);
    }
    write(call, target, &vm).await
}

/// Copies a claim that no machine uses into a new one of another class.
pub(super) async fn copy(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    claim: &Value,
    input: &Input,
) -> Result<(), SteveError> {
    let (name, class) = (input.text("targetVolumeName"), input.text("targetStorageClassName"));
    for (field, value) in [("targetVolumeName", name), ("targetStorageClassName", class)] {
        if value.is_empty() {
            return Err(invalid(&format!("Parameter `{field}` is required")));
        }
    }
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    if call.session.find(&path).await?.is_none() {
        return Err(invalid(&format!("StorageClass {class} not found")));
    }
    let path = format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachines", target.namespace);
    let machines = call.session.get(&path).await?;
    let mut machines = machines["items"].as_array().into_iter().flatten();
    if let Some(vm) = machines.find(|vm| change::claims(vm).iter().any(|own| own == target.name)) {
        return Err(invalid(&format!(
            "can not operate the volume {} which is currently attached to VM {}/{}",
            target.name,
            target.namespace,
            vm["metadata"]["name"].as_str().unwrap_or_default()
        )));
    }
    let path = format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes", target.namespace);
    call.session.post(&path, &copied(claim, name, class)).await.map(drop)
}

/// A data volume with the data of a claim.
fn copied(claim: &Value, name: &str, class: &str) -> Value {
    let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
    let mut storage = json!({
        "storageClassName": class,
        "resources": {"requests": {"storage": spec["resources"]["requests"]["storage"]}},
    });
    for field in ["accessModes", "volumeMode"] {
        if !spec[field].is_null() {
            storage[field] = spec[field].clone();
        }
    }
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "spec": {
            "source": {"pvc": {"namespace": metadata["namespace"], "name": metadata["name"]}},
            "storage": storage,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Value {
        json!({"metadata": {"name": "m", "annotations": {change::CLAIM_TEMPLATES:
            r#"[{"metadata":{"name":"old"},"spec":{"storageClassName":"a"}}]"#}},
        "spec": {"template": {"spec": {"volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "old", "hotpluggable": true}},
            {"name": "data", "dataVolume": {"name": "d"}},
        ]}}}})
    }

    fn claim(name: &str, class: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"storageClassName": class,
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}}}})
    }

    #[test]
    fn a_volume_moves_and_comes_back() {
        let mut vm = machine();
        replace(&mut vm, "old", &claim("new", "b")).unwrap();
        assert_eq!(vm["spec"][STRATEGY], "Migration");
        let root = &vm["spec"]["template"]["spec"]["volumes"][0];
        let expected = json!({"claimName": "new", "hotpluggable": true});
        assert_eq!(root["persistentVolumeClaim"], expected);
        let templates = vm["metadata"]["annotations"][change::CLAIM_TEMPLATES].as_str().unwrap();
        assert!(templates.contains("\"new\"") && !templates.contains("\"old\""), "{templates}");
        assert_eq!(revert(&mut vm), Err(MoveError::NotActive));
        vm["status"]["volumeUpdateState"] = json!({"volumeMigrationState": {"migratedVolumes": [
            {"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
                "destinationPVCInfo": {"claimName": "new"}}]}});
        assert_eq!(revert(&mut vm), Ok(vec![("new".into(), "old".into())]));
        let root = &vm["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(root["persistentVolumeClaim"]["claimName"], "old");
        // A data volume is a claim of its name.
        replace(&mut vm, "d", &claim("e", "b")).unwrap();
        let data = json!({"name": "data", "persistentVolumeClaim": {"claimName": "e"}});
        assert_eq!(vm["spec"]["template"]["spec"]["volumes"][1], data);
    }

    #[test]
    fn an_absent_or_used_volume_is_refused() {
        let mut vm = machine();
        let missing = replace(&mut vm, "x", &claim("new", "b")).unwrap_err();
        assert_eq!(missing.to_string(), "source volume x not found in virtual machine m");
        let used = replace(&mut vm, "old", &claim("d", "b")).unwrap_err();
        assert_eq!(used.to_string(), "volume d is already used by virtual machine m");
        assert_eq!(vm, machine(), "nothing changed");
    }

    #[test]
    fn a_copy_asks_for_what_its_source_has_in_another_class() {
        let made = copied(&claim("old", "a"), "new", "b");
        assert_eq!(made["spec"]["source"]["pvc"], json!({"namespace": "n", "name": "old"}));
        assert_eq!(made["spec"]["storage"]["storageClassName"], "b");
        assert_eq!(made["spec"]["storage"]["volumeMode"], "Block");
        assert_eq!(made["spec"]["storage"]["resources"]["requests"]["storage"], "1Gi");
    }
}
