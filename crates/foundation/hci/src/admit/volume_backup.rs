//! Backups of single volumes and what is restored from them.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, Write, text};

const BACKUPS: &str = "volumeremotebackups";

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(new), Some(old)) => validate_change(new, old, "source"),
        (Some(new), None) => validate_source(write, text(new, "/spec/source")),
        _ => Ok(()),
    }
}

pub(super) fn validate_restore(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(new), Some(old)) => validate_change(new, old, "from"),
        (Some(new), None) => validate_origin(write, text(new, "/spec/from")),
        _ => Ok(()),
    }
}

fn validate_change(new: &Value, old: &Value, origin: &str) -> AdmissionResult {
    for (name, field) in [("type", "spec.type"), (origin, origin_field(origin))] {
        if new["spec"][name] != old["spec"][name] {
            return Err(Refusal::invalid(field, format!("spec.{name} cannot be changed")));
        }
    }
    Ok(())
}

fn origin_field(origin: &str) -> &'static str {
    if origin == "source" { "spec.source" } else { "spec.from" }
}

fn validate_source(write: &Write<'_>, source: &str) -> AdmissionResult {
    let refuse = |message: String| Err(Refusal::invalid("spec.source", message));
    if source.is_empty() {
        return refuse("spec.source is required".to_owned());
    }
    let plural = "persistentvolumeclaims";
    match write.objects.get("", plural, write.namespace, source) {
        Some(_) => Ok(()),
        None => refuse(format!(
            "failed to get PVC {}/{source}: {plural} \"{source}\" not found",
            write.namespace
        )),
    }
}

fn validate_origin(write: &Write<'_>, from: &str) -> AdmissionResult {
    let refuse = |message: String| Err(Refusal::invalid("spec.from", message));
    if from.is_empty() {
        return refuse("spec.from is required".to_owned());
    }
    let (namespace, name) = from.split_once('/').unwrap_or((write.namespace, from));
    let reference = super::reference::Reference {
        field: "spec.from",
        group: HARVESTER,
        resource: BACKUPS,
        namespace,
        name,
    };
    reference.authorize(write)?;
    super::reference::authorize_disks(write, "spec.from", namespace, name)?;
    let Some(backup) = write.objects.get(HARVESTER, BACKUPS, namespace, name) else {
        return refuse(format!(
            "failed to get PVCBackup {namespace}/{name}: {BACKUPS}.{HARVESTER} \"{name}\" not found"
        ));
    };
    if backup["status"]["success"] != true {
        return refuse(format!("PVCBackup {namespace}/{name} is not ready"));
    }
    if write.objects.get(HARVESTER, BACKUPS, write.namespace, write.name).is_some() {
        let message = format!(
            "a RemoteBackup with name {} already exists in namespace {}",
            write.name, write.namespace
        );
        return Err(Refusal::invalid("metadata.name", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, judged, named, refused};

    const BACKUP: (&str, &str) = (HARVESTER, BACKUPS);
    const RESTORE: (&str, &str) = (HARVESTER, "volumeremoterestores");

    fn backup(name: &str, source: &str, status: Value) -> Value {
        named(name, &json!({"spec": {"type": "lh", "source": source}, "status": status}))
    }

    fn restore(name: &str, from: &str) -> Value {
        named(name, &json!({"spec": {"type": "lh", "from": from}}))
    }

    fn cluster() -> Cluster {
        Cluster(vec![
            ("", "persistentvolumeclaims", named("data", &json!({}))),
            (HARVESTER, BACKUPS, backup("done", "data", json!({"success": true}))),
            (HARVESTER, BACKUPS, backup("early", "data", json!({}))),
        ])
    }

    #[test]
    fn a_backup_of_a_volume_keeps_its_source() {
        let cluster = cluster();
        let whole = backup("b", "data", json!({}));
        let mut kind = whole.clone();
        kind["spec"]["type"] = "x".into();
        for (new, old, text) in [
            (whole.clone(), None, ""),
            (backup("b", "", json!({})), None, "spec.source is required"),
            (
                backup("b", "none", json!({})),
                None,
                "failed to get PVC default/none: persistentvolumeclaims \"none\" not found",
            ),
            (backup("b", "x", json!({})), Some(&whole), "spec.source cannot be changed"),
            (kind, Some(&whole), "spec.type cannot be changed"),
        ] {
            let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
            assert_eq!(judged(BACKUP, Some(&new), old, &cluster), expected, "{new}");
        }
    }

    #[test]
    fn a_volume_is_restored_from_a_backup_that_is_complete() {
        let cluster = cluster();
        let whole = restore("r", "default/done");
        for (new, old, text) in [
            (whole.clone(), None, ""),
            (restore("r", "done"), None, ""),
            (restore("r", ""), None, "spec.from is required"),
            (
                restore("r", "default/none"),
                None,
                "failed to get PVCBackup default/none: volumeremotebackups.harvesterhci.io \"none\" not found",
            ),
            (restore("r", "default/early"), None, "PVCBackup default/early is not ready"),
            (
                restore("early", "default/done"),
                None,
                "a RemoteBackup with name early already exists in namespace default",
            ),
            (restore("r", "early"), Some(&whole), "spec.from cannot be changed"),
        ] {
            let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
            assert_eq!(judged(RESTORE, Some(&new), old, &cluster), expected, "{new}");
        }
    }
}
