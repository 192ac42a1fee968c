//! Harvester's settings take only values they understand.

mod network;

use std::net::IpAddr;

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, SNAPSHOTS, Write, text};
use crate::cluster_setting::upgrade_config::paused_nodes;
use crate::cluster_setting::{self, HttpProxy, UNDELETABLE};

const BACKUP_TARGET: &str = "backup-target";
const HTTP_PROXY: &str = "http-proxy";
const SNAPSHOT_CLASS: &str = "volume-snapshot-class";
const UPGRADE_CONFIG: &str = "upgrade-config";

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
        let value = text(object, pointer);
        // The keys of a backup target are kept in a Secret, and are no longer part of the value.
        let before = write.old.map(|old| text(old, pointer)).unwrap_or_default();
        if write.name == BACKUP_TARGET && (write.trusted || value == before) {
            continue;
        }
        cluster_setting::check(write.name, value)
            .map_err(|error| Refusal::invalid(field, error))?;
    }
    validate_proxy(write, text(object, "/value"))?;
    network::validate(write, text(object, "/value"))?;
    validate_references(write, text(object, "/value"))?;
    validate_backup_target(write, text(object, "/value"))
}

/// The objects that a setting names have to exist.
fn validate_references(write: &Write<'_>, value: &str) -> AdmissionResult {
    let before = write.old.map(|old| text(old, "/value")).unwrap_or_default();
    if write.trusted || value == before {
        return Ok(());
    }
    let missing = |group: &str, plural: &str, name: &str| {
        write.objects.get(group, plural, "", name).is_none()
    };
    let message = match write.name {
        SNAPSHOT_CLASS
            if !value.is_empty() && missing(SNAPSHOTS, "volumesnapshotclasses", value) =>
        {
            format!("volumesnapshotclasses.snapshot.storage.k8s.io {value:?} not found")
        }
        UPGRADE_CONFIG => {
            let fields = serde_json::from_str(value).unwrap_or_default();
            let absent = paused_nodes(&fields).find(|node| missing("", "nodes", node));
            let Some(node) = absent else { return Ok(()) };
            format!("pauseNodes: nodes {node:?} not found")
        }
        _ => return Ok(()),
    };
    Err(Refusal::invalid("value", message))
}

/// Nodes reach each other without the proxy.
fn validate_proxy(write: &Write<'_>, value: &str) -> AdmissionResult {
    let proxy = HttpProxy::parse(value);
    if write.name != HTTP_PROXY || proxy.is_empty() {
        return Ok(());
    }
    let nodes = write.objects.list("", "nodes", "");
    let through =
        nodes.iter().filter(|node| !internal_addresses(node).all(|own| proxy.excludes(own)));
    let through: Vec<&str> = through.map(|node| text(node, "/metadata/name")).collect();
    if through.is_empty() {
        return Ok(());
    }
    let message = format!(
        "noProxy should contain the node's IP addresses or CIDR. The node(s) {} are not covered.",
        through.join(", ")
    );
    Err(Refusal::invalid("value", message))
}

fn internal_addresses(node: &Value) -> impl Iterator<Item = IpAddr> {
    let all = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = all.filter(|own| own["type"] == "InternalIP");
    internal.filter_map(|own| own["address"].as_str()?.parse().ok())
}

