//! Harvester's descriptions of backed-up machines on the backup target: one file per backup, from
//! which another cluster creates the VirtualMachineBackup again. The format of the file, its path,
//! and the Secrets that carry its content between the controllers, which know machines, and the
//! node that owns the target, which knows the target. Pure.
//!
//! The file holds Secrets of the machine, so its content is never part of an object that readers
//! of backups can read.

use crd::record::record;
use kinds::syntax::{label, subdomain};

use crate::harvester::backup::{
    BackupSource, BackupTarget, SecretBackup, VirtualMachineBackupSpec, VolumeBackup,
};

/// Condition of a backup: whether its file is on the target.
pub const METADATA_READY: &str = "MetadataReady";
/// Reasons of that condition while it is False: the file is to be written, or was removed.
pub const PENDING: &str = "Pending";
pub const REMOVED: &str = "Removed";
/// Type of the Secrets with contents of files, which are in Longhorn's namespace.
pub const SECRET_TYPE: &str = "sheaf.io/vm-backup-metadata";
/// Key of the content in such a Secret.
pub const CONTENT: &str = "metadata";
/// Folder of all files on a target.
pub const FOLDER: &str = "harvester/vmbackups";
const SECRET_PREFIX: &str = "vm-backup-";
/// Files that were found on the target, and of which the cluster has no backup.
pub const FOUND_PREFIX: &str = "vm-backup-found-";
/// A file is read as a whole; a machine's description is some kilobytes.
pub const MAX_SIZE: usize = 512 << 10;

record! {
    /// Content of the metadata file of a VM backup.
    VmBackupMetadata {
        name: String,
        namespace: String,
        backup_spec: VirtualMachineBackupSpec,
        vm_source_spec: Option<BackupSource>,
        volume_backups: Vec<VolumeBackup>,
        secret_backups: Vec<SecretBackup>,
    }
}

