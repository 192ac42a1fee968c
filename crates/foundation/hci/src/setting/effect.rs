//! Which of Longhorn's settings change something here, and why the others do not. Pure.
//!
//! A test of the controllers compares this table with the code that reads settings.

use super::find;
use super::for_engine;
pub use crate::cluster_setting::SettingEffect;

use SettingEffect::{Applied, Stored};

const NO_PODS: &str = "the storage system has no pods, containers or images of its own";
const ONE_ENGINE: &str = "there is one data engine";
const NO_WORKLOAD_PODS: &str = "volumes are attached to virtual machines, not to pods";
const NO_BALANCE: &str = "replicas stay on their disks until they are evicted or lost";
const OWN_REBUILD: &str = "rebuilds copy the changed blocks, and choose their rate themselves";
const NO_IMAGE_COPIES: &str = "the nodes of images are chosen by the volumes that use them";
const NO_ORPHANS: &str = "replicas without an owner are removed by the node that has them";
const OWN_BACKUP: &str = "backups choose their block size, concurrency and time limits themselves";
const OWN_SNAPSHOTS: &str = "snapshots are removed by recurring jobs or by their owner only";
const STORED: &str = "the value is kept for clients";

/// The effect of a value of the setting of this name. Unknown settings are kept.
pub fn effect(name: &str) -> SettingEffect {
    match name {
        "allow-empty-disk-selector-volume"
        | "allow-empty-node-selector-volume"
        | "allow-recurring-job-while-volume-detached"
        | "auto-cleanup-recurring-job-backup-snapshot"
        | "backup-compression-method"
        | "create-default-disk-labeled-nodes"
        | "default-data-locality"
        | "default-data-path"
        | "default-replica-count"
        | "disable-scheduling-on-cordoned-node"
        | "recurring-job-max-retention"
        | "replica-disk-soft-anti-affinity"
        | "replica-replenishment-wait-interval"
        | "replica-soft-anti-affinity"
        | "replica-zone-soft-anti-affinity"
        | "snapshot-data-integrity"
        | "snapshot-data-integrity-cronjob"
        | "storage-minimal-available-percentage"
        | "storage-over-provisioning-percentage"
        | "storage-reserved-percentage-for-default-disk" => Applied,
        _ => Stored(reason(name)),
    }
}