/// Backups that are being created or deleted must end before another target replaces this one. The
/// condition of the setting reports whether the target can be reached.
fn validate_backup_target(write: &Write<'_>, value: &str) -> AdmissionResult {
    let before = write.old.map(|old| text(old, "/value")).unwrap_or_default();
    if write.name != BACKUP_TARGET || write.trusted || value == before {
        return Ok(());
    }
    let backups = write.objects.list(HARVESTER, "virtualmachinebackups", "");
    let is_made = |own: &Value| {
        text(own, "/spec/type") != "snapshot"
            && own["status"]["readyToUse"] != true
            && own["status"]["error"].is_null()
            || own["metadata"]["deletionTimestamp"].is_string()
    };
    if backups.iter().any(is_made) {
        let message = "There is VMBackup in creating or deleting progress";
        return Err(Refusal::new(400, "", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    /// The creation of a setting by an administrator.
    fn write<'a>(name: &'a str, object: &'a Value, cluster: &'a Cluster) -> Write<'a> {
        Write {
            group: "harvesterhci.io",
            resource: "settings",
            namespace: "",
            name,
            object: Some(object),
            old: None,
            trusted: false,
            objects: cluster,
            writer: cluster,
            uuid: &uuid,
        }
    }

    #[test]
    fn a_proxy_leaves_out_the_nodes() {
        let judged = |value: &str| {
            let node = |name: &str, address: &str| {
                let addresses = json!([{"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": address}]);
                (
                    "",
                    "nodes",
                    json!({"metadata": {"name": name},
                    "status": {"addresses": addresses}}),
                )
            };
            let cluster = Cluster(vec![node("a", "192.0.2.1"), node("b", "192.0.2.2")]);
            let object = json!({"value": value});
            let write = write(HTTP_PROXY, &object, &cluster);
            validate(&write).map_err(|refusal| refusal.message).err().unwrap_or_default()
        };
        assert_eq!(judged("{}"), "");
        assert_eq!(judged(r#"{"httpProxy":"http://p:1","noProxy":"192.0.2.0/24"}"#), "");
        let partly = judged(r#"{"httpProxy":"http://p:1","noProxy":"192.0.2.1"}"#);
        assert!(partly.contains("The node(s) b are not covered."), "{partly}");
        assert!(judged(r#"{"httpProxy":"http://p:1"}"#).contains("a, b"));
    }

    #[test]
    fn a_setting_names_objects_that_exist() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let cluster = Cluster(vec![
            (SNAPSHOTS, "volumesnapshotclasses", named("longhorn")),
            ("", "nodes", named("a")),
        ]);
        let judged = |name: &str, value: &str| {
            let object = json!({"value": value});
            let refused = validate(&write(name, &object, &cluster)).err();
            refused.map(|refusal| refusal.message).unwrap_or_default()
        };
        assert_eq!(judged(SNAPSHOT_CLASS, "longhorn"), "");
        assert!(judged(SNAPSHOT_CLASS, "other").contains(r#""other" not found"#));
        let config = |node: &str| {
            json!({
                "imagePreloadOption": {"strategy": {"type": "skip"}},
                "nodeUpgradeOption": {"strategy": {"mode": "manual", "pauseNodes": [node]}},
            })
        };
        assert_eq!(judged(UPGRADE_CONFIG, &config("a").to_string()), "");
        let refused = judged(UPGRADE_CONFIG, &config("b").to_string());
        assert!(refused.contains(r#"nodes "b" not found"#), "{refused}");
    }

    #[test]
    fn a_backup_target_is_changed_while_nothing_uses_it() {
        let judged = |value: &str, before: &str, trusted: bool, backups: Vec<Value>| {
            let backups = backups.into_iter().map(|own| (HARVESTER, "virtualmachinebackups", own));
            let cluster = Cluster(backups.collect());
            let (object, old) = (json!({"value": value}), json!({"value": before}));
            let write =
                Write { old: Some(&old), trusted, ..write(BACKUP_TARGET, &object, &cluster) };
            validate(&write).map_err(|refusal| (refusal.code, refusal.message))
        };
        let target = r#"{"type":"nfs","endpoint":"nfs://10.0.0.1:/backups"}"#;
        assert_eq!(judged("{}", target, false, Vec::new()), Ok(()));
        assert_eq!(judged(target, "", false, Vec::new()), Ok(()));
        let (_, message) = judged(r#"{"type":"tape"}"#, "", false, Vec::new()).unwrap_err();
        assert!(message.contains("Invalid backup target type"), "{message}");
        let without_keys = r#"{"type":"s3","bucketName":"b","bucketRegion":"r"}"#;
        assert!(judged(without_keys, "", false, Vec::new()).is_err());
        assert_eq!(judged(without_keys, "", true, Vec::new()), Ok(()));
        assert_eq!(judged(without_keys, without_keys, false, Vec::new()), Ok(()));
        let backup = json!({"metadata": {"name": "b", "namespace": "n"},
            "spec": {"type": "backup"}});
        let (code, _) = judged(target, "", false, vec![backup]).unwrap_err();
        assert_eq!(code, 400);
    }
}
