//! When the volumes that are attached here are scrubbed. Pure.
//!
//! Longhorn's settings decide: `snapshot-data-integrity-cronjob` says when (UTC), unless
//! `snapshot-data-integrity` is `disabled`. One volume at a time: a scrub reads everything on
//! every node that has a replica. A run that was missed is not made up for; the next one comes.

use std::collections::{BTreeMap, BTreeSet};

use block::ids::VolumeId;
use block::run::VolumeStatus;
use block::storage::{StorageStatus, VolumeState};
use hci::schedule::Schedule;
use hci::setting;
use jiff::Timestamp;

/// The run that is carried out, if one is.
#[derive(Debug)]
pub(super) struct ScrubRuns {
    /// Runs count that are due after this.
    since: Timestamp,
    is_running: bool,
    done: BTreeSet<VolumeId>,
}

impl ScrubRuns {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { since: now, is_running: false, done: BTreeSet::new() }
    }

    /// The volume whose scrub begins now.
    pub(super) fn next(
        &mut self,
        settings: &BTreeMap<String, String>,
        state: &StorageStatus,
        now: Timestamp,
    ) -> Option<VolumeId> {
        let schedule = schedule(settings)?;
        if let Some(due) = schedule.due(self.since, now) {
            (self.since, self.is_running) = (due, true);
            self.done.clear();
        }
        if !self.is_running || state.volumes.iter().any(is_scrubbed_now) {
            return None;
        }
        let ready = |it: &&VolumeState| !self.done.contains(&it.attachment.volume);
        let mut left = state.volumes.iter().filter(|it| serves(it)).filter(ready).peekable();
        self.is_running = left.peek().is_some();
        // One that is being rebuilt comes later.
        let next = left.find(|it| it.status.as_ref().is_some_and(is_whole))?.attachment.volume;
        self.done.insert(next);
        Some(next)
    }
}

fn schedule(settings: &BTreeMap<String, String>) -> Option<Schedule> {
    let value = |name: &str| {
        let own = settings.get(name).map(String::as_str);
        setting::value(name, own).to_owned()
    };
    if value("snapshot-data-integrity") == "disabled" {
        return None;
    }
    Schedule::parse(&value("snapshot-data-integrity-cronjob")).ok()
}

fn serves(volume: &VolumeState) -> bool {
    let is_active = volume.status.as_ref().is_some_and(|it| it.phase == "active");
    is_active && !volume.attachment.standby && volume.error.is_none()
}

fn is_scrubbed_now(volume: &VolumeState) -> bool {
    volume.status.as_ref().is_some_and(|it| it.scrubbed_bytes.is_some())
}

fn is_whole(status: &VolumeStatus) -> bool {
    status.unreconciled == 0 && status.replicas.iter().all(|it| it.rebuilt_bytes.is_none())
}

#[cfg(test)]
mod tests {
    use block::ids::{Epoch, Generation, ReplicaId};
    use block::run::{MemberState, MemberStatus};
    use block::storage::{Attachment, RecordPlace};

    use super::*;

    fn volume(id: u128, rebuilt: Option<u64>, scrubbed: Option<u64>) -> VolumeState {
        let member = MemberStatus {
            id: ReplicaId::from_u128(id),
            state: MemberState::InSync,
            rebuilt_bytes: rebuilt,
            rebuild_bytes: rebuilt,
            latency_micros: 0,
            address: None,
            free_bytes: 0,
            used_bytes: 0,
            work: None,
            reason: None,
        };
        let status = VolumeStatus {
            phase: "active".into(),
            generation: Generation(1),
            epoch: Epoch(1),
            size: 1 << 20,
            replicas: vec![member],
            unreconciled: 0,
            unproven: false,
            disputed: vec![],
            lost: vec![],
            scrubbed_bytes: scrubbed,
            last_scrub: None,
            waiting: None,
            snapshots: vec![],
        };
        let attachment = Attachment {
            volume: VolumeId::from_u128(id),
            node: "one".into(),
            replicas: vec![],
            nbd: None,
            nbd_tcp: None,
            vhost: None,
            record: RecordPlace::Asked,
            encrypted: false,
            standby: false,
        };
        VolumeState { attachment, status: Some(status), error: None }
    }

    fn state(volumes: Vec<VolumeState>) -> StorageStatus {
        StorageStatus {
            pid: 1,
            listen: None,
            volumes,
            replicas: vec![],
            knows_grants: false,
            knows_replica_nodes: false,
            listens_also: None,
            waiting_engines: vec![],
            refused_engines: 0,
        }
    }

    #[test]
    fn each_volume_is_scrubbed_once_a_run_and_one_at_a_time() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let settings = |mode: &str| {
            BTreeMap::from([
                ("snapshot-data-integrity".to_owned(), mode.to_owned()),
                ("snapshot-data-integrity-cronjob".to_owned(), "0 * * * *".to_owned()),
            ])
        };
        let on = settings("enabled");
        let mut runs = ScrubRuns::new(at(1));
        let mut next = |settings: &BTreeMap<String, String>, volumes: Vec<VolumeState>, minute| {
            runs.next(settings, &state(volumes), at(minute)).map(VolumeId::as_u128)
        };
        let (one, two) = (|| volume(1, None, None), || volume(2, None, None));
        assert_eq!(next(&on, vec![one(), two()], 59), None, "it is not time yet");
        assert_eq!(next(&settings("disabled"), vec![one(), two()], 60), None);
        assert_eq!(next(&on, vec![one(), two()], 60), Some(1));
        assert_eq!(next(&on, vec![volume(1, None, Some(5)), two()], 60), None, "one at a time");
        assert_eq!(next(&on, vec![one(), volume(2, Some(1), None)], 61), None, "it is rebuilt");
        assert_eq!(next(&on, vec![one(), two()], 62), Some(2));
        assert_eq!(next(&on, vec![one(), two()], 63), None, "all are done");
        assert_eq!(next(&on, vec![one(), two(), volume(3, None, None)], 64), None, "it came later");
        assert_eq!(next(&on, vec![one(), two()], 185), Some(1), "the next run, once");
        assert_eq!(next(&on, vec![one()], 186), None);
    }
}
