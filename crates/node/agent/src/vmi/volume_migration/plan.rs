//! The next step of a volume that moves to another claim. Pure.
//!
//! ```text
//!              Start            (ready)  Announce    Complete           Adopt
//!  on source ────────► copying ────────► announced ──────────► switched ──────► on target
//!      ▲                 │  │                │                                     │
//!      │   Cancel, Forget│  │Fail            │Cancel                            Finish
//!      └─────────────────┴──┴────────────────┘
//! ```
//!
//! All of it is read from QEMU and from the object before each step, so that a process that was
//! started in the middle takes the same step as one that was there from the beginning. The two
//! claims are alike: a machine whose specification was reverted after the switch moves back.

use qemu::qmp::MirrorJob;

/// One of the two claims of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Source => Self::Target,
            Self::Target => Self::Source,
        }
    }
}

/// All that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MirrorEvidence {
    /// The claim that the specification names.
    pub(super) wanted: Side,
    /// The claim that the guest is on, as far as it is recorded.
    pub(super) recorded: Side,
    /// QEMU has switched the guest to the other claim since.
    pub(super) is_switched: bool,
    /// The mirror to the claim that the guest is not on.
    pub(super) job: MirrorJob,
    /// The object says that the guest may be on either claim from now on.
    pub(super) is_announced: bool,
    /// A failure is long enough ago.
    pub(super) is_due: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MirrorStep {
    /// Open the other claim and begin to copy.
    Start,
    /// QEMU reports when there is something to do.
    Wait,
    /// The next attempt has to wait.
    WaitUntilDue,
    /// Write into the object that a switch is next.
    Announce,
    Complete,
    /// Record that the guest is on the other claim.
    Adopt,
    Cancel,
    /// Close the claim of a job that was canceled.
    Forget,
    /// Close the claim of a job that failed, and say why.
    Fail(String),
    /// The guest is where it is wanted.
    Finish,
}

pub(super) fn next(seen: &MirrorEvidence) -> MirrorStep {
    if seen.is_switched {
        return MirrorStep::Adopt;
    }
    let is_there = seen.wanted == seen.recorded;
    match (&seen.job, is_there) {
        (MirrorJob::Absent, true) => MirrorStep::Finish,
        (MirrorJob::Absent, false) if seen.is_due => MirrorStep::Start,
        (MirrorJob::Absent, false) => MirrorStep::WaitUntilDue,
        (MirrorJob::Copying { .. } | MirrorJob::Ready, true) => MirrorStep::Cancel,
        (MirrorJob::Copying { .. }, false) | (MirrorJob::Ending, _) => MirrorStep::Wait,
        (MirrorJob::Ready, false) if seen.is_announced => MirrorStep::Complete,
        (MirrorJob::Ready, false) => MirrorStep::Announce,
        (MirrorJob::Ended { .. }, true) => MirrorStep::Forget,
        (MirrorJob::Ended { error }, false) => {
            let why = error.as_deref().unwrap_or("the copy ended without a switch");
            MirrorStep::Fail(why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPYING: MirrorJob = MirrorJob::Copying { done: 1, total: 4 };

    fn ended(error: Option<&str>) -> MirrorJob {
        MirrorJob::Ended { error: error.map(str::to_owned) }
    }

    fn seen(wanted: Side, recorded: Side, job: MirrorJob) -> MirrorEvidence {
        MirrorEvidence {
            wanted,
            recorded,
            is_switched: false,
            job,
            is_announced: false,
            is_due: true,
        }
    }

    #[test]
    fn each_situation_has_one_step() {
        use MirrorStep as Step;
        use Side::{Source, Target};
        let full = "No space left on device";
        for (wanted, recorded, job, step) in [
            (Target, Source, MirrorJob::Absent, Step::Start),
            (Target, Source, COPYING, Step::Wait),
            (Target, Source, MirrorJob::Ready, Step::Announce),
            (Target, Source, MirrorJob::Ending, Step::Wait),
            (Target, Source, ended(Some(full)), Step::Fail(full.into())),
            (Target, Source, ended(None), Step::Fail("the copy ended without a switch".into())),
            (Target, Target, MirrorJob::Absent, Step::Finish),
            // Reverted.
            (Source, Source, MirrorJob::Absent, Step::Finish),
            (Source, Source, COPYING, Step::Cancel),
            (Source, Source, MirrorJob::Ready, Step::Cancel),
            (Source, Source, MirrorJob::Ending, Step::Wait),
            (Source, Source, ended(Some("Operation canceled")), Step::Forget),
            (Source, Source, ended(Some(full)), Step::Forget),
            // Reverted after the switch: it moves back.
            (Source, Target, MirrorJob::Absent, Step::Start),
            (Source, Target, COPYING, Step::Wait),
        ] {
            let seen = seen(wanted, recorded, job);
            assert_eq!(next(&seen), step, "{seen:?}");
        }
    }

    #[test]
    fn a_switch_is_announced_first_and_recorded_whatever_is_wanted() {
        for wanted in [Side::Source, Side::Target] {
            let base = seen(wanted, Side::Source, MirrorJob::Ready);
            let step = next(&MirrorEvidence { is_announced: true, ..base.clone() });
            let expected = match wanted {
                Side::Source => MirrorStep::Cancel,
                Side::Target => MirrorStep::Complete,
            };
            assert_eq!(step, expected);
            for job in [MirrorJob::Ready, ended(None), MirrorJob::Absent] {
                let switched = MirrorEvidence { is_switched: true, job, ..base.clone() };
                assert_eq!(next(&switched), MirrorStep::Adopt);
            }
        }
    }

    #[test]
    fn a_failure_is_followed_by_a_pause() {
        let base = seen(Side::Target, Side::Source, MirrorJob::Absent);
        let early = MirrorEvidence { is_due: false, ..base };
        assert_eq!(next(&early), MirrorStep::WaitUntilDue);
    }

    /// A process that forgets everything between two steps ends where it should, from each
    /// situation and with each result of the job.
    #[test]
    fn every_way_ends() {
        for wanted in [Side::Source, Side::Target] {
            for job in [MirrorJob::Absent, COPYING, MirrorJob::Ready, MirrorJob::Ending] {
                for is_announced in [false, true] {
                    let mut now = seen(wanted, Side::Source, job.clone());
                    now.is_announced = is_announced;
                    assert!((0..12).any(|_| !advance(&mut now)), "{wanted:?} {job:?}: {now:?}");
                    assert_eq!(now.recorded, wanted, "{job:?}");
                }
            }
        }
    }

    /// Carries one step out; false at the end.
    fn advance(now: &mut MirrorEvidence) -> bool {
        match next(now) {
            MirrorStep::Finish => return false,
            MirrorStep::Start => now.job = COPYING,
            MirrorStep::Wait if now.job == COPYING => now.job = MirrorJob::Ready,
            MirrorStep::Wait => now.job = ended(Some("Operation canceled")),
            MirrorStep::WaitUntilDue => now.is_due = true,
            MirrorStep::Announce => now.is_announced = true,
            MirrorStep::Complete => (now.is_switched, now.job) = (true, ended(None)),
            MirrorStep::Adopt => {
                now.recorded = now.recorded.other();
                (now.is_switched, now.job) = (false, MirrorJob::Absent);
            }
            MirrorStep::Cancel => now.job = MirrorJob::Ending,
            MirrorStep::Forget => now.job = MirrorJob::Absent,
            MirrorStep::Fail(_) => (now.job, now.is_due) = (MirrorJob::Absent, false),
        }
        true
    }
}
