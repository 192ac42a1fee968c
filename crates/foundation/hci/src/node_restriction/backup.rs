//! The backups that a node may write: those it creates, and all of a target that it manages.

use crd::lookup::Objects;
use serde_json::Value;

use super::{NodeDenial, NodeWrite, text};
use crate::longhorn::NAMESPACE;
use crate::vm_backup_metadata::{FOUND_PREFIX, METADATA_READY, SECRET_TYPE, is_secret_name};

const LONGHORN: &str = "longhorn.io";

fn owner(object: &Value) -> &str {
    text(&object["status"], "ownerID")
}

/// Whether the node manages a backup target.
fn owns_target(node: &str, objects: &dyn Objects) -> bool {
    let targets = objects.list(LONGHORN, "backuptargets", NAMESPACE);
    targets.iter().any(|target| owner(target) == node)
}

/// A node reports on the target that it manages.
pub(super) fn target(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    if owner(old) != write.node || owner(object) != write.node {
        return Err(write.not_placed());
    }
    write.keeps_spec(object, old)
}

/// A node reports on the backups that it makes or removes, and writes down those that it finds on
/// the target.
pub(super) fn backup(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    match (write.object, write.old) {
        (Some(object), Some(old)) => {
            let is_own = owner(old) == write.node;
            let is_found = owner(old).is_empty() && is_synchronised(old);
            if !(is_own || is_found && owns_target(write.node, write.objects)) {
                return Err(write.not_placed());
            }
            write.keeps_spec(object, old)
        }
        (Some(object), None) | (None, Some(object)) => {
            let may = is_synchronised(object) && owns_target(write.node, write.objects);
            if may { Ok(()) } else { Err(write.wrong_kind()) }
        }
        (None, None) => Ok(()),
    }
}

/// A backup that was found on the target names no snapshot in its spec.
fn is_synchronised(backup: &Value) -> bool {
    text(&backup["spec"], "snapshotName").is_empty()
}

pub(super) fn backup_volume(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    if owns_target(write.node, write.objects) { Ok(()) } else { Err(write.not_placed()) }
}

/// The node that owns the target reports whether the description of a machine's backup is on it.
pub(super) fn machine(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (object, old) = write.update()?;
    if !owns_target(write.node, write.objects) {
        return Err(write.not_placed());
    }
    let without = |backup: &Value| {
        let mut rest = backup.clone();
        for field in ["managedFields", "resourceVersion", "generation"] {
            rest["metadata"][field].take();
        }
        if let Some(conditions) = rest["status"]["conditions"].as_array_mut() {
            conditions.retain(|own| own["type"] != METADATA_READY);
        }
        rest
    };
    if without(object) == without(old) {
        return Ok(());
    }
    Err(write.field(format!("virtualmachinebackups other than their condition {METADATA_READY}")))
}

/// The node that owns the target hands over descriptions of machines that it found there.
pub(super) fn found_metadata(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (Some(object), None) = (write.object, write.old) else { return Err(write.wrong_kind()) };
    let is_metadata = write.namespace == NAMESPACE
        && text(&object["metadata"], "name").starts_with(FOUND_PREFIX)
        && text(object, "type") == SECRET_TYPE;
    let may = is_metadata && owns_target(write.node, write.objects);
    if may { Ok(()) } else { Err(write.wrong_kind()) }
}

/// Whether a node needs the description of a backed-up machine: it owns the target, on which all
/// of them are.
pub fn uses_backup_metadata(node: &str, secret: &str, objects: &dyn Objects) -> bool {
    is_secret_name(secret) && owns_target(node, objects)
}

