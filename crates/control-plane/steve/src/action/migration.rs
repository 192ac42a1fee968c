//! Machines that move to other nodes: Harvester's actions, carried out by migration objects.

use hci::maintenance::is_available;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ActionTarget, impossible, invalid, node_selector};
use crate::error::SteveError;
use crate::objects::ResourceCall;

const KUBEVIRT: &str = "/apis/kubevirt.io/v1";
const UID: &str = "harvesterhci.io/migrationUID";
const STATE: &str = "harvesterhci.io/migrationState";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Why a machine is not migrated, or its migration not aborted, with Harvester's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum MigrationError {
    #[error("The VM is not in running state")]
    NotRunning,
    #[error("Can't migrate the VM, the VM is not in ready status")]
    NotReady,
    #[error("VM {machine} is not live migratable as {reason}")]
    NotMigratable { machine: String, reason: String },
    #[error("The VM is currently running on the target node")]
    SameNode,
    #[error("can't migrate the VM to the node {0}: no matching migratable nodes found")]
    NoNode(String),
    #[error("The target node is non-migratable")]
    OtherNode,
    #[error("KubeVirt is not ready")]
    NotInstalled,
    #[error("The VM is not in migrating state")]
    NotMigrating,
    #[error("cannot abort the migration as it is in {0:?} phase")]
    Ended(String),
}

impl From<MigrationError> for SteveError {
    fn from(error: MigrationError) -> Self {
        match error {
            MigrationError::SameNode => invalid(&error.to_string()),
            _ => impossible(error.to_string()),
        }
    }
}

async fn instance(call: &ResourceCall<'_>, target: ActionTarget<'_>) -> Result<Value, SteveError> {
    let ActionTarget { namespace, name, .. } = target;
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstances/{name}");
    call.session.get(&path).await
}

async fn fitting(call: &ResourceCall<'_>, vmi: &Value) -> Result<Vec<String>, SteveError> {
    let nodes = call.session.get("/api/v1/nodes").await?;
    Ok(migratable(vmi, nodes["items"].as_array().map_or(&[], Vec::as_slice)))
}

/// The nodes that the machine can move to; none if it does not run yet. As upstream, a machine that is
/// stopped has no instance, and is not found.
pub(super) async fn nodes(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<Vec<String>, SteveError> {
    let vmi = instance(call, target).await?;
    if vmi["status"]["phase"] != "Running" {
        return Ok(Vec::new());
    }
    check_migratable(&vmi)?;
    fitting(call, &vmi).await
}

/// Whether the machine can be migrated at all.
fn check_migratable(vmi: &Value) -> Result<(), MigrationError> {
    let (metadata, spec) = (&vmi["metadata"], &vmi["spec"]);
    let has =
        |kind: &str| spec["domain"]["devices"][kind].as_array().is_some_and(|all| !all.is_empty());
    let condition = find_condition(vmi, "LiveMigratable");
    let refused = condition.filter(|own| own["status"] == "False");
    let reason = match () {
        () if vmi["status"]["phase"] != "Running" => "it is not running".to_owned(),
        () if metadata["annotations"][UID].as_str().is_some_and(|uid| !uid.is_empty()) => {
            "it is already in a migrating state".to_owned()
        }
        () if spec["nodeSelector"][HOSTNAME].is_string() => "node selector is set".to_owned(),
        () if has("hostDevices") => "PCIe or USB devices are attached".to_owned(),
        () if has("gpus") => "vGPU devices are attached".to_owned(),
        () => match refused {
            None => return Ok(()),
            Some(own) => format!(
                "the condition reported with reason: {}",
                own["reason"].as_str().unwrap_or_default()
            ),
        },
    };
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let machine = format!("{}/{}", text("namespace"), text("name"));
    Err(MigrationError::NotMigratable { machine, reason })
}

fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|own| own["type"] == kind)
}

