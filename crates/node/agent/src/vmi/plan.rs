//! The next step for one machine. Pure: the object and the observed state of the node are the
//! input, one step is the output; the executor carries it out, observes again and plans again.
//!
//!   (Scheduled, nothing) ──Launch──► running ──guest powers off──► ended
//!   (deleting, running) ──PressButton…──► ended, or Kill when the grace period is over
//!   ended ──Finish (status)──► CleanUp ──► Release (finalizer)
//!
//! Every step may be repeated: an agent that is killed between two of them finds, after its
//! restart, the same object and the same leftovers, and plans the same step again. No guest is
//! started for an object whose run has begun: a run ends, and the next run is another object.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use qemu::Exit;

use crate::machine::VmiPhase;

/// How often the power button is pressed: guests drop a press that comes while they boot.
const PRESS_AGAIN: Duration = Duration::from_secs(5);

/// The desired state from the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredMachine {
    pub(crate) phase: VmiPhase,
    /// When it was asked to end, if it was.
    pub(crate) deleted: Option<Timestamp>,
    /// When the guest has to be down because its launcher pod was deleted or evicted.
    pub(crate) evicted: Option<Timestamp>,
    pub(crate) grace: Duration,
    pub(crate) acpi: bool,
    pub(crate) finalizer: bool,
    /// A failed liveness probe or the like: the guest is to be ended as failed.
    pub(crate) condemned: bool,
}

/// The observed state of the machine on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObservedMachine {
    Nothing,
    /// Preparations, and no process came of them.
    Unstarted,
    Running {
        /// When the power button was last pressed.
        pressed: Option<Timestamp>,
    },
    /// The process is gone; files, taps and the like may remain.
    Ended(Exit),
}

/// How a run ended, as the phase will say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    Succeeded,
    Failed,
}

impl RunOutcome {
    pub(crate) fn phase(self) -> VmiPhase {
        match self {
            Self::Succeeded => VmiPhase::Succeeded,
            Self::Failed => VmiPhase::Failed,
        }
    }

