//! The backup jobs of this node now: pure.

use std::collections::{BTreeMap, BTreeSet};

use hci::longhorn::BACKUP_DELETED;
use hci::vm_backup_metadata::location;

use super::object::{BackupObject, MachineBackup, RestoredVolume, TargetObject};

/// The observed state.
pub(super) struct BackupWorld<'a> {
    pub(super) node: &'a str,
    pub(super) targets: &'a BTreeMap<String, TargetObject>,
    pub(super) backups: &'a BTreeMap<String, BackupObject>,
    pub(super) volumes: &'a BTreeMap<String, RestoredVolume>,
    /// Backups of machines, by `NAMESPACE/NAME`.
    pub(super) machines: &'a BTreeMap<String, MachineBackup>,
    /// Volumes that this node fills.
    pub(super) filled_here: &'a BTreeSet<String>,
    /// Volumes that this process has filled, and that do not say so yet.
    pub(super) filled: &'a BTreeSet<String>,
    pub(super) under_way: &'a BTreeSet<BackupJob>,
}

/// One piece of work, and at the same time its key: none is done twice at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BackupJob {
    Upload {
        backup: String,
    },
    Delete {
        backup: String,
    },
    Restore {
        volume: String,
    },
    /// The description of a machine's backup, `NAMESPACE/NAME`, is written or removed.
    Describe {
        machine: String,
    },
}

pub(super) fn plan(world: &BackupWorld<'_>) -> Vec<BackupJob> {
    let own = world.backups.values().filter(|backup| backup.owner == world.node);
    let mut jobs: Vec<BackupJob> = own
        .filter_map(|own| {
            let backup = own.name.clone();
            match (own.is_deleting, own.state.as_str()) {
                (true, BACKUP_DELETED) => None,
                (true, "Deleting") => Some(BackupJob::Delete { backup }),
                (false, "InProgress") => Some(BackupJob::Upload { backup }),
                _ => None,
            }
        })
        .collect();
    let here = world.volumes.keys().filter(|name| world.filled_here.contains(*name));
    let here = here.filter(|name| !world.filled.contains(*name));
    jobs.extend(here.map(|name| BackupJob::Restore { volume: name.clone() }));
    if let Some(target) = own_target(world) {
        let here = location(&target.url);
        let machines = world.machines.iter().filter(|(_, own)| own.location == here);
        jobs.extend(machines.map(|(key, _)| BackupJob::Describe { machine: key.clone() }));
    }
    jobs.retain(|job| !world.under_way.contains(job));
    jobs
}

/// Work whose reason is gone: it is cancelled.
pub(super) fn unwanted(world: &BackupWorld<'_>) -> Vec<BackupJob> {
    let is_wanted = |job: &&BackupJob| match job {
        BackupJob::Upload { backup } => {
            world.backups.get(backup).is_some_and(|own| !own.is_deleting && own.owner == world.node)
        }
        BackupJob::Restore { volume } => world.volumes.contains_key(volume),
        BackupJob::Delete { .. } | BackupJob::Describe { .. } => true,
    };
    world.under_way.iter().filter(|job| !is_wanted(job)).cloned().collect()
}

/// The target that this node manages.
pub(super) fn own_target<'a>(world: &BackupWorld<'a>) -> Option<&'a TargetObject> {
    let mut all = world.targets.values();
    all.find(|target| target.owner == world.node && !target.url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::object::DescriptionStep;
    use super::*;

    fn backup(name: &str, owner: &str, state: &str, is_deleting: bool) -> BackupObject {
        BackupObject {
            name: name.into(),
            uid: String::new(),
            volume: "v".into(),
            snapshot: "s".into(),
            snapshot_created: String::new(),
            labels: BTreeMap::new(),
            block_size: None,
            is_full: false,
            owner: owner.into(),
            state: state.into(),
            url: String::new(),
            is_deleting,
            compression: String::new(),
        }
    }

    #[test]
    fn a_node_does_what_is_assigned_to_it_once() {
        let all = [
            backup("new", "one", "InProgress", false),
            backup("elsewhere", "two", "InProgress", false),
            backup("waiting", "", "Pending", false),
            backup("done", "one", "Completed", false),
            backup("going", "one", "Deleting", true),
            backup("gone", "one", BACKUP_DELETED, true),
            backup("cut", "one", "InProgress", true),
        ];
        let backups = all.into_iter().map(|own| (own.name.clone(), own)).collect();
        let restored =
            |name: &str| RestoredVolume { name: name.into(), from_backup: "s3://b@r/".into() };
        let volumes = ["here", "there", "full"];
        let volumes = volumes.map(|name| (name.to_owned(), restored(name))).into_iter().collect();
        let filled_here = ["here", "full"].map(str::to_owned).into();
        let filled = BTreeSet::from(["full".to_owned()]);
        let world = |under_way: &BTreeSet<BackupJob>,
                     ask: fn(&BackupWorld<'_>) -> Vec<BackupJob>| {
            ask(&BackupWorld {
                node: "one",
                targets: &BTreeMap::new(),
                backups: &backups,
                volumes: &volumes,
                machines: &BTreeMap::new(),
                filled_here: &filled_here,
                filled: &filled,
                under_way,
            })
        };
        let upload = |name: &str| BackupJob::Upload { backup: name.into() };
        let jobs = world(&BTreeSet::new(), plan);
        let going = BackupJob::Delete { backup: "going".into() };
        let here = BackupJob::Restore { volume: "here".into() };
        assert_eq!(jobs, [going.clone(), upload("new"), here.clone()]);
        assert_eq!(world(&BTreeSet::from([upload("new"), here]), plan), [going]);
        let running = BTreeSet::from([upload("new"), upload("cut"), upload("never")]);
        assert_eq!(world(&running, unwanted), [upload("cut"), upload("never")]);
    }

    #[test]
    fn the_node_of_the_target_writes_descriptions_of_backups_that_are_there() {
        let target = |owner: &str| TargetObject {
            name: "default".into(),
            url: "s3://b@r/".into(),
            secret: String::new(),
            owner: owner.into(),
            poll_interval: None,
            sync_requested: String::new(),
        };
        let machine = |url: &str| MachineBackup {
            namespace: "n".into(),
            name: "m".into(),
            uid: "u".into(),
            location: location(url),
            step: DescriptionStep::Write,
        };
        let all = [("n/here", "s3://b@r/"), ("n/there", "s3://c@r/")];
        let machines = all.map(|(key, url)| (key.to_owned(), machine(url))).into();
        let jobs = |owner: &str| {
            let targets = [("default".to_owned(), target(owner))].into();
            plan(&BackupWorld {
                node: "one",
                targets: &targets,
                backups: &BTreeMap::new(),
                volumes: &BTreeMap::new(),
                machines: &machines,
                filled_here: &BTreeSet::new(),
                filled: &BTreeSet::new(),
                under_way: &BTreeSet::new(),
            })
        };
        assert_eq!(jobs("one"), [BackupJob::Describe { machine: "n/here".into() }]);
        assert_eq!(jobs("two"), []);
    }
}