/// Those that are ready, take new machines and have the labels that the machine asks for.
fn migratable(vmi: &Value, nodes: &[Value]) -> Vec<String> {
    let fits = |node: &&Value| {
        is_available(node)
            && node["metadata"]["name"] != vmi["status"]["nodeName"]
            && node_selector::selects(&vmi["spec"], node)
    };
    let names = nodes.iter().filter(fits).filter_map(|node| node["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Whether a node exists to which the machine can move, and which is the one that was asked for.
fn check_target(vmi: &Value, fitting: &[String], node: &str) -> Result<(), MigrationError> {
    if !node.is_empty() && vmi["status"]["nodeName"] == node {
        return Err(MigrationError::SameNode);
    }
    if fitting.is_empty() {
        return Err(MigrationError::NoNode(node.to_owned()));
    }
    match node.is_empty() || fitting.iter().any(|own| own == node) {
        true => Ok(()),
        false => Err(MigrationError::OtherNode),
    }
}

/// Creates a migration, to any node if `node` is empty.
pub(super) async fn start(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    node: &str,
) -> Result<(), SteveError> {
    let ActionTarget { namespace, name, .. } = target;
    let vmi = instance(call, target).await.map_err(|error| match error.status {
        StatusCode::NOT_FOUND => MigrationError::NotRunning.into(),
        _ => error,
    })?;
    check_start(&vmi)?;
    check_target(&vmi, &fitting(call, &vmi).await?, node)?;
    let kubevirt = call.steve.setting(INSTALLATION).await?;
    if find_condition(&kubevirt, "Available").is_some_and(|own| own["status"] != "True") {
        return Err(MigrationError::NotInstalled.into());
    }
    let mut spec = json!({"vmiName": name});
    if !node.is_empty() {
        spec["addedNodeSelector"] = json!({HOSTNAME: node});
    }
    let body = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": format!("{name}-"), "namespace": namespace}, "spec": spec,
    });
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstancemigrations");
    call.session.post(&path, &body).await.map(drop)
}

/// The object that reports whether KubeVirt is available.
const INSTALLATION: &str = "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt";

fn check_start(vmi: &Value) -> Result<(), MigrationError> {
    if vmi["status"]["phase"] != "Running" {
        return Err(MigrationError::NotRunning);
    }
    if find_condition(vmi, "Ready").is_none_or(|own| own["status"] != "True") {
        return Err(MigrationError::NotReady);
    }
    check_migratable(vmi)
}

/// Deletes the migrations of the machine that are not over.
pub(super) async fn abort(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<(), SteveError> {
    let ActionTarget { namespace, name, .. } = target;
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstancemigrations");
    let vmi = instance(call, target).await?;
    let all =
        call.session.get(&format!("{path}?labelSelector=kubevirt.io/vmi-name={name}")).await?;
    for name in abortable(&vmi, all["items"].as_array().map_or(&[], Vec::as_slice))? {
        let path = format!("{path}/{name}");
        let kind = "application/json";
        call.session.send(Method::DELETE, &path, kind, &[], kind).await?;
    }
    Ok(())
}

/// The names of the migrations to delete. The instance is marked a moment after its migration is
/// created.
fn abortable(vmi: &Value, migrations: &[Value]) -> Result<Vec<String>, MigrationError> {
    let phase = |own: &Value| own["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let is_over = |own: &Value| matches!(&*phase(own), "Succeeded" | "Failed");
    let annotations = &vmi["metadata"]["annotations"];
    let name = |own: &Value| own["metadata"]["name"].as_str().map(str::to_owned);
    if annotations[STATE] == "Aborting migration" {
        return Err(MigrationError::NotMigrating);
    }
    let own = migrations.iter().find(|own| {
        own["metadata"]["uid"].is_string() && own["metadata"]["uid"] == annotations[UID]
    });
    if let Some(own) = own.filter(|own| is_over(own)) {
        return Err(MigrationError::Ended(phase(own)));
    }
    let active: Vec<String> =
        migrations.iter().filter(|own| !is_over(own)).filter_map(name).collect();
    if active.is_empty() { Err(MigrationError::NotMigrating) } else { Ok(active) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(changes: Value) -> Value {
        let mut vmi = json!({
            "metadata": {"namespace": "n", "name": "web"}, "spec": {},
            "status": {"phase": "Running", "nodeName": "own",
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (key, value) in changes.as_object().unwrap() {
            for (field, value) in value.as_object().unwrap() {
                vmi[key][field] = value.clone();
            }
        }
        vmi
    }

    #[test]
    fn machines_move_to_nodes_that_are_ready_and_fit() {
        let node = |name: &str, ready: &str, cordoned: bool, zone: &str| {
            json!({"metadata": {"name": name, "labels": {"zone": zone}},
                "spec": {"unschedulable": cordoned},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let mut maintained = node("maintained", "True", false, "z");
        maintained["metadata"]["annotations"] =
            json!({"harvesterhci.io/maintain-status": "running"});
        let nodes = [
            node("own", "True", false, "z"),
            node("cordoned", "True", true, "z"),
            node("silent", "Unknown", false, "z"),
            node("far", "True", false, "y"),
            node("fit", "True", false, "z"),
            maintained,
        ];
        let selected = vmi(json!({"spec": {"nodeSelector": {"zone": "z"}}}));
        assert_eq!(migratable(&selected, &nodes), ["fit"]);
        let terms = json!([{"matchExpressions":
            [{"key": "zone", "operator": "In", "values": ["y"]}]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}});
        let affine = vmi(json!({"spec": {"affinity": {"nodeAffinity": required}}}));
        assert_eq!(migratable(&affine, &nodes), ["far"]);
    }

    #[test]
    fn a_machine_that_cannot_be_migrated_is_refused_in_the_words_of_harvester() {
        let refused = json!([{"type": "Ready", "status": "True"},
            {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]);
        let device = json!({"devices": {"hostDevices": [{"name": "d"}]}});
        let gpu = json!({"devices": {"gpus": [{"name": "d"}]}});
        for (changes, text) in [
            (json!({}), ""),
            (json!({"status": {"phase": "Scheduling"}}), "The VM is not in running state"),
            (
                json!({"status": {"conditions": []}}),
                "Can't migrate the VM, the VM is not in ready status",
            ),
            (
                json!({"metadata": {"annotations": {UID: "m"}}}),
                "VM n/web is not live migratable as it is already in a migrating state",
            ),
            (
                json!({"spec": {"nodeSelector": {HOSTNAME: "own"}}}),
                "VM n/web is not live migratable as node selector is set",
            ),
            (
                json!({"spec": {"domain": device}}),
                "VM n/web is not live migratable as PCIe or USB devices are attached",
            ),
            (
                json!({"spec": {"domain": gpu}}),
                "VM n/web is not live migratable as vGPU devices are attached",
            ),
            (
                json!({"status": {"conditions": refused}}),
                "VM n/web is not live migratable as the condition reported with reason: DisksNotLiveMigratable",
            ),
        ] {
            let found = check_start(&vmi(changes)).err().map(|error| error.to_string());
            assert_eq!(found.unwrap_or_default(), text);
        }
        let (vmi, fitting) = (vmi(json!({})), ["fit".to_owned()]);
        assert_eq!(check_target(&vmi, &fitting, ""), Ok(()));
        assert_eq!(check_target(&vmi, &fitting, "fit"), Ok(()));
        assert_eq!(check_target(&vmi, &fitting, "own"), Err(MigrationError::SameNode));
        assert_eq!(check_target(&vmi, &fitting, "far"), Err(MigrationError::OtherNode));
        let none = check_target(&vmi, &[], "far").unwrap_err();
        let text = "can't migrate the VM to the node far: no matching migratable nodes found";
        assert_eq!(none.to_string(), text);
        assert_eq!(SteveError::from(none).status, 500);
        let same = SteveError::from(MigrationError::SameNode);
        let text = "InvalidBodyContent 422: The VM is currently running on the target node";
        assert_eq!((same.status.as_u16(), &*same.message), (422, text));
    }

    #[test]
    fn a_migration_is_aborted_until_it_has_ended() {
        let migration = |name: &str, phase: &str| json!({"metadata": {"name": name, "uid": name}, "status": {"phase": phase}});
        let marked =
            |state: &str| vmi(json!({"metadata": {"annotations": {UID: "m", STATE: state}}}));
        let old = migration("old", "Succeeded");
        for (vmi, phase, expected) in [
            (marked("Migrating"), "Running", Ok(vec!["m".to_owned()])),
            (marked("Pending migration"), "Pending", Ok(vec!["m".to_owned()])),
            (vmi(json!({})), "Pending", Ok(vec!["m".to_owned()])),
            (marked("Aborting migration"), "Running", Err(MigrationError::NotMigrating)),
            (marked("Migrating"), "Failed", Err(MigrationError::Ended("Failed".into()))),
            (vmi(json!({})), "Failed", Err(MigrationError::NotMigrating)),
        ] {
            let migrations = [old.clone(), migration("m", phase)];
            assert_eq!(abortable(&vmi, &migrations), expected, "{phase}");
        }
        let text = "cannot abort the migration as it is in \"Failed\" phase";
        assert_eq!(MigrationError::Ended("Failed".into()).to_string(), text);
    }
}
