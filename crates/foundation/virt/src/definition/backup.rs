//! KubeVirt's backups of machines, which are stored and not acted on.

use super::catalog::{AGE, ALPHA};
use crate::api::backup;
use crate::api::record::Field;
use crd::definition::{KindDefinition, Subresources};

const GROUP: &str = "backup.kubevirt.io";

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[AGE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            GROUP,
            "VirtualMachineBackup",
            "virtualmachinebackups",
            // `vmbackup` means Harvester's kind, which works.
            &[],
            ALPHA,
            backup::VirtualMachineBackup::schema,
        )
    },
    KindDefinition {
        columns: &[AGE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            GROUP,
            "VirtualMachineBackupTracker",
            "virtualmachinebackuptrackers",
            &["vmbackuptracker", "vmbackuptrackers"],
            ALPHA,
            backup::VirtualMachineBackupTracker::schema,
        )
    },
];
