//! The disks of this node: checks the disks of its Longhorn Node object, and reports their state
//! and free space.
//!
//! A disk is a directory with `longhorn-disk.cfg`, which names it for good: a file system that is
//! not mounted has none, and nothing is put into the empty directory below it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use base::clock;
use client::Fault;
use hci::longhorn::NAMESPACE;
use hci::longhorn::node::{DiskSpec, NodeSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PostParams};
use rustix::fs::statvfs;
use serde_json::{Value, json};
use tracing::info;

use super::act::{ActError, ActionContext, WrittenKind};
use super::object::{REPLICAS, Replica};
use super::status::{condition, difference};
use super::user::{NoUser, StorageUser};
use crate::event::{EventNote, Reporter};

pub(super) const CONFIG: &str = "longhorn-disk.cfg";
/// Longhorn's own default, which means ours.
const LONGHORN_PATH: &str = "/var/lib/longhorn";

/// One check of all disks.
pub(super) struct DiskScan {
    pub(super) hands: ActionContext,
    pub(super) reporter: Reporter,
    pub(super) default_disk: PathBuf,
    /// The Node object as it is known.
    pub(super) node: Option<DynamicObject>,
    pub(super) settings: BTreeMap<String, String>,
    /// Of this node.
    pub(super) replicas: Vec<Replica>,
}

/// The state found at a disk's path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DiskProbe {
    uuid: String,
    available: i64,
    maximum: i64,
}

/// Why a disk cannot be used.
#[derive(Debug, thiserror::Error)]
enum DiskError {
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} belongs to another disk: found id {found}, expected {known}", path.display())]
    Other { path: PathBuf, found: String, known: String },
    #[error("{} is invalid", path.display())]
    Config { path: PathBuf, source: serde_json::Error },
    #[error("{} is not an absolute path", path.display())]
    Relative { path: PathBuf },
    #[error("the storage process cannot use {}", path.display())]
    User { path: PathBuf, source: NoUser },
}

impl DiskScan {
    pub(super) async fn run(self) -> Result<(), ActError> {
        let Some(node) = &self.node else { return self.create().await };
        let spec: NodeSpec = serde_json::from_value(node.data["spec"].clone()).unwrap_or_default();
        let old = node.data.get("status").cloned().unwrap_or_default();
        let mut disks = serde_json::Map::new();
        let mut notes = Vec::new();
        for (name, disk) in &spec.disks {
            let before = old["diskStatus"][name].clone();
            let found = examine(name, disk, &before).await;
            let reported = self.disk_status(name, disk, &found, &before);
            notes.extend(news(name, &before, &reported));
            disks.insert(name.clone(), reported);
        }
        let status = json!({
            "conditions": self.conditions(&old["conditions"]),
            "diskStatus": disks,
        });
        if let Some(patch) = difference(&old, &status) {
            self.hands.report_status(WrittenKind::Node, &self.hands.node, patch).await?;
        }
        for note in notes {
            self.reporter.report(&self.reference(node), note).await;
        }
        Ok(())
    }

    fn setting(&self, name: &str) -> &str {
        hci::setting::value(name, self.settings.get(name).map(String::as_str))
    }

