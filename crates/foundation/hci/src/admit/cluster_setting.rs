//! Harvester's settings take only values they understand.

use super::{AdmissionResult, Refusal, Write, text};
use crate::cluster_setting::{self, UNDELETABLE};

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else {
        if UNDELETABLE.contains(&write.name) {
            let message = format!("Setting {} can not be deleted", write.name);
            return Err(Refusal::new(405, "", message));
        }
        return Ok(());
    };
    for field in ["value", "default"] {
        let pointer = if field == "value" { "/value" } else { "/default" };
        cluster_setting::check(write.name, text(object, pointer))
            .map_err(|error| Refusal::invalid(field, error))?;
    }
    validate_backup_target(write, text(object, "/value"))
}

/// Upstream connects to a target before it accepts one. Here nothing can.
fn validate_backup_target(write: &Write<'_>, value: &str) -> AdmissionResult {
    let before = write.old.map(|old| text(old, "/value")).unwrap_or_default();
    if write.name != "backup-target" || matches!(value, "" | "{}") || value == before {
        return Ok(());
    }
    let message = "failed to connect to backup target, reason: backups to a target are not supported in this version";
    Err(Refusal::invalid("value", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    #[test]
    fn no_backup_target_is_accepted_that_cannot_be_reached() {
        let none = Cluster(Vec::new());
        let judged = |name: &str, value: &str, before: &str| {
            let (object, old) = (json!({"value": value}), json!({"value": before}));
            let write = Write {
                group: "harvesterhci.io",
                resource: "settings",
                namespace: "",
                name,
                object: Some(&object),
                old: Some(&old),
                trusted: false,
                objects: &none,
                writer: &none,
                uuid: &uuid,
            };
            validate(&write).map_err(|refusal| (refusal.code, refusal.message))
        };
        let target = r#"{"type":"nfs","endpoint":"nfs://10.0.0.1:/backups"}"#;
        assert_eq!(judged("backup-target", "{}", target), Ok(()));
        assert_eq!(judged("backup-target", target, target), Ok(()));
        let (code, message) = judged("backup-target", target, "").unwrap_err();
        assert!(code == 422 && message.contains("failed to connect to backup target"));
        let (_, message) = judged("backup-target", r#"{"type":"tape"}"#, "").unwrap_err();
        assert!(message.contains("Invalid backup target type"), "the format is checked first");
        assert_eq!(judged("log-level", "debug", ""), Ok(()));
    }
}
