//! The controllers of replicated volumes: Longhorn's, and those that capture and copy whole
//! machines by them.

use super::{ControllerGroup, Started};
use crate::hub::ChangeOutlet;
use crate::{image, longhorn, vm_backup, vm_backup_schedule, vm_clone, vm_restore, vm_snapshot};

impl Started<'_> {
    /// Those that make replicated volumes. Another cluster may have Longhorn itself, which
    /// would not share them.
    pub(super) fn storage(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Storage);
        let claimed = longhorn::provision::Claimed::default();
        let provisioner = longhorn::provision::Provisioner::new(client(), claimed.0.clone());
        outlets.push(self.add("volume-provision", claimed, provisioner));
        let watched = longhorn::volume::Watched::default();
        let reconciler = longhorn::volume::VolumeReconciler::new(client(), watched.clone());
        outlets.push(self.add("volume", watched, reconciler));
        let reconciler = longhorn::snapshot::SnapshotReconciler::new(client());
        outlets.push(self.add("snapshot", longhorn::snapshot::SnapshotMapper, reconciler));
        let reconciler = longhorn::volume_snapshot::VolumeSnapshotReconciler::new(client());
        outlets.push(self.add(
            "volume-snapshot",
            longhorn::volume_snapshot::VolumeSnapshotMapper,
            reconciler,
        ));
        outlets.push(self.add(
            "backup-target",
            longhorn::backup_target::BackupTargetMapper,
            longhorn::backup_target::BackupTargetReconciler::new(client()),
        ));
        outlets.push(self.add(
            "backup",
            longhorn::backup::BackupMapper,
            longhorn::backup::BackupReconciler::new(client()),
        ));
        let asked = vm_snapshot::VmSnapshotMapper::default();
        let reconciler = vm_snapshot::VmSnapshotReconciler::new(client(), asked.0.clone());
        outlets.push(self.add("vm-snapshot", asked, reconciler));
        let wanted = vm_restore::VmRestoreMapper::default();
        let restorer = vm_restore::VmRestoreReconciler::new(client(), wanted.0.clone());
        outlets.push(self.add("vm-restore", wanted, restorer));
        let asked = vm_clone::VmCloneMapper::default();
        let cloner = vm_clone::VmCloneReconciler::new(client(), asked.0.clone());
        outlets.push(self.add("vm-clone", asked, cloner));
        let reconciler = vm_backup::VmBackupReconciler::new(client());
        outlets.push(self.add("vm-backup", vm_backup::VmBackupMapper, reconciler));
        let schedules = vm_backup_schedule::ScheduleMapper::default();
        let scheduler = vm_backup_schedule::ScheduleReconciler::new(client(), schedules.0.clone());
        outlets.push(self.add("vm-backup-schedule", schedules, scheduler));
        let stored = image::Stored::default();
        let importer = image::ImageReconciler::new(client(), stored.waiting.clone());
        outlets.push(self.add("image", stored, importer));
        let jobs = longhorn::recurring_job::JobReconciler::new(client());
        outlets.push(self.add("recurring-job", longhorn::recurring_job::Jobs, jobs));
        let conditions = longhorn::node_condition::ConditionReconciler::new(client());
        outlets.push(self.add("storage-node", longhorn::node_condition::Nodes, conditions));
        let marker = longhorn::eviction::EvictionReconciler::new(client());
        outlets.push(self.add("eviction", longhorn::eviction::Nodes, marker));
    }
}
