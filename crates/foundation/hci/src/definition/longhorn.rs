//! Longhorn's kinds. All of them have a status of their own.

use crd::record::Field as _;

use super::{AGE, BETA2, Column, KindDefinition, with_status};
use crate::longhorn::{attachment, backup, image, instance, job, node, setting, snapshot, volume};

const GROUP: &str = "longhorn.io";

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("Data Engine", "string", ".spec.dataEngine", "", 0),
            Column("State", "string", ".status.state", "", 0),
            Column("Robustness", "string", ".status.robustness", "", 0),
            Column(
                "Scheduled",
                "string",
                ".status.conditions[?(@.type=='Schedulable')].status",
                "",
                0,
            ),
            Column("Size", "string", ".spec.size", "", 0),
            Column("Node", "string", ".status.currentNodeID", "", 0),
            Column("Switchover", "string", ".status.switchoverState", "", 1),
            AGE,
        ],
        ..with_status(GROUP, "Volume", "volumes", &["lhv"], BETA2, volume::Volume::schema)
    },
    KindDefinition {
        columns: &[
            Column("Data Engine", "string", ".spec.dataEngine", "", 0),
            Column("State", "string", ".status.currentState", "", 0),
            Column("Node", "string", ".spec.nodeID", "", 0),
            Column("InstanceManager", "string", ".status.instanceManagerName", "", 0),
            Column("Image", "string", ".status.currentImage", "", 0),
            AGE,
        ],
        ..with_status(GROUP, "Engine", "engines", &["lhe"], BETA2, volume::Engine::schema)
    },
    KindDefinition {
        columns: &[
            Column("Data Engine", "string", ".spec.dataEngine", "", 0),
            Column("State", "string", ".status.currentState", "", 0),
            Column("Node", "string", ".spec.nodeID", "", 0),
            Column("Disk", "string", ".spec.diskID", "", 0),
            Column("InstanceManager", "string", ".status.instanceManagerName", "", 0),
            Column("Image", "string", ".status.currentImage", "", 0),
            AGE,
        ],
        ..with_status(GROUP, "Replica", "replicas", &["lhr"], BETA2, volume::Replica::schema)
    },
    KindDefinition {
        columns: &[
            Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "", 0),
            Column("AllowScheduling", "boolean", ".spec.allowScheduling", "", 0),
            Column(
                "Schedulable",
                "string",
                ".status.conditions[?(@.type=='Schedulable')].status",
                "",
                0,
            ),
            AGE,
        ],
        ..with_status(GROUP, "Node", "nodes", &["lhn"], BETA2, node::Node::schema)
    },
    KindDefinition {
        columns: &[
            Column("Value", "string", ".value", "", 0),
            Column("Applied", "boolean", ".status.applied", "", 0),
            AGE,
        ],
        ..with_status(GROUP, "Setting", "settings", &["lhs"], BETA2, setting::Setting::schema)
    },
    KindDefinition {
        columns: &[
            Column("Volume", "string", ".spec.volume", "", 0),
            Column("CreationTime", "string", ".status.creationTime", "", 0),
            Column("ReadyToUse", "boolean", ".status.readyToUse", "", 0),
            Column("RestoreSize", "string", ".status.restoreSize", "", 0),
            Column("Size", "string", ".status.size", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "Snapshot",
            "snapshots",
            &["lhsnap"],
            BETA2,
            snapshot::Snapshot::schema,
        )
    },
    KindDefinition {
        columns: &[AGE],
        ..with_status(
            GROUP,
            "VolumeAttachment",
            "volumeattachments",
            &["lhva"],
            BETA2,
            attachment::VolumeAttachment::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("UUID", "string", ".status.uuid", "", 0),
            Column("SourceType", "string", ".spec.sourceType", "", 0),
            Column("Size", "string", ".status.size", "", 0),
            Column("VirtualSize", "string", ".status.virtualSize", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "BackingImage",
            "backingimages",
            &["lhbi"],
            BETA2,
            image::BackingImage::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("UUID", "string", ".spec.uuid", "", 0),
            Column("State", "string", ".status.currentState", "", 0),
            Column("SourceType", "string", ".spec.sourceType", "", 0),
            Column("Node", "string", ".spec.nodeID", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "BackingImageDataSource",
            "backingimagedatasources",
            &["lhbids"],
            BETA2,
            image::BackingImageDataSource::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("URL", "string", ".spec.backupTargetURL", "", 0),
            Column("Credential", "string", ".spec.credentialSecret", "", 0),
            Column("LastBackupAt", "string", ".spec.pollInterval", "", 0),
            Column("Available", "boolean", ".status.available", "", 0),
            Column("LastSyncedAt", "string", ".status.lastSyncedAt", "", 0),
        ],
        ..with_status(
            GROUP,
            "BackupTarget",
            "backuptargets",
            &["lhbt"],
            BETA2,
            backup::BackupTarget::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("CreatedAt", "string", ".status.createdAt", "", 0),
            Column("LastBackupName", "string", ".status.lastBackupName", "", 0),
            Column("LastBackupAt", "string", ".status.lastBackupAt", "", 0),
            Column("LastSyncedAt", "string", ".status.lastSyncedAt", "", 0),
        ],
        ..with_status(
            GROUP,
            "BackupVolume",
            "backupvolumes",
            &["lhbv"],
            BETA2,
            backup::BackupVolume::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("SnapshotName", "string", ".status.snapshotName", "", 0),
            Column("SnapshotSize", "string", ".status.size", "", 0),
            Column("SnapshotCreatedAt", "string", ".status.snapshotCreatedAt", "", 0),
            Column("BackupTarget", "string", ".status.backupTargetName", "", 0),
            Column("State", "string", ".status.state", "", 0),
            Column("LastSyncedAt", "string", ".status.lastSyncedAt", "", 0),
        ],
        ..with_status(GROUP, "Backup", "backups", &["lhb"], BETA2, backup::Backup::schema)
    },
    KindDefinition {
        columns: &[
            Column("BackingImage", "string", ".status.backingImage", "", 0),
            Column("Size", "string", ".status.size", "", 0),
            Column("State", "string", ".status.state", "", 0),
            Column("LastSyncedAt", "string", ".status.lastSyncedAt", "", 0),
        ],
        ..with_status(
            GROUP,
            "BackupBackingImage",
            "backupbackingimages",
            &["lhbbi"],
            BETA2,
            backup::BackupBackingImage::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Version", "string", ".status.version", "", 0),
            Column("State", "string", ".status.state", "", 0),
            Column("Created", "string", ".status.createdAt", "", 0),
        ],
        ..with_status(
            GROUP,
            "SystemBackup",
            "systembackups",
            &["lhsb"],
            BETA2,
            backup::SystemBackup::schema,
        )
    },
    KindDefinition {
        columns: &[Column("State", "string", ".status.state", "", 0), AGE],
        ..with_status(
            GROUP,
            "SystemRestore",
            "systemrestores",
            &["lhsr"],
            BETA2,
            backup::SystemRestore::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Groups", "string", ".spec.groups", "", 0),
            Column("Task", "string", ".spec.task", "", 0),
            Column("Cron", "string", ".spec.cron", "", 0),
            Column("Retain", "integer", ".spec.retain", "", 0),
            Column("Concurrency", "integer", ".spec.concurrency", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "RecurringJob",
            "recurringjobs",
            &["lhrj"],
            BETA2,
            job::RecurringJob::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Data Engine", "string", ".spec.dataEngine", "", 0),
            Column("State", "string", ".status.currentState", "", 0),
            Column("Type", "string", ".spec.type", "", 0),
            Column("Node", "string", ".spec.nodeID", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "InstanceManager",
            "instancemanagers",
            &["lhim"],
            BETA2,
            instance::InstanceManager::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Incompatible", "boolean", ".status.incompatible", "", 0),
            Column("State", "string", ".status.state", "", 0),
            Column("Image", "string", ".spec.image", "", 0),
            Column("RefCount", "integer", ".status.refCount", "", 0),
            Column("BuildDate", "string", ".status.buildDate", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "EngineImage",
            "engineimages",
            &["lhei"],
            BETA2,
            instance::EngineImage::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("State", "string", ".status.state", "", 0),
            Column("Node", "string", ".status.ownerID", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "ShareManager",
            "sharemanagers",
            &["lhsm"],
            BETA2,
            instance::ShareManager::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Type", "string", ".spec.orphanType", "", 0),
            Column("Node", "string", ".spec.nodeID", "", 0),
        ],
        ..with_status(GROUP, "Orphan", "orphans", &["lho"], BETA2, instance::Orphan::schema)
    },
];