    fn of(exit: &Exit, want: &DesiredMachine) -> Self {
        // The guest did not choose to end: the controller that restarts failed instances restarts
        // this one.
        if want.deleted.is_none() && want.evicted.is_some() {
            return Self::Failed;
        }
        match exit {
            Exit::GuestShutdown | Exit::GuestReset => Self::Succeeded,
            // A guest that was given no time, or cannot receive the request, was not forced.
            Exit::Killed if want.deleted.is_some() && (want.grace.is_zero() || !want.acpi) => {
                Self::Succeeded
            }
            Exit::Killed | Exit::GuestPanic | Exit::Died { .. } => Self::Failed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VmiStep {
    /// Prepare everything and start the process.
    Launch,
    /// Write the status of a running guest, and bring its devices to what the object says.
    Reconcile,
    PressButton,
    Kill,
    /// Write the final phase.
    Finish(RunOutcome),
    /// Remove what is left on the node.
    CleanUp,
    /// Remove the finalizer.
    Release,
    /// Nothing to do; check again at this moment at the latest.
    Wait(Option<Timestamp>),
    /// Nothing is left to care for.
    Forget,
}

/// The next step for a machine whose object is `want`, or is gone.
pub(crate) fn next(
    want: Option<&DesiredMachine>,
    seen: &ObservedMachine,
    now: Timestamp,
) -> VmiStep {
    let Some(want) = want else {
        return match seen {
            ObservedMachine::Nothing => VmiStep::Forget,
            ObservedMachine::Running { .. } => VmiStep::Kill,
            ObservedMachine::Unstarted | ObservedMachine::Ended(_) => VmiStep::CleanUp,
        };
    };
    match seen {
        ObservedMachine::Running { pressed } => running(want, *pressed, now),
        // The status first: it is what must not be lost, and the leftovers are its witness.
        ObservedMachine::Ended(exit) if !want.phase.is_final() => {
            VmiStep::Finish(RunOutcome::of(exit, want))
        }
        ObservedMachine::Ended(_) => VmiStep::CleanUp,
        ObservedMachine::Nothing | ObservedMachine::Unstarted => absent(want, seen),
    }
}

fn absent(want: &DesiredMachine, seen: &ObservedMachine) -> VmiStep {
    let leftovers = *seen == ObservedMachine::Unstarted;
    match (want.phase, want.deleted) {
        // It ran, by its status, and is not here: the host lost it.
        (VmiPhase::Running, _) => VmiStep::Finish(RunOutcome::Failed),
        // Never started, and now never will be.
        (VmiPhase::Scheduled | VmiPhase::Early, Some(_)) => VmiStep::Finish(RunOutcome::Succeeded),
        (VmiPhase::Scheduled, None) if want.evicted.is_some() => {
            VmiStep::Finish(RunOutcome::Failed)
        }
        (VmiPhase::Scheduled, None) => VmiStep::Launch,
        (VmiPhase::Succeeded | VmiPhase::Failed, _) if leftovers => VmiStep::CleanUp,
        (VmiPhase::Succeeded | VmiPhase::Failed, Some(_)) if want.finalizer => VmiStep::Release,
        (VmiPhase::Early | VmiPhase::Succeeded | VmiPhase::Failed, _) => VmiStep::Wait(None),
    }
}

fn running(want: &DesiredMachine, pressed: Option<Timestamp>, now: Timestamp) -> VmiStep {
    if want.phase.is_final() || want.condemned {
        return VmiStep::Kill;
    }
    let (deleted, end) = match (want.deleted, want.evicted) {
        (Some(deleted), _) => (deleted, later(deleted, want.grace)),
        // The deadline is the request plus the grace period, which the request may shorten.
        (None, Some(end)) => (earlier(end, want.grace), end),
        (None, None) => return VmiStep::Reconcile,
    };
    if now >= end || !want.acpi {
        return VmiStep::Kill;
    }
    let again = match pressed {
        // A press from before the deletion was a soft reboot or the like.
        Some(pressed) if pressed >= deleted => later(pressed, PRESS_AGAIN),
        _ => now,
    };
    if again <= now { VmiStep::PressButton } else { VmiStep::Wait(Some(again.min(end))) }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn want(phase: VmiPhase) -> DesiredMachine {
        DesiredMachine {
            phase,
            deleted: None,
            evicted: None,
            grace: Duration::from_secs(30),
            acpi: true,
            finalizer: true,
            condemned: false,
        }
    }

    fn deleted(phase: VmiPhase) -> DesiredMachine {
        DesiredMachine { deleted: Some(at(0)), ..want(phase) }
    }

    fn live(pressed: Option<i64>) -> ObservedMachine {
        ObservedMachine::Running { pressed: pressed.map(at) }
    }

    const DIED: Exit = Exit::Died { status: None, signal: None };

    #[track_caller]
    fn check(want: Option<DesiredMachine>, seen: ObservedMachine, now: i64, step: VmiStep) {
        assert_eq!(next(want.as_ref(), &seen, at(now)), step, "{want:?} {seen:?}");
    }

    #[test]
    fn a_run_begins_once_and_only_after_the_hand_over() {
        check(Some(want(VmiPhase::Early)), ObservedMachine::Nothing, 0, VmiStep::Wait(None));
        check(Some(want(VmiPhase::Scheduled)), ObservedMachine::Nothing, 0, VmiStep::Launch);
        // Killed while preparing: once more.
        check(Some(want(VmiPhase::Scheduled)), ObservedMachine::Unstarted, 0, VmiStep::Launch);
        check(Some(want(VmiPhase::Scheduled)), live(None), 0, VmiStep::Reconcile);
        check(Some(want(VmiPhase::Running)), live(None), 0, VmiStep::Reconcile);
        // After a power cut the object says Running and there is no process.
        check(
            Some(want(VmiPhase::Running)),
            ObservedMachine::Nothing,
            0,
            VmiStep::Finish(RunOutcome::Failed),
        );
        check(
            Some(want(VmiPhase::Running)),
            ObservedMachine::Unstarted,
            0,
            VmiStep::Finish(RunOutcome::Failed),
        );
        check(Some(want(VmiPhase::Failed)), ObservedMachine::Nothing, 0, VmiStep::Wait(None));
        check(Some(want(VmiPhase::Failed)), ObservedMachine::Unstarted, 0, VmiStep::CleanUp);
    }

    #[test]
    fn an_end_is_written_before_its_traces_are_removed() {
        for phase in [VmiPhase::Scheduled, VmiPhase::Running] {
            let ended = |exit| ObservedMachine::Ended(exit);
            let (good, bad) = (RunOutcome::Succeeded, RunOutcome::Failed);
            check(Some(want(phase)), ended(Exit::GuestShutdown), 0, VmiStep::Finish(good));
            check(Some(want(phase)), ended(Exit::GuestPanic), 0, VmiStep::Finish(bad));
            check(Some(want(phase)), ended(Exit::Killed), 0, VmiStep::Finish(bad));
            check(Some(want(phase)), ended(DIED), 0, VmiStep::Finish(bad));
        }
        for phase in [VmiPhase::Succeeded, VmiPhase::Failed] {
            check(Some(want(phase)), ObservedMachine::Ended(DIED), 0, VmiStep::CleanUp);
        }
    }

    #[test]
    fn a_deleted_guest_hears_the_button_until_its_time_is_over() {
        let running = || Some(deleted(VmiPhase::Running));
        check(running(), live(None), 0, VmiStep::PressButton);
        check(running(), live(Some(-60)), 1, VmiStep::PressButton);
        check(running(), live(Some(1)), 2, VmiStep::Wait(Some(at(6))));
        check(running(), live(Some(1)), 6, VmiStep::PressButton);
        check(running(), live(Some(28)), 29, VmiStep::Wait(Some(at(30))));
        check(running(), live(Some(28)), 30, VmiStep::Kill);
        check(
            running(),
            ObservedMachine::Ended(Exit::Killed),
            31,
            VmiStep::Finish(RunOutcome::Failed),
        );
    }

    #[test]
    fn an_evicted_guest_is_shut_down_and_has_failed() {
        let evicted = |phase| DesiredMachine { evicted: Some(at(30)), ..want(phase) };
        check(Some(evicted(VmiPhase::Running)), live(None), 1, VmiStep::PressButton);
        check(Some(evicted(VmiPhase::Running)), live(Some(1)), 2, VmiStep::Wait(Some(at(6))));
        check(Some(evicted(VmiPhase::Running)), live(Some(26)), 30, VmiStep::Kill);
        for exit in [Exit::GuestShutdown, Exit::Killed] {
            let step = VmiStep::Finish(RunOutcome::Failed);
            check(Some(evicted(VmiPhase::Running)), ObservedMachine::Ended(exit), 9, step);
        }
        // It was going to start: it does not any more.
        let step = VmiStep::Finish(RunOutcome::Failed);
        check(Some(evicted(VmiPhase::Scheduled)), ObservedMachine::Nothing, 1, step);
        check(
            Some(evicted(VmiPhase::Failed)),
            ObservedMachine::Ended(Exit::GuestShutdown),
            9,
            VmiStep::CleanUp,
        );
        // A deletion counts more: it was asked for by a person.
        let deleted = DesiredMachine { deleted: Some(at(0)), ..evicted(VmiPhase::Running) };
        let step = VmiStep::Finish(RunOutcome::Succeeded);
        check(Some(deleted), ObservedMachine::Ended(Exit::GuestShutdown), 9, step);
    }

    #[test]
    fn a_guest_without_acpi_or_grace_is_killed_and_succeeds() {
        let deaf = || DesiredMachine { acpi: false, ..deleted(VmiPhase::Running) };
        let at_once = || DesiredMachine { grace: Duration::ZERO, ..deleted(VmiPhase::Running) };
        for want in [deaf, at_once] {
            check(Some(want()), live(None), 0, VmiStep::Kill);
            let killed = ObservedMachine::Ended(Exit::Killed);
            check(Some(want()), killed, 0, VmiStep::Finish(RunOutcome::Succeeded));
        }
    }

    #[test]
    fn a_deleted_object_is_released_last() {
        check(
            Some(deleted(VmiPhase::Scheduled)),
            ObservedMachine::Nothing,
            0,
            VmiStep::Finish(RunOutcome::Succeeded),
        );
        check(Some(deleted(VmiPhase::Succeeded)), ObservedMachine::Nothing, 0, VmiStep::Release);
        let released = DesiredMachine { finalizer: false, ..deleted(VmiPhase::Succeeded) };
        check(Some(released), ObservedMachine::Nothing, 0, VmiStep::Wait(None));
        check(Some(deleted(VmiPhase::Failed)), ObservedMachine::Ended(DIED), 0, VmiStep::CleanUp);
    }

    #[test]
    fn a_machine_without_an_object_is_removed() {
        check(None, live(None), 0, VmiStep::Kill);
        check(None, ObservedMachine::Ended(DIED), 0, VmiStep::CleanUp);
        check(None, ObservedMachine::Unstarted, 0, VmiStep::CleanUp);
        check(None, ObservedMachine::Nothing, 0, VmiStep::Forget);
    }

    #[test]
    fn a_guest_that_must_not_live_is_killed() {
        let condemned = DesiredMachine { condemned: true, ..want(VmiPhase::Running) };
        check(Some(condemned), live(None), 0, VmiStep::Kill);
        check(Some(want(VmiPhase::Failed)), live(None), 0, VmiStep::Kill);
    }
}
