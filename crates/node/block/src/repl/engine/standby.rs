//! Ready to take a volume over that another engine serves.
//!
//! For live migration: the target's QEMU opens its disk while the guest still runs elsewhere. A
//! standby engine reads beside the other one, without any promise; the first change, or
//! an explicit switch when the guest has arrived, makes it claim the volume like any other.
//! Reads must not claim: the target reads before the guest has stopped at the source.

use super::event::GuestError;
use super::guest::{GuestOperation, length};
use super::member::Link;
use super::notice::Notice;
use super::ops::Owner;
use super::{Engine, Phase};
use crate::repl::control::Record;
use crate::repl::evidence;
use crate::repl::sabotage::skips;
use crate::wire::Request;

impl Engine {
    pub(super) fn stand_by(&mut self) {
        self.phase = Phase::Standby;
        self.read_record();
    }

    pub(super) fn open_readers(&mut self, record: &Record) {
        self.know_disputes(record);
        for replica in &record.isr {
            let slot = self.slot_or_new(*replica);
            let is_stale = self.members[slot].stale.is_some();
            if matches!(self.members[slot].link, Link::Down { .. }) && !is_stale {
                self.connect(slot);
            }
        }
    }

    /// A replica can be read: so can the volume, unless the replica is older than the record
    /// proves. Reports of other replicas are not compared: they are from other moments, and the
    /// engine that has the volume goes on writing.
    pub(super) fn can_read(&mut self, slot: usize) {
        let claim = self.members[slot].claim();
        let record = self.control.record();
        let stale = record.and_then(|record| evidence::judge(record, &[claim], &[])[0]);
        if let Some(why) = stale.filter(|_| !skips!(self.sabotage, TrustStale)) {
            self.disconnect(slot);
            return self.found_stale(slot, why);
        }
        let size = self.members[slot].opened.as_ref().map_or(0, |opened| opened.size);
        if self.size == 0 && size > 0 {
            self.size = size;
            self.notice(Notice::StandingBy);
        }
    }

    /// The session has ended; the record may say why.
    pub(super) fn reader_lost(&mut self, slot: usize) {
        self.disconnect(slot);
        self.reroute(slot);
    }

    pub(super) fn pump_standby(&mut self) {
        self.retry_control();
        let changes =
            self.queue.iter().any(|waiting| !matches!(waiting.what, GuestOperation::Read(_)));
        if changes || !self.barriers.is_empty() {
            return self.claim();
        }
        let Some(slot) = self.slots(super::member::Member::is_up).iter().next() else { return };
        let size = self.members[slot].opened.as_ref().map_or(0, |opened| opened.size);
        for waiting in std::mem::take(&mut self.queue) {
            let span = waiting.span();
            if span.end > size || span.len() > u64::from(crate::wire::MAX_DATA) {
                self.reply(waiting.guest, Err(GuestError::Invalid));
                continue;
            }
            if self.disputes.is_disputed(span) {
                self.reply(waiting.guest, Err(GuestError::Io));
                continue;
            }
            let request = Request::Read { view: None, offset: span.start, length: length(span) };
            let owner = Owner::Read { waiting, since: self.now };
            self.issue_one(request, slot, owner);
        }
    }
}
