//! Checks before an upgrade: each finding names the object, and what mends it.

use std::fmt;

use serde_json::Value;

use super::ProgramDigest;
use crate::maintenance::MAINTAIN_STATUS;

/// Objects that the checks read.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckedObjects<'a> {
    pub nodes: &'a [Value],
    /// Of Longhorn.
    pub volumes: &'a [Value],
    /// VirtualMachineBackups.
    pub backups: &'a [Value],
    pub migrations: &'a [Value],
}

/// A reason not to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub problem: String,
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.problem, self.remedy)
    }
}

fn finding(problem: String, remedy: impl Into<String>) -> Finding {
    Finding { problem, remedy: remedy.into() }
}

/// All reasons not to begin an upgrade now.
pub fn check(objects: &CheckedObjects<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = objects.nodes.iter().filter_map(of_node).collect();
    found.extend(objects.volumes.iter().filter_map(of_volume));
    found.extend(objects.backups.iter().filter_map(of_backup));
    found.extend(objects.migrations.iter().filter_map(of_migration));
    found
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn id(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), name(object))
}

/// Whether a condition holds.
pub(super) fn holds(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|own| own["type"] == kind && own["status"] == "True")
}

fn of_node(node: &Value) -> Option<Finding> {
    let name = name(node);
    if !holds(node, "Ready") {
        let remedy = format!("bring it back, or remove it: sheaf node remove {name}");
        return Some(finding(format!("node {name} is not ready"), remedy));
    }
    if node["metadata"]["annotations"].get(MAINTAIN_STATUS).is_some() {
        let remedy = format!("end it: sheaf node maintenance {name} --off");
        return Some(finding(format!("node {name} is in maintenance"), remedy));
    }
    if node["spec"]["unschedulable"] == true {
        let remedy = format!("take it back into use: kubectl uncordon {name}");
        return Some(finding(format!("node {name} is unschedulable"), remedy));
    }
    None
}

/// Whether a volume lacks copies. Detached volumes are not judged: their copies are not compared.
pub fn lacks_copies(volume: &Value) -> bool {
    matches!(volume["status"]["robustness"].as_str(), Some("degraded" | "faulted"))
}

fn of_volume(volume: &Value) -> Option<Finding> {
    if !lacks_copies(volume) {
        return None;
    }
    let robustness = volume["status"]["robustness"].as_str().unwrap_or_default();
    let name = name(volume);
    let remedy = format!("wait until its copies are rebuilt: sheaf volume status {name}");
    Some(finding(format!("volume {name} is {robustness}"), remedy))
}

fn of_backup(backup: &Value) -> Option<Finding> {
    let is_over = backup["status"]["readyToUse"] == true || !backup["status"]["error"].is_null();
    let problem = || format!("backup {} is in progress", id(backup));
    (!is_over).then(|| finding(problem(), "wait until it is ready, or delete it"))
}

fn of_migration(migration: &Value) -> Option<Finding> {
    let phase = migration["status"]["phase"].as_str().unwrap_or_default();
    let problem = || format!("migration {} is in progress", id(migration));
    let is_over = matches!(phase, "Succeeded" | "Failed");
    (!is_over).then(|| finding(problem(), "wait until it is over, or abort it"))
}

/// The program of a Version, or the field that is missing.
pub fn check_version(version: &Value) -> Result<ProgramDigest, Finding> {
    let (name, spec) = (name(version), &version["spec"]);
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    if text("isoURL").is_empty() {
        let problem = format!("version {name} has no spec.isoURL");
        return Err(finding(problem, "give the URL of the program"));
    }
    ProgramDigest::parse(text("isoChecksum")).map_err(|_| {
        let problem = format!("version {name} has no spec.isoChecksum");
        finding(problem, "give the SHA-512 sum of the program: nodes run nothing else")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn everything_that_is_wrong_is_found_at_once() {
        let mut maintained = node("n2", "True");
        maintained["metadata"]["annotations"] = json!({MAINTAIN_STATUS: "completed"});
        let mut cordoned = node("n3", "True");
        cordoned["spec"] = json!({"unschedulable": true});
        let nodes = [node("n1", "Unknown"), maintained, cordoned, node("n4", "True")];
        let volume = |name: &str, state: &str| json!({"metadata": {"name": name}, "status": {"robustness": state}});
        let volumes = [volume("a", "healthy"), volume("b", "degraded"), volume("c", "unknown")];
        let meta = json!({"namespace": "default", "name": "x"});
        let backups = [
            json!({"metadata": meta, "status": {"readyToUse": true}}),
            json!({"metadata": meta, "status": {"readyToUse": false, "error": {"message": "m"}}}),
            json!({"metadata": meta}),
        ];
        let migrations = [
            json!({"metadata": meta, "status": {"phase": "Succeeded"}}),
            json!({"metadata": meta, "status": {"phase": "Running"}}),
        ];
        let objects = CheckedObjects {
            nodes: &nodes,
            volumes: &volumes,
            backups: &backups,
            migrations: &migrations,
        };
        let problems: Vec<String> = check(&objects).into_iter().map(|own| own.problem).collect();
        assert_eq!(
            problems,
            [
                "node n1 is not ready",
                "node n2 is in maintenance",
                "node n3 is unschedulable",
                "volume b is degraded",
                "backup default/x is in progress",
                "migration default/x is in progress",
            ]
        );
        assert_eq!(check(&CheckedObjects::default()), []);
    }

    #[test]
    fn a_version_names_a_url_and_a_sum() {
        let sum = "ab".repeat(64);
        let version = |spec: Value| json!({"metadata": {"name": "v2"}, "spec": spec});
        for (spec, missing) in [
            (json!({"isoURL": "https://x/sheaf", "isoChecksum": sum}), None),
            (json!({"isoChecksum": sum}), Some("version v2 has no spec.isoURL")),
            (json!({"isoURL": "https://x/sheaf"}), Some("version v2 has no spec.isoChecksum")),
        ] {
            let found = check_version(&version(spec)).err().map(|found| found.problem);
            assert_eq!(found.as_deref(), missing);
        }
    }
}