    /// The object of a node that is new, with its first disk unless only marked nodes get one.
    async fn create(&self) -> Result<(), ActError> {
        let path = match self.setting("default-data-path") {
            "" | LONGHORN_PATH => self.default_disk.clone(),
            other => PathBuf::from(other),
        };
        let mut disks = json!({});
        if self.setting("create-default-disk-labeled-nodes") != "true" {
            let total = tokio::task::block_in_place(|| {
                qemu::create_passable(&path).ok()?;
                statvfs(&path).ok().map(|stat| stat.f_blocks * stat.f_frsize)
            });
            let percent: u64 =
                self.setting("storage-reserved-percentage-for-default-disk").parse().unwrap_or(30);
            disks["default-disk"] = json!({
                "path": path, "diskType": "filesystem", "allowScheduling": true,
                "evictionRequested": false, "tags": [],
                "storageReserved": total.unwrap_or(0) / 100 * percent,
            });
        }
        let name = &self.hands.node;
        let node = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Node",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"name": name, "allowScheduling": true, "evictionRequested": false,
                     "disks": disks, "tags": []},
        });
        let node = serde_json::from_value(node).expect("a node of ours is an object");
        let created =
            WrittenKind::Node.api(&self.hands.client).create(&PostParams::default(), &node).await;
        match created {
            Ok(_) => {
                info!(node = name, disk = %path.display(), "node has a storage disk");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(source) => {
                Err(ActError::Write { kind: "node", name: name.clone(), source: Fault(source) })
            }
        }
    }

    fn conditions(&self, old: &Value) -> Vec<Value> {
        let now = clock::now();
        let node = &self.hands.node;
        vec![
            condition(old, "Ready", true, "", &format!("Node {node} is ready"), now),
            condition(old, "Schedulable", true, "", "", now),
            condition(old, "MountPropagation", true, "", "", now),
        ]
    }

    fn disk_status(
        &self,
        name: &str,
        disk: &DiskSpec,
        found: &Result<DiskProbe, DiskError>,
        before: &Value,
    ) -> Value {
        let (now, old) = (clock::now(), &before["conditions"]);
        let path = disk.path.as_deref().unwrap_or_default();
        let known = before["diskUUID"].as_str().unwrap_or_default();
        let uuid = found.as_ref().map_or(known, |found| found.uuid.as_str());
        let on_it = self.replicas.iter().filter(|it| !uuid.is_empty() && it.disk == uuid);
        let scheduled: BTreeMap<&str, u64> = on_it.map(|it| (it.name.as_str(), it.size)).collect();
        let mut status = json!({
            "diskName": name, "diskPath": path, "diskType": "filesystem", "diskUUID": uuid,
            "storageScheduled": scheduled.values().sum::<u64>(),
            "scheduledReplica": scheduled,
        });
        match found {
            Err(failure) => {
                let reason = match failure {
                    DiskError::Other { .. } => "DiskFilesystemChanged",
                    _ => "NoDiskInfo",
                };
                let why = base::Chain(failure).to_string();
                let why =
                    format!("Disk {name}({path}) on node {} is not ready: {why}", self.hands.node);
                status["conditions"] = json!([
                    condition(old, "Ready", false, reason, &why, now),
                    condition(old, "Schedulable", false, "DiskNotReady", &why, now),
                ]);
            }
            Ok(found) => {
                let available = reported_space(before["storageAvailable"].as_i64(), found);
                status["storageAvailable"] = json!(available);
                status["storageMaximum"] = json!(found.maximum);
                let ready = format!("Disk {name}({path}) on node {} is ready", self.hands.node);
                status["conditions"] = json!([
                    condition(old, "Ready", true, "", &ready, now),
                    self.pressure(name, path, (available, found.maximum), old),
                ]);
            }
        }
        status
    }

    /// Whether there is room for more.
    fn pressure(&self, name: &str, path: &str, room: (i64, i64), old: &Value) -> Value {
        let (available, maximum) = room;
        let percent: i64 =
            self.setting("storage-minimal-available-percentage").parse().unwrap_or_default();
        let least = maximum / 100 * percent;
        let now = clock::now();
        if available > least {
            let message = format!("Disk {name}({path}) on node {} is schedulable", self.hands.node);
            return condition(old, "Schedulable", true, "", &message, now);
        }
        let message = format!(
            "Disk {name} ({path}) on the node {} has {} available, but requires reserved minimal \
             {} to schedule more replicas",
            self.hands.node, available, least
        );
        condition(old, "Schedulable", false, "DiskPressure", &message, now)
    }

    fn reference(&self, node: &DynamicObject) -> ObjectReference {
        ObjectReference {
            api_version: Some("longhorn.io/v1beta2".into()),
            kind: Some("Node".into()),
            namespace: Some(NAMESPACE.into()),
            name: Some(self.hands.node.clone()),
            uid: node.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// The free space to report: the reported value, until it has changed enough to matter. The store
/// of the API server is often on the same file system, where each report takes some space: a
/// report of every change would be followed by another one without end.
fn reported_space(before: Option<i64>, found: &DiskProbe) -> i64 {
    let step = (found.maximum / 4096).clamp(16 << 20, 256 << 20);
    before
        .filter(|old| old.abs_diff(found.available) < step.unsigned_abs())
        .unwrap_or(found.available)
}

/// Events for users when a disk becomes usable or stops being so.
fn news(name: &str, before: &Value, now: &Value) -> Vec<EventNote> {
    let of = |status: &Value, kind: &str| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == kind)
    };
    let mut notes = Vec::new();
    for kind in ["Ready", "Schedulable"] {
        let (old, new) = (of(before, kind), of(now, kind));
        let text = |value: &Option<Value>, field: &str| {
            value.as_ref().and_then(|it| it[field].as_str()).unwrap_or_default().to_owned()
        };
        let (was, is) = (text(&old, "status"), text(&new, "status"));
        if was == is || was.is_empty() && is == "True" {
            continue;
        }
        let message = text(&new, "message");
        let message = if message.is_empty() { format!("disk {name}") } else { message };
        let reason = if kind == "Ready" { "Ready" } else { "Schedulable" };
        notes.push(match is.as_str() {
            "True" => EventNote::normal(reason, message),
            _ => EventNote::warning(reason, message),
        });
    }
    notes
}