/// Why a setting has no effect.
#[expect(clippy::too_many_lines, reason = "a table of settings and texts")]
fn reason(name: &str) -> &'static str {
    match name {
        "replica-auto-balance" | "replica-auto-balance-disk-pressure-percentage" => NO_BALANCE,
        "allow-volume-creation-with-degraded-availability" => {
            "volumes are created with the replicas that have a place, and get the others later"
        }
        "auto-salvage" => "a lost majority of replicas is accepted by `sheaf volume salvage` only",
        "auto-delete-pod-when-volume-detached-unexpectedly"
        | "node-down-pod-deletion-policy"
        | "rwx-volume-fast-failover"
        | "detach-manually-attached-volumes-when-cordoned" => NO_WORKLOAD_PODS,
        "node-drain-policy" => "a drain waits for the guests of the node, and keeps its replicas",
        "kubernetes-cluster-autoscaler-enabled" => "no autoscaler adds or removes nodes",
        "disable-revision-counter" => "replicas are compared by their generations",
        "concurrent-replica-rebuild-per-node-limit"
        | "engine-replica-timeout"
        | "fast-replica-rebuild-enabled"
        | "offline-replica-rebuilding"
        | "replica-rebuild-concurrent-sync-limit"
        | "replica-rebuilding-bandwidth-limit" => OWN_REBUILD,
        "auto-cleanup-snapshot-after-on-demand-backup-completed"
        | "auto-cleanup-system-generated-snapshot"
        | "auto-cleanup-when-delete-backup"
        | "disable-snapshot-purge"
        | "remove-snapshots-during-filesystem-trim"
        | "snapshot-count-warning-threshold"
        | "snapshot-heavy-task-concurrent-limit"
        | "snapshot-max-count" => OWN_SNAPSHOTS,
        "snapshot-data-integrity-immediate-check-after-snapshot-creation" => {
            "data is verified by the schedule of snapshot-data-integrity-cronjob"
        }
        "freeze-filesystem-for-snapshot" => {
            "file systems are frozen by snapshots of virtual machines, through the guest agent"
        }
        "backing-image-cleanup-wait-interval"
        | "backing-image-recovery-wait-interval"
        | "concurrent-backing-image-replenish-per-node-limit"
        | "default-min-number-of-backing-image-copies" => NO_IMAGE_COPIES,
        "backup-concurrent-limit"
        | "backup-execution-timeout"
        | "concurrent-volume-backup-restore-per-node-limit"
        | "default-backup-block-size"
        | "failed-backup-ttl"
        | "restore-concurrent-limit" => OWN_BACKUP,
        "restore-volume-recurring-jobs" => "recurring jobs are not part of a backup",
        "concurrent-automatic-engine-upgrade-per-node-limit"
        | "deleting-confirmation-flag"
        | "guaranteed-instance-manager-cpu"
        | "priority-class"
        | "recurring-failed-jobs-history-limit"
        | "recurring-successful-jobs-history-limit"
        | "system-managed-components-node-selector"
        | "taint-toleration" => NO_PODS,
        "default-longhorn-static-storage-class" => "claims of static volumes name their class",
        "log-level" => "the level of the log is Harvester's setting log-level",
        "node-disk-health-monitoring" => "the health of disks is not read yet",
        "storage-network" => "the setting of Harvester of this name decides",
        "upgrade-checker" => "nothing looks for upgrades by itself",
        "v1-data-engine" | "v2-data-engine" => ONE_ENGINE,
        "orphan-resource-auto-deletion" | "orphan-resource-auto-deletion-grace-period" => {
            NO_ORPHANS
        }
        _ => STORED,
    }
}

/// Why this value, which is not the default, changes nothing.
pub fn unheeded(name: &str, value: &str) -> Option<&'static str> {
    let Stored(reason) = effect(name) else { return None };
    let is_default = find(name).is_some_and(|known| is_equal(known.default, value));
    (!value.is_empty() && !is_default).then_some(reason)
}

/// Whether a value is the default for the engines that the default names.
fn is_equal(default: &str, value: &str) -> bool {
    default == value
        || default.starts_with('{')
            && ["v1", "v2"].into_iter().all(|engine| {
                let own = for_engine(default, engine);
                own.is_none() || own == for_engine(value, engine)
            })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::SETTINGS;

    #[test]
    fn every_setting_is_applied_or_says_why_not() {
        let unknown: Vec<&str> = SETTINGS
            .iter()
            .map(|setting| setting.name)
            .filter(|name| effect(name) == Stored(STORED))
            .collect();
        assert_eq!(unknown, [""; 0], "settings without a reason of their own");
    }

    #[test]
    fn a_default_asks_for_nothing() {
        for setting in SETTINGS {
            assert_eq!(unheeded(setting.name, setting.default), None, "{}", setting.name);
        }
        for (name, value, expected) in [
            ("auto-salvage", "", None),
            ("priority-class", "high", Some(NO_PODS)),
            ("disable-revision-counter", "true", None),
            ("disable-revision-counter", r#"{"v1": true}"#, None),
            ("guaranteed-instance-manager-cpu", "12", None),
            ("guaranteed-instance-manager-cpu", r#"{"v1":"12","v2":"13"}"#, Some(NO_PODS)),
            ("v2-data-engine", "true", Some(ONE_ENGINE)),
            ("default-replica-count", "1", None),
        ] {
            assert_eq!(unheeded(name, value), expected, "{name} {value}");
        }
    }
}
