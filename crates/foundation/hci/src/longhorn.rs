//! The shapes of Longhorn's objects, with upstream's names. Sizes are texts, as there.

pub mod attachment;
pub mod backup;
pub mod image;
pub mod instance;
pub mod job;
pub mod node;
pub mod setting;
pub mod snapshot;
pub mod volume;

use std::collections::BTreeSet;

use crd::record::record;

/// Annotation of an Engine: the record of its volume, which says who may write it and which
/// replicas are in sync.
pub const RECORD: &str = "sheaf.io/block-record";
/// The name of [`RECORD`] before all annotations were in one domain. It is read, and replaced at
/// the next write.
pub const OLD_RECORD: &str = "sheaf.dev/block-record";

/// Parameter of an attachment ticket: a machine that uses the volume elsewhere moves to the node
/// of the ticket.
pub const MIGRATION_PARAMETER: &str = "sheaf.io/migration";

/// Reasons of condition `InstanceCreation` of a Replica whose files no attempt can open: they are
/// gone, or damaged beyond what other replicas can repair. Another replica takes its place.
pub const REPLICA_MISSING: &str = "ReplicaMissing";
pub const REPLICA_DAMAGED: &str = "ReplicaDamaged";
/// Annotation of a Replica: name of the unusable replica that it replaces.
pub const REPLACES: &str = "sheaf.io/replaces";

/// The namespace that holds all of them.
pub const NAMESPACE: &str = "longhorn-system";
/// The finalizer of all of them.
pub const FINALIZER: &str = "longhorn.io";

/// The label of everything that belongs to a volume: its value is the volume's name.
pub const VOLUME_LABEL: &str = "longhornvolume";

/// Labels of a Backup: the volume it is of, and the BackupTarget it is on.
pub const BACKUP_VOLUME_LABEL: &str = "backup-volume";
pub const BACKUP_TARGET_LABEL: &str = "backup-target";
/// The backup target that follows Harvester's setting, and its secret.
pub const DEFAULT_BACKUP_TARGET: &str = "default";
pub const BACKUP_TARGET_SECRET: &str = "harvester-backup-target-secret";
/// State of a Backup that is gone from its target and may go from the API.
pub const BACKUP_DELETED: &str = "Deleted";

/// The volume from which a backup is read: a copy of its snapshot, not written to.
pub fn backup_source(uid: &str) -> String {
    format!("backup-source-{uid}")
}

/// The number by which the storage processes know a volume or a replica: the 128 bits of its
/// object's uid. Nothing for what is no UUID.
pub fn block_id(uid: &str) -> Option<u128> {
    let mut groups = uid.split('-');
    for length in [8, 4, 4, 4, 12] {
        groups.next().filter(|group| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        })?;
    }
    if groups.next().is_some() {
        return None;
    }
    u128::from_str_radix(&uid.replace('-', ""), 16).ok()
}

/// The replicas that have every acknowledged write, by their numbers ([`block_id`]), as the record
/// of a volume ([`RECORD`]) says; none if it cannot be understood.
pub fn in_sync_replicas(record: &str) -> BTreeSet<u128> {
    let record: serde_json::Value = serde_json::from_str(record).unwrap_or_default();
    let all = record["record"]["isr"].as_array().into_iter().flatten();
    all.filter_map(|id| block_id(id.as_str()?)).collect()
}

record! {
    Condition {
        r#type: String,
        status: String,
        last_probe_time: Option<String>,
        last_transition_time: Option<String>,
        reason: Option<String>,
        message: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::{block_id, in_sync_replicas};

    #[test]
    fn only_a_uuid_is_a_number_of_a_block_device() {
        let uid = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(block_id(uid), Some(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff));
        for wrong in [
            "",
            "x",
            "0011223344556677-8899-aabb-ccdd-eeff",
            &format!("{uid}-00"),
            "+0112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(block_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_record_names_the_replicas_in_sync() {
        let uid = "00112233-4455-6677-8899-aabbccddeeff";
        let record = format!(r#"{{"version":7,"record":{{"generation":3,"isr":["{uid}"]}}}}"#);
        assert_eq!(in_sync_replicas(&record), [block_id(uid).unwrap()].into());
        for broken in ["", "{}", r#"{"record":{"isr":[1]}}"#] {
            assert!(in_sync_replicas(broken).is_empty(), "{broken}");
        }
    }
}