async fn examine(name: &str, disk: &DiskSpec, before: &Value) -> Result<DiskProbe, DiskError> {
    let path = PathBuf::from(disk.path.clone().unwrap_or_default());
    let known = before["diskUUID"].as_str().unwrap_or_default().to_owned();
    let name = name.to_owned();
    let scanned = tokio::task::spawn_blocking(move || {
        scan_disk(&name, &path, &known, StorageUser::of_host())
    })
    .await;
    scanned.unwrap_or_else(|failure| {
        let source = io::Error::other(failure);
        Err(DiskError::Io { path: PathBuf::new(), source })
    })
}

fn scan_disk(
    name: &str,
    path: &Path,
    known: &str,
    user: Option<StorageUser>,
) -> Result<DiskProbe, DiskError> {
    if path.is_relative() {
        return Err(DiskError::Relative { path: path.into() });
    }
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| DiskError::Io { path, source }
    };
    let config = path.join(CONFIG);
    let uuid = match std::fs::read(&config) {
        Ok(text) => {
            let value: Value = serde_json::from_slice(&text)
                .map_err(|source| DiskError::Config { path: config.clone(), source })?;
            let found = value["diskUUID"].as_str().unwrap_or_default().to_owned();
            if !known.is_empty() && found != known {
                return Err(DiskError::Other { path: config, found, known: known.into() });
            }
            found
        }
        // A disk that was there before and has lost its name is not mounted.
        Err(source) if !known.is_empty() => return Err(DiskError::Io { path: config, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            qemu::create_passable(path).map_err(fail(path))?;
            let uuid = block::ids::VolumeId::random().to_string();
            let value = json!({"diskName": name, "diskUUID": uuid, "diskDriver": ""});
            let aside = path.join(".longhorn-disk.new");
            std::fs::write(&aside, value.to_string()).map_err(fail(&aside))?;
            std::fs::rename(&aside, &config).map_err(fail(&config))?;
            uuid
        }
        Err(source) => return Err(DiskError::Io { path: config, source }),
    };
    let replicas = path.join(REPLICAS);
    std::fs::create_dir_all(&replicas).map_err(fail(&replicas))?;
    if let Some(user) = user {
        let given = user.take_disk(path);
        given.map_err(|source| DiskError::User { path: path.to_owned(), source })?;
    }
    let stat = statvfs(path).map_err(|source| fail(path)(source.into()))?;
    let bytes = |blocks: u64| i64::try_from(blocks * stat.f_frsize).unwrap_or(i64::MAX);
    Ok(DiskProbe { uuid, available: bytes(stat.f_bavail), maximum: bytes(stat.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_name_and_one_that_is_not_mounted_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let first = scan_disk("d", &path, "", None).unwrap();
        assert_eq!(scan_disk("d", &path, &first.uuid, None).unwrap().uuid, first.uuid);
        let said = scan_disk("d", &path, "another", None).unwrap_err().to_string();
        assert!(said.contains("belongs to another disk"), "{said}");
        std::fs::remove_dir_all(&path).unwrap();
        scan_disk("d", &path, &first.uuid, None).unwrap_err();
        assert!(!path.exists(), "nothing is made where a disk is missing");
        assert!(scan_disk("d", Path::new("disk"), "", None).is_err());
    }

    #[test]
    fn free_space_is_reported_in_steps() {
        const MIB: i64 = 1 << 20;
        let found = |available, maximum| DiskProbe { uuid: "u".into(), available, maximum };
        for (before, available, maximum, expected) in [
            (None, 5, 100 * MIB, 5),
            (Some(90 * MIB), 90 * MIB - 4096, 100 * MIB, 90 * MIB),
            (Some(90 * MIB), 90 * MIB + 4096, 100 * MIB, 90 * MIB),
            (Some(90 * MIB), 74 * MIB, 100 * MIB, 74 * MIB),
            (Some(90 << 40), (90 << 40) - 200 * MIB, 100 << 40, 90 << 40),
            (Some(90 << 40), (90 << 40) - 256 * MIB, 100 << 40, (90 << 40) - 256 * MIB),
        ] {
            assert_eq!(reported_space(before, &found(available, maximum)), expected, "{before:?}");
        }
    }

    #[test]
    fn a_disk_that_becomes_bad_is_reported_and_a_good_one_is_not() {
        let status = |status: &str| {
            json!({"conditions": [
                {"type": "Schedulable", "status": status, "message": "m"},
            ]})
        };
        assert!(news("d", &Value::Null, &status("True")).is_empty());
        assert_eq!(news("d", &Value::Null, &status("False")).len(), 1);
        assert_eq!(news("d", &status("True"), &status("False"))[0].reason, "Schedulable");
        assert!(news("d", &status("False"), &status("False")).is_empty());
        assert_eq!(news("d", &status("False"), &status("True")).len(), 1);
    }
}
