//! Nodes: whether one may join, be cordoned, lose the role of a witness, or get another policy of
//! its processors, with the texts of Harvester's webhook.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, Write, text};
use crate::cluster::{CONTROL_PLANE, ETCD_ROLE, WITNESS_ROLE};
use crate::cpu_manager::{self, CpuPolicy};
use crate::maintenance::{MAINTAIN_STATUS, MaintenanceRefusal};
use crate::upgrade::{LATEST_LABEL, has_ended};

/// On an upgrade: whether nodes may join before it has ended.
const ALLOW_JOIN: &str = "harvesterhci.io/allow-node-join";
const SYSTEM: &str = "harvester-system";

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        // The agent of the node itself creates it.
        (Some(_), None) => validate_join(write),
        (Some(new), Some(old)) if !write.trusted => {
            validate_cordon(write, new, old)?;
            validate_cpu_manager(write, new, old)?;
            validate_witness(new, old)
        }
        _ => Ok(()),
    }
}

fn validate_join(write: &Write<'_>) -> AdmissionResult {
    let upgrades = write.objects.list(HARVESTER, "upgrades", SYSTEM);
    let is_latest = |own: &&Value| own["metadata"]["labels"][LATEST_LABEL] == "true";
    let Some(upgrade) = upgrades.iter().find(is_latest).filter(|own| !has_ended(own)) else {
        return Ok(());
    };
    let allowed = upgrade["metadata"]["annotations"][ALLOW_JOIN].as_str();
    if allowed == Some("true") {
        return Ok(());
    }
    let (node, name) = (write.name, text(upgrade, "/metadata/name"));
    let command = format!("kubectl annotate upgrade -n {SYSTEM} {name} {ALLOW_JOIN}=true");
    let beginning = format!(
        "cannot add node {node:?} to the cluster because the upgrade \"{SYSTEM}/{name}\" is currently in progress"
    );
    let how = "If you must add this node now, run:";
    let message = match allowed {
        None | Some("false") => {
            let overwrite = if allowed.is_some() { " --overwrite" } else { "" };
            format!(
                "{beginning}. Adding nodes during an upgrade can cause unexpected behavior and is not recommended. {how} {command}{overwrite}"
            )
        }
        Some(other) => format!(
            "{beginning} and has an invalid value {other:?} for annotation {ALLOW_JOIN}. {how} {command}"
        ),
    };
    Err(Refusal::new(409, "", message))
}

/// The only node of a cluster can be drained: its machines are to be shut down then.
fn validate_cordon(write: &Write<'_>, new: &Value, old: &Value) -> AdmissionResult {
    let is_out = |node: &Value| {
        node["spec"]["unschedulable"] == true
            || node["metadata"]["annotations"][MAINTAIN_STATUS].is_string()
    };
    if is_out(old) || !is_out(new) {
        return Ok(());
    }
    let nodes = write.objects.list("", "nodes", "");
    let mut others = nodes.iter().filter(|node| text(node, "/metadata/name") != write.name);
    if nodes.len() == 1 || others.any(|node| !is_out(node)) {
        return Ok(());
    }
    Err(Refusal::new(400, "", MaintenanceRefusal::LastNode.to_string()))
}

fn validate_cpu_manager(write: &Write<'_>, new: &Value, old: &Value) -> AdmissionResult {
    let refuse = |message: String| Err(Refusal::new(400, "metadata.annotations", message));
    let request = |node: &Value| node["metadata"]["annotations"][cpu_manager::STATUS].clone();
    let asked = request(new);
    if asked.is_null() || asked == request(old) {
        return Ok(());
    }
    if is_witness(new) {
        return refuse("The witness node is unable to update the CPU manager policy.".to_owned());
    }
    if let Err(error) = serde_json::from_str::<Value>(asked.as_str().unwrap_or_default()) {
        return refuse(format!(
            "Failed to retrieve cpu-manager-update-status from annotation: {error}"
        ));
    }
    if !cpu_manager::is_requested(new) {
        return Ok(());
    }
    let mut judged = old.clone();
    judged["metadata"]["labels"] = new["metadata"]["labels"].clone();
    let instances = write.objects.list("kubevirt.io", "virtualmachineinstances", "");
    let checked = cpu_manager::check(&judged, CpuPolicy::of(new), &instances);
    if let Err(error) = checked {
        return refuse(error.to_string());
    }
    validate_only_master(write, new)
}

