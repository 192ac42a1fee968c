//! Machines that move to other nodes: Harvester's actions, carried out by migration objects.

use http::Method;
use serde_json::{Value, json};

use super::{ActionTarget, impossible};
use crate::error::SteveError;
use crate::objects::ResourceCall;

const KUBEVIRT: &str = "/apis/kubevirt.io/v1";

async fn instance(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<Option<Value>, SteveError> {
    let ActionTarget { namespace, name, .. } = target;
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstances/{name}");
    call.session.find(&path).await
}

/// The nodes that the machine can move to.
pub(super) async fn nodes(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<Vec<String>, SteveError> {
    let Some(vmi) = instance(call, target).await? else { return Ok(Vec::new()) };
    let nodes = call.session.get("/api/v1/nodes").await?;
    Ok(migratable(&vmi, nodes["items"].as_array().map_or(&[], Vec::as_slice)))
}

/// Those that are ready, are not cordoned and have the labels that the machine asks for.
fn migratable(vmi: &Value, nodes: &[Value]) -> Vec<String> {
    let fits = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready =
            conditions.into_iter().any(|own| own["type"] == "Ready" && own["status"] == "True");
        let mut wanted = vmi["spec"]["nodeSelector"].as_object().into_iter().flatten();
        is_ready
            && node["spec"]["unschedulable"] != true
            && node["metadata"]["name"] != vmi["status"]["nodeName"]
            && wanted.all(|(key, value)| node["metadata"]["labels"][key] == *value)
    };
    let names = nodes.iter().filter(fits).filter_map(|node| node["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Creates a migration, to any node if `node` is empty.
pub(super) async fn start(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    node: &str,
) -> Result<(), SteveError> {
    let fitting = nodes(call, target).await?;
    if fitting.is_empty() || !node.is_empty() && !fitting.iter().any(|own| own == node) {
        let message =
            format!("can't migrate the VM to the node {node}: no matching migratable nodes found");
        return Err(impossible(message));
    }
    let ActionTarget { namespace, name, .. } = target;
    let mut spec = json!({"vmiName": name});
    if !node.is_empty() {
        spec["addedNodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    let body = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": format!("{name}-"), "namespace": namespace}, "spec": spec,
    });
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstancemigrations");
    call.session.post(&path, &body).await.map(drop)
}

/// Deletes the migrations of the machine that are not over.
pub(super) async fn abort(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
) -> Result<(), SteveError> {
    let ActionTarget { namespace, name, .. } = target;
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstancemigrations");
    let all =
        call.session.get(&format!("{path}?labelSelector=kubevirt.io/vmi-name={name}")).await?;
    let active = active(all["items"].as_array().map_or(&[], Vec::as_slice));
    if active.is_empty() {
        return Err(impossible("The VM is not in migrating state"));
    }
    for name in active {
        let path = format!("{path}/{name}");
        let kind = "application/json";
        call.session.send(Method::DELETE, &path, kind, &[], kind).await?;
    }
    Ok(())
}

/// The names of migrations that are not over.
fn active(migrations: &[Value]) -> Vec<String> {
    let is_over =
        |own: &Value| matches!(own["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let active = migrations.iter().filter(|own| !is_over(own));
    active.filter_map(|own| own["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_move_to_nodes_that_are_ready_and_fit() {
        let node = |name: &str, ready: &str, cordoned: bool, zone: &str| {
            json!({"metadata": {"name": name, "labels": {"zone": zone}},
                "spec": {"unschedulable": cordoned},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let nodes = [
            node("own", "True", false, "z"),
            node("cordoned", "True", true, "z"),
            node("silent", "Unknown", false, "z"),
            node("far", "True", false, "y"),
            node("fit", "True", false, "z"),
        ];
        let vmi = json!({"spec": {"nodeSelector": {"zone": "z"}}, "status": {"nodeName": "own"}});
        assert_eq!(migratable(&vmi, &nodes), ["fit"]);
    }
}