/// Why a file of the target is not used.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("it is not the description of a backup")]
    Json(#[from] serde_json::Error),
    #[error("it has {size} bytes, more than {MAX_SIZE}")]
    Overlong { size: usize },
    #[error("{field} {value:?} is invalid: {problem}")]
    Name { field: &'static str, value: String, problem: String },
    #[error("{field} is missing")]
    Missing { field: &'static str },
}

impl VmBackupMetadata {
    /// Reads a file. The names in it must be valid, since objects are created with them.
    pub fn parse(content: &[u8]) -> Result<Self, MetadataError> {
        if content.len() > MAX_SIZE {
            return Err(MetadataError::Overlong { size: content.len() });
        }
        let mut read: Self = serde_json::from_slice(content)?;
        if read.namespace.is_empty() {
            "default".clone_into(&mut read.namespace);
        }
        check("namespace", &read.namespace, label)?;
        check("name", &read.name, subdomain)?;
        check("backupSpec.source.name", &read.backup_spec.source.name, subdomain)?;
        if read.vm_source_spec.is_none() {
            return Err(MetadataError::Missing { field: "vmSourceSpec" });
        }
        for volume in &read.volume_backups {
            let Some(backup) = &volume.longhorn_backup_name else {
                return Err(MetadataError::Missing { field: "volumeBackups[].longhornBackupName" });
            };
            check("volumeBackups[].longhornBackupName", backup, subdomain)?;
        }
        for secret in &read.secret_backups {
            check("secretBackups[].name", &secret.name, subdomain)?;
        }
        Ok(read)
    }
}

fn check(
    field: &'static str,
    value: &str,
    rule: fn(&str) -> Vec<String>,
) -> Result<(), MetadataError> {
    match rule(value).into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(MetadataError::Name { field, value: value.to_owned(), problem }),
    }
}

/// Path of the file of a backup on the target.
pub fn file(namespace: &str, name: &str) -> String {
    format!("{FOLDER}/{namespace}/{name}.cfg")
}

/// The backup that a file describes, by its path below [`FOLDER`].
pub fn backup_of(path: &str) -> Option<(&str, &str)> {
    let (namespace, file) = path.split_once('/')?;
    let name = file.strip_suffix(".cfg")?;
    let is_valid = label(namespace).is_empty() && subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// The Secret with the content of the file of a backup, by the uid of the backup.
pub fn secret_name(uid: &str) -> String {
    format!("{SECRET_PREFIX}{uid}")
}

/// Whether a Secret of Longhorn's namespace has this name because it carries a file.
pub fn is_secret_name(name: &str) -> bool {
    name.starts_with(SECRET_PREFIX)
}

/// Harvester's notation of the place that a URL of a backup target names.
pub fn location(url: &str) -> BackupTarget {
    match url.strip_prefix("s3://").and_then(|rest| rest.split_once('@')) {
        Some((bucket, rest)) => BackupTarget {
            endpoint: Some(String::new()),
            bucket_name: Some(bucket.to_owned()),
            bucket_region: Some(rest.split('/').next().unwrap_or_default().to_owned()),
        },
        None => BackupTarget { endpoint: Some(url.to_owned()), ..BackupTarget::default() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn described() -> Value {
        json!({
            "name": "monday", "namespace": "team", "backupSpec": {"source": {"apiGroup":
                "kubevirt.io", "kind": "VirtualMachine", "name": "web"}, "type": "backup"},
            "vmSourceSpec": {"metadata": {"name": "web", "annotations": {"a": "b"}},
                "spec": {"template": {"spec": {"domain": {}}}}},
            "volumeBackups": [{"name": "monday-volume-root", "volumeName": "root",
                "longhornBackupName": "backup-1", "persistentVolumeClaim":
                    {"metadata": {"name": "root"}, "spec": {"volumeName": "pvc-1"}}}],
            "secretBackups": [{"name": "keys", "data": {"userdata": "eA=="}}],
        })
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let read = VmBackupMetadata::parse(described().to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), described());
        let mut without = described();
        without["namespace"] = json!("");
        let read = VmBackupMetadata::parse(without.to_string().as_bytes()).unwrap();
        assert_eq!(read.namespace, "default");
    }

    #[test]
    fn a_file_that_names_what_cannot_be_is_refused() {
        let cases = [
            ("/name", json!("../x"), "name \"../x\" is invalid"),
            ("/namespace", json!("a.b"), "namespace \"a.b\" is invalid"),
            ("/backupSpec/source/name", json!(""), "backupSpec.source.name \"\" is invalid"),
            ("/vmSourceSpec", Value::Null, "vmSourceSpec is missing"),
            (
                "/volumeBackups/0/longhornBackupName",
                Value::Null,
                "volumeBackups[].longhornBackupName is missing",
            ),
            ("/secretBackups/0/name", json!("A B"), "secretBackups[].name \"A B\" is invalid"),
        ];
        for (field, value, expected) in cases {
            let mut own = described();
            *own.pointer_mut(field).unwrap() = value;
            let failure = VmBackupMetadata::parse(own.to_string().as_bytes()).unwrap_err();
            assert!(failure.to_string().starts_with(expected), "{field}: {failure}");
        }
        assert!(matches!(VmBackupMetadata::parse(b"no JSON"), Err(MetadataError::Json(_))));
        let long = vec![b' '; MAX_SIZE + 1];
        assert!(matches!(VmBackupMetadata::parse(&long), Err(MetadataError::Overlong { .. })));
    }

    #[test]
    fn a_path_names_a_backup() {
        assert_eq!(file("team", "monday"), "harvester/vmbackups/team/monday.cfg");
        assert_eq!(backup_of("team/monday.cfg"), Some(("team", "monday")));
        for path in ["monday.cfg", "team/monday", "team/x/monday.cfg", "Team/a.cfg", "team/.cfg"] {
            assert_eq!(backup_of(path), None, "{path}");
        }
    }

    #[test]
    fn a_place_is_named_as_harvester_does() {
        let bucket = location("s3://bu@re/");
        assert_eq!(bucket.bucket_name.as_deref(), Some("bu"));
        assert_eq!(bucket.bucket_region.as_deref(), Some("re"));
        assert_eq!(location("nfs://h:/x").endpoint.as_deref(), Some("nfs://h:/x"));
    }
}