fn validate_only_master(write: &Write<'_>, new: &Value) -> AdmissionResult {
    let manages = |node: &Value| node["metadata"]["labels"].get(CONTROL_PLANE).is_some();
    if !manages(new) {
        return Ok(());
    }
    let nodes = write.objects.list("", "nodes", "");
    let other = nodes.iter().find(|node| {
        text(node, "/metadata/name") != write.name
            && manages(node)
            && cpu_manager::is_requested(node)
    });
    let Some(other) = other else { return Ok(()) };
    let job = cpu_manager::job_name(text(other, "/metadata/name"), CpuPolicy::of(other));
    let message = format!(
        "the node you are trying to update the cpu manager policy is a master node, and only one master node can be updated at a time, while job {job} is updating the policy for other master nodes"
    );
    Err(Refusal::new(400, "metadata.annotations", message))
}

fn is_witness(node: &Value) -> bool {
    node["metadata"]["labels"].get(WITNESS_ROLE).is_some()
}

fn has_witness_taint(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|own| {
        own["key"] == ETCD_ROLE && own["value"] == "true" && own["effect"] == "NoExecute"
    })
}

fn validate_witness(new: &Value, old: &Value) -> AdmissionResult {
    let was_witness = is_witness(old) || has_witness_taint(old);
    if !was_witness || is_witness(new) && has_witness_taint(new) {
        return Ok(());
    }
    let message = "Cannot remove witness node taint or label from the witness node";
    Err(Refusal::new(400, "", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, judged, refused};

    const KIND: (&str, &str) = ("", "nodes");

    fn node(name: &str, labels: Value, annotations: Value, spec: Value) -> Value {
        json!({"metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": spec})
    }

    fn plain(name: &str) -> Value {
        node(name, json!({"cpumanager": "true"}), json!({}), json!({}))
    }

    fn cordoned(name: &str) -> Value {
        node(name, json!({"cpumanager": "true"}), json!({}), json!({"unschedulable": true}))
    }

    fn asked(name: &str, labels: Value, policy: CpuPolicy) -> Value {
        node(name, labels, policy.request()["metadata"]["annotations"].clone(), json!({}))
    }

    #[test]
    fn no_node_joins_during_an_upgrade_unless_it_is_allowed() {
        let beginning = "cannot add node \"two\" to the cluster because the upgrade \"harvester-system/u\" is currently in progress";
        let how = "If you must add this node now, run: kubectl annotate upgrade -n harvester-system u harvesterhci.io/allow-node-join=true";
        let warning =
            "Adding nodes during an upgrade can cause unexpected behavior and is not recommended.";
        for (allow, completed, expected) in [
            (json!(null), "Unknown", refused(409, &format!("{beginning}. {warning} {how}"))),
            (
                json!("false"),
                "Unknown",
                refused(409, &format!("{beginning}. {warning} {how} --overwrite")),
            ),
            (
                json!("maybe"),
                "Unknown",
                refused(
                    409,
                    &format!(
                        "{beginning} and has an invalid value \"maybe\" for annotation harvesterhci.io/allow-node-join. {how}"
                    ),
                ),
            ),
            (json!("true"), "Unknown", Ok(())),
            (json!(null), "True", Ok(())),
            (json!(null), "False", Ok(())),
        ] {
            let upgrade = json!({"metadata": {"namespace": SYSTEM, "name": "u",
                "labels": {LATEST_LABEL: "true"}, "annotations": {ALLOW_JOIN: allow}},
                "status": {"conditions": [{"type": "Completed", "status": completed}]}});
            let cluster = Cluster(vec![(HARVESTER, "upgrades", upgrade)]);
            assert_eq!(judged(KIND, Some(&plain("two")), None, &cluster), expected, "{allow}");
        }
    }

    #[test]
    fn the_last_available_node_is_not_cordoned() {
        let last = "can't enable maintenance mode or cordon on the last available node";
        let maintained = node("a", json!({}), json!({MAINTAIN_STATUS: "running"}), json!({}));
        for (others, new, expected) in [
            (vec![plain("b")], cordoned("a"), Ok(())),
            (vec![cordoned("b")], cordoned("a"), refused(400, last)),
            (vec![cordoned("b")], maintained, refused(400, last)),
            (vec![], cordoned("a"), Ok(())),
        ] {
            let all = others.into_iter().chain([plain("a")]);
            let cluster = Cluster(all.map(|node| ("", "nodes", node)).collect());
            assert_eq!(judged(KIND, Some(&new), Some(&plain("a")), &cluster), expected, "{new}");
        }
    }

    #[test]
    fn a_policy_of_processors_is_asked_for_once() {
        let labels = |value: &str| json!({"cpumanager": value, CONTROL_PLANE: "true"});
        let pinned = json!({"spec": {"domain": {"cpu": {"dedicatedCpuPlacement": true}}},
            "status": {"nodeName": "pinned", "phase": "Running"}});
        let busy = asked("busy", labels("true"), CpuPolicy::None);
        let cluster = Cluster(vec![("kubevirt.io", "virtualmachineinstances", pinned)]);
        let with_busy = Cluster(vec![("", "nodes", busy.clone())]);
        let mut broken = plain("a");
        broken["metadata"]["annotations"] = json!({cpu_manager::STATUS: "{"});
        let witness = json!({"cpumanager": "true", WITNESS_ROLE: "true"});
        for (new, cluster, text) in [
            (asked("a", labels("true"), CpuPolicy::None), &cluster, ""),
            (
                asked("a", labels("true"), CpuPolicy::Static),
                &cluster,
                "current cpu manager policy is already the same as requested value: static",
            ),
            (asked("a", json!({}), CpuPolicy::None), &cluster, "label cpumanager not found"),
            (
                asked("a", witness, CpuPolicy::None),
                &cluster,
                "The witness node is unable to update the CPU manager policy.",
            ),
            (
                asked("pinned", labels("true"), CpuPolicy::None),
                &cluster,
                "there should not be any running VMs with CPU pinning when disabling the CPU manager",
            ),
            (
                asked("a", labels("true"), CpuPolicy::None),
                &with_busy,
                "the node you are trying to update the cpu manager policy is a master node, and only one master node can be updated at a time, while job update-cpu-manager-busy-none is updating the policy for other master nodes",
            ),
            (
                broken,
                &cluster,
                "Failed to retrieve cpu-manager-update-status from annotation: EOF while parsing an object at line 1 column 1",
            ),
        ] {
            let mut old = new.clone();
            old["metadata"]["annotations"] = json!({});
            let expected = if text.is_empty() { Ok(()) } else { refused(400, text) };
            assert_eq!(judged(KIND, Some(&new), Some(&old), cluster), expected, "{new}");
        }
        let again = asked("busy", labels("true"), CpuPolicy::Static);
        let (code, message) = judged(KIND, Some(&again), Some(&busy), &cluster).unwrap_err();
        assert!(code == 400 && message.starts_with("there is other job"), "{message}");
    }

    #[test]
    fn a_witness_stays_one() {
        let taints = json!([{"key": ETCD_ROLE, "value": "true", "effect": "NoExecute"}]);
        let spec = || json!({"taints": taints});
        let labels = || json!({WITNESS_ROLE: "true"});
        let old = node("x", labels(), json!({}), spec());
        let text = "Cannot remove witness node taint or label from the witness node";
        for (new, expected) in [
            (old.clone(), Ok(())),
            (node("x", json!({}), json!({}), spec()), refused(400, text)),
            (node("x", labels(), json!({}), json!({})), refused(400, text)),
        ] {
            assert_eq!(judged(KIND, Some(&new), Some(&old), &Cluster(vec![])), expected, "{new}");
        }
        assert_eq!(judged(KIND, Some(&plain("x")), Some(&plain("x")), &Cluster(vec![])), Ok(()));
    }
}
