//! Leaving a mark of how far the log is durable: [`crate::store::sums`].

use super::{Purpose, Replica};
use crate::store::files::FileId;
use crate::store::recent::stamp::encode_stamp;
use crate::store::request::IoOp;
use crate::store::sums::Mark;
use crate::store::sums::record::STAMP;

#[derive(Debug, Default)]
pub(super) struct LogMark {
    /// The mark in the file, and whether it is being written.
    next: u64,
    writing: bool,
}

impl LogMark {
    /// The mark in the file, unless there is none or it is being written.
    pub(super) fn at_rest(&self) -> Option<u64> {
        (self.next > 0 && !self.writing).then_some(self.next)
    }

    /// The file was made anew, without it.
    pub(super) fn forget(&mut self) {
        self.next = 0;
    }
}

impl Replica {
    /// Leaves a mark of how far the log is durable. No request waits for it.
    pub(super) fn mark_log(&mut self) {
        let next = self.log.durable_next();
        if !self.log_mark.writing && self.log_mark.next < next {
            self.log_mark = LogMark { next, writing: true };
            let mark = Mark { next, recorded: self.recent.recorded() };
            let tag = self.meta.tag();
            let mut data = mark.encode(tag);
            data.resize(STAMP as usize, 0);
            // If the file was made anew, it has lost its stamp.
            data.extend(encode_stamp(self.boot, tag, self.meta.body.session));
            let data = data.into();
            let op = IoOp::Write { offset: 0, data, durable: false };
            self.issue(Purpose::Mark, FileId::Sums, op);
        }
    }

    pub(super) fn mark_written(&mut self) {
        self.log_mark.writing = false;
        self.mark_log();
    }
}
