//! Snapshots as storage drivers share them.

use crd::record::Field as _;

use super::{AGE, Column, DefinitionScope, KindDefinition, ONE, kind, with_status};
use crate::snapshot::{self, GROUP};

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("ReadyToUse", "boolean", ".status.readyToUse", "", 0),
            Column("SourcePVC", "string", ".spec.source.persistentVolumeClaimName", "", 0),
            Column(
                "SourceSnapshotContent",
                "string",
                ".spec.source.volumeSnapshotContentName",
                "",
                0,
            ),
            Column("RestoreSize", "string", ".status.restoreSize", "", 0),
            Column("SnapshotClass", "string", ".spec.volumeSnapshotClassName", "", 0),
            Column("SnapshotContent", "string", ".status.boundVolumeSnapshotContentName", "", 0),
            Column("CreationTime", "date", ".status.creationTime", "", 0),
            AGE,
        ],
        ..with_status(
            GROUP,
            "VolumeSnapshot",
            "volumesnapshots",
            &["vs"],
            ONE,
            snapshot::VolumeSnapshot::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("Driver", "string", ".driver", "", 0),
            Column("DeletionPolicy", "string", ".deletionPolicy", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(
            GROUP,
            "VolumeSnapshotClass",
            "volumesnapshotclasses",
            &["vsclass", "vsclasses"],
            ONE,
            snapshot::VolumeSnapshotClass::schema,
        )
    },
    KindDefinition {
        columns: &[
            Column("ReadyToUse", "boolean", ".status.readyToUse", "", 0),
            Column("RestoreSize", "integer", ".status.restoreSize", "", 0),
            Column("DeletionPolicy", "string", ".spec.deletionPolicy", "", 0),
            Column("Driver", "string", ".spec.driver", "", 0),
            Column("VolumeSnapshotClass", "string", ".spec.volumeSnapshotClassName", "", 0),
            Column("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name", "", 0),
            Column("VolumeSnapshotNamespace", "string", ".spec.volumeSnapshotRef.namespace", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..with_status(
            GROUP,
            "VolumeSnapshotContent",
            "volumesnapshotcontents",
            &["vsc", "vscs"],
            ONE,
            snapshot::VolumeSnapshotContent::schema,
        )
    },
];