/// Whether a node needs the credentials of the backup target: it manages the target, makes or
/// removes a backup, or fills a volume from one.
pub fn uses_backup_secret(node: &str, secret: &str, objects: &dyn Objects) -> bool {
    let targets = objects.list(LONGHORN, "backuptargets", NAMESPACE);
    let mut named =
        targets.iter().filter(|target| text(&target["spec"], "credentialSecret") == secret);
    let Some(target) = named.next() else { return false };
    if owner(target) == node {
        return true;
    }
    let is_busy = |backup: &Value| {
        let state = text(&backup["status"], "state");
        owner(backup) == node && !matches!(state, "Completed" | "Error")
    };
    let backups = objects.list(LONGHORN, "backups", NAMESPACE);
    let volumes = objects.list(LONGHORN, "volumes", NAMESPACE);
    let is_filled = |volume: &Value| {
        !text(&volume["spec"], "fromBackup").is_empty()
            && volume["status"]["restoreRequired"] == true
            && super::is_stored_on(node, text(&volume["metadata"], "name"), objects)
    };
    backups.iter().any(is_busy) || volumes.iter().any(is_filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check;
    use super::*;

    /// A cluster whose target one node manages, and in which others work on backups.
    struct World {
        target_owner: &'static str,
    }

    impl Objects for World {
        fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Value> {
            None
        }

        fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Value> {
            match plural {
                "backuptargets" => vec![json!({"spec": {"credentialSecret": "keys"},
                    "status": {"ownerID": self.target_owner}})],
                "backups" => vec![
                    json!({"status": {"ownerID": "sends", "state": "InProgress"}}),
                    json!({"status": {"ownerID": "sent", "state": "Completed"}}),
                ],
                "volumes" => vec![json!({"metadata": {"name": "v"},
                    "spec": {"fromBackup": "s3://b@r/?backup=b&volume=w"},
                    "status": {"restoreRequired": true}})],
                "replicas" => vec![json!({"spec": {"volumeName": "v", "nodeID": "fills"}})],
                _ => Vec::new(),
            }
        }
    }

    fn allowed(kind: &str, owner: &'static str, object: Option<Value>, old: Option<Value>) -> bool {
        let write = NodeWrite {
            node: "a",
            is_management: false,
            group: LONGHORN,
            resource: kind,
            namespace: NAMESPACE,
            name: "x",
            object: object.as_ref(),
            old: old.as_ref(),
            objects: &World { target_owner: owner },
        };
        check(&write).is_ok()
    }

    #[test]
    fn a_node_writes_the_backups_that_it_makes_or_finds() {
        let own = |owner: &str, snapshot: &str, progress: i64| {
            Some(json!({"spec": {"snapshotName": snapshot},
                "status": {"ownerID": owner, "progress": progress}}))
        };
        assert!(allowed("backups", "z", own("a", "s", 5), own("a", "s", 1)));
        assert!(!allowed("backups", "a", own("b", "s", 5), own("b", "s", 1)), "another's");
        assert!(!allowed("backups", "z", own("a", "t", 5), own("a", "s", 1)), "its spec");
        assert!(!allowed("backups", "a", own("a", "s", 5), own("", "s", 1)), "not assigned");
        assert!(allowed("backups", "a", own("", "", 0), None), "found on the target");
        assert!(!allowed("backups", "z", own("", "", 0), None), "another's target");
        assert!(!allowed("backups", "a", own("", "s", 0), None), "a new one is for users");
        assert!(!allowed("backups", "a", None, own("a", "s", 0)), "users delete theirs");
        assert!(allowed("backupvolumes", "a", Some(json!({})), None));
        assert!(!allowed("backupvolumes", "z", Some(json!({})), None));
    }

    #[test]
    fn a_node_reports_on_the_target_that_it_looks_after() {
        let target = |owner: &str, url: &str| {
            Some(json!({"spec": {"backupTargetURL": url}, "status": {"ownerID": owner}}))
        };
        assert!(allowed("backuptargets", "a", target("a", "u"), target("a", "u")));
        assert!(!allowed("backuptargets", "a", target("a", "u"), target("", "u")));
        assert!(!allowed("backuptargets", "a", target("a", "other"), target("a", "u")));
    }

    #[test]
    fn the_node_of_the_target_reports_that_a_description_is_stored_and_nothing_else() {
        let backup = |ready: bool, condition: &str| {
            json!({"metadata": {"name": "x", "resourceVersion": condition}, "spec": {},
                "status": {"readyToUse": ready, "conditions": [{"type": "Ready", "status": "True"},
                    {"type": METADATA_READY, "status": condition}]}})
        };
        let ask = |owner: &'static str, object: Option<&Value>, old: Option<&Value>| {
            let write = NodeWrite {
                node: "a",
                is_management: false,
                group: "harvesterhci.io",
                resource: "virtualmachinebackups",
                namespace: "n",
                name: "x",
                object,
                old,
                objects: &World { target_owner: owner },
            };
            check(&write).is_ok()
        };
        let (pending, stored) = (backup(true, "False"), backup(true, "True"));
        assert!(ask("a", Some(&stored), Some(&pending)));
        assert!(!ask("z", Some(&stored), Some(&pending)), "another's target");
        assert!(!ask("a", Some(&backup(false, "True")), Some(&pending)), "another field");
        assert!(!ask("a", Some(&stored), None), "a new one");
        assert!(!ask("a", None, Some(&stored)), "a deletion");
    }

    #[test]
    fn the_node_of_the_target_hands_over_descriptions_and_no_other_secrets() {
        let ask = |owner: &'static str, namespace: &str, name: &str, kind: &str, is_new: bool| {
            let secret = json!({"metadata": {"name": name}, "type": kind});
            let write = NodeWrite {
                node: "a",
                is_management: true,
                group: "",
                resource: "secrets",
                namespace,
                name,
                object: Some(&secret),
                old: (!is_new).then_some(&secret),
                objects: &World { target_owner: owner },
            };
            check(&write).is_ok()
        };
        let found = "vm-backup-found-1";
        assert!(ask("a", NAMESPACE, found, SECRET_TYPE, true));
        assert!(!ask("z", NAMESPACE, found, SECRET_TYPE, true), "another's target");
        assert!(!ask("a", "default", found, SECRET_TYPE, true), "a tenant's namespace");
        assert!(!ask("a", NAMESPACE, "vm-backup-1", SECRET_TYPE, true), "the controllers' name");
        assert!(!ask("a", NAMESPACE, found, "Opaque", true), "another type");
        assert!(!ask("a", NAMESPACE, found, SECRET_TYPE, false), "an update");
        let world = World { target_owner: "a" };
        assert!(uses_backup_metadata("a", "vm-backup-1", &world));
        assert!(!uses_backup_metadata("z", "vm-backup-1", &world));
        assert!(!uses_backup_metadata("a", "passphrase", &world));
    }

    #[test]
    fn only_nodes_that_use_the_target_read_its_keys() {
        let world = World { target_owner: "a" };
        for (node, secret, expected) in [
            ("a", "keys", true),
            ("sends", "keys", true),
            ("fills", "keys", true),
            ("sent", "keys", false),
            ("idle", "keys", false),
            ("a", "other", false),
        ] {
            assert_eq!(uses_backup_secret(node, secret, &world), expected, "{node} {secret}");
        }
    }
}
