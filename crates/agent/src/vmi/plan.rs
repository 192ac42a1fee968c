//! What to do next about one machine. Pure: the object and what is seen on the node go in,
//! one step comes out; the executor carries it out, looks again and asks again.
//!
//!   (Scheduled, nothing) ──Launch──► running ──guest powers off──► ended
//!   (deleting, running) ──PressButton…──► ended, or Kill when the grace period is over
//!   ended ──Finish (status)──► CleanUp ──► Release (finalizer)
//!
//! Every step may be repeated: whoever is killed between two of them finds, after its
//! restart, the same object and the same leftovers, and is told the same step again. No
//! guest is started for an object whose run has begun: a run ends, and the next run is
//! another object.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use qemu::Exit;

use super::object::Phase;

/// How often the power button is pressed: guests drop a press that comes while they boot.
const PRESS_AGAIN: Duration = Duration::from_secs(5);

/// What the object asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) phase: Phase,
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

/// What there is of it on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
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
pub(crate) enum Outcome {
    Succeeded,
    Failed,
}

impl Outcome {
    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::Succeeded => Phase::Succeeded,
            Self::Failed => Phase::Failed,
        }
    }

    fn of(exit: &Exit, want: &Want) -> Self {
        // The guest did not choose to end: what restarts failed instances restarts this one.
        if want.deleted.is_none() && want.evicted.is_some() {
            return Self::Failed;
        }
        match exit {
            Exit::GuestShutdown | Exit::GuestReset => Self::Succeeded,
            // Who was never told, or cannot hear, was not forced.
            Exit::Killed if want.deleted.is_some() && (want.grace.is_zero() || !want.acpi) => {
                Self::Succeeded
            }
            Exit::Killed | Exit::GuestPanic | Exit::Died { .. } => Self::Failed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Prepare everything and start the process.
    Launch,
    /// Write the status of a running guest, and bring its devices to what the object says.
    Tend,
    PressButton,
    Kill,
    /// Write the final phase.
    Finish(Outcome),
    /// Remove what is left on the node.
    CleanUp,
    /// Remove the finalizer.
    Release,
    /// Nothing to do; look again at this moment at the latest.
    Wait(Option<Timestamp>),
    /// Nothing is left to care for.
    Forget,
}

/// The next step for a machine whose object is `want`, or is gone.
pub(crate) fn next(want: Option<&Want>, seen: &Seen, now: Timestamp) -> Step {
    let Some(want) = want else {
        return match seen {
            Seen::Nothing => Step::Forget,
            Seen::Running { .. } => Step::Kill,
            Seen::Unstarted | Seen::Ended(_) => Step::CleanUp,
        };
    };
    match seen {
        Seen::Running { pressed } => running(want, *pressed, now),
        // The status first: it is what must not be lost, and the leftovers are its witness.
        Seen::Ended(exit) if !want.phase.is_final() => Step::Finish(Outcome::of(exit, want)),
        Seen::Ended(_) => Step::CleanUp,
        Seen::Nothing | Seen::Unstarted => absent(want, seen),
    }
}

fn absent(want: &Want, seen: &Seen) -> Step {
    let leftovers = *seen == Seen::Unstarted;
    match (want.phase, want.deleted) {
        // It ran, by its status, and is not here: the host lost it.
        (Phase::Running, _) => Step::Finish(Outcome::Failed),
        // Never started, and now never will be.
        (Phase::Scheduled | Phase::Early, Some(_)) => Step::Finish(Outcome::Succeeded),
        (Phase::Scheduled, None) if want.evicted.is_some() => Step::Finish(Outcome::Failed),
        (Phase::Scheduled, None) => Step::Launch,
        (Phase::Succeeded | Phase::Failed, _) if leftovers => Step::CleanUp,
        (Phase::Succeeded | Phase::Failed, Some(_)) if want.finalizer => Step::Release,
        (Phase::Early | Phase::Succeeded | Phase::Failed, _) => Step::Wait(None),
    }
}

fn running(want: &Want, pressed: Option<Timestamp>, now: Timestamp) -> Step {
    if want.phase.is_final() || want.condemned {
        return Step::Kill;
    }
    let (deleted, end) = match (want.deleted, want.evicted) {
        (Some(deleted), _) => (deleted, later(deleted, want.grace)),
        // The deadline is the request plus the grace period, which the request may shorten.
        (None, Some(end)) => (earlier(end, want.grace), end),
        (None, None) => return Step::Tend,
    };
    if now >= end || !want.acpi {
        return Step::Kill;
    }
    let again = match pressed {
        // A press from before the deletion was a soft reboot or the like.
        Some(pressed) if pressed >= deleted => later(pressed, PRESS_AGAIN),
        _ => now,
    };
    if again <= now { Step::PressButton } else { Step::Wait(Some(again.min(end))) }
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

    fn want(phase: Phase) -> Want {
        Want {
            phase,
            deleted: None,
            evicted: None,
            grace: Duration::from_secs(30),
            acpi: true,
            finalizer: true,
            condemned: false,
        }
    }

    fn deleted(phase: Phase) -> Want {
        Want { deleted: Some(at(0)), ..want(phase) }
    }

    fn live(pressed: Option<i64>) -> Seen {
        Seen::Running { pressed: pressed.map(at) }
    }

    const DIED: Exit = Exit::Died { status: None, signal: None };

    #[track_caller]
    fn check(want: Option<Want>, seen: Seen, now: i64, step: Step) {
        assert_eq!(next(want.as_ref(), &seen, at(now)), step, "{want:?} {seen:?}");
    }

    #[test]
    fn a_run_begins_once_and_only_after_the_hand_over() {
        check(Some(want(Phase::Early)), Seen::Nothing, 0, Step::Wait(None));
        check(Some(want(Phase::Scheduled)), Seen::Nothing, 0, Step::Launch);
        // Killed while preparing: once more.
        check(Some(want(Phase::Scheduled)), Seen::Unstarted, 0, Step::Launch);
        check(Some(want(Phase::Scheduled)), live(None), 0, Step::Tend);
        check(Some(want(Phase::Running)), live(None), 0, Step::Tend);
        // After a power cut the object says Running and there is no process.
        check(Some(want(Phase::Running)), Seen::Nothing, 0, Step::Finish(Outcome::Failed));
        check(Some(want(Phase::Running)), Seen::Unstarted, 0, Step::Finish(Outcome::Failed));
        check(Some(want(Phase::Failed)), Seen::Nothing, 0, Step::Wait(None));
        check(Some(want(Phase::Failed)), Seen::Unstarted, 0, Step::CleanUp);
    }

    #[test]
    fn an_end_is_written_before_its_traces_are_removed() {
        for phase in [Phase::Scheduled, Phase::Running] {
            let ended = |exit| Seen::Ended(exit);
            let (good, bad) = (Outcome::Succeeded, Outcome::Failed);
            check(Some(want(phase)), ended(Exit::GuestShutdown), 0, Step::Finish(good));
            check(Some(want(phase)), ended(Exit::GuestPanic), 0, Step::Finish(bad));
            check(Some(want(phase)), ended(Exit::Killed), 0, Step::Finish(bad));
            check(Some(want(phase)), ended(DIED), 0, Step::Finish(bad));
        }
        for phase in [Phase::Succeeded, Phase::Failed] {
            check(Some(want(phase)), Seen::Ended(DIED), 0, Step::CleanUp);
        }
    }

    #[test]
    fn a_deleted_guest_hears_the_button_until_its_time_is_over() {
        let running = || Some(deleted(Phase::Running));
        check(running(), live(None), 0, Step::PressButton);
        check(running(), live(Some(-60)), 1, Step::PressButton);
        check(running(), live(Some(1)), 2, Step::Wait(Some(at(6))));
        check(running(), live(Some(1)), 6, Step::PressButton);
        check(running(), live(Some(28)), 29, Step::Wait(Some(at(30))));
        check(running(), live(Some(28)), 30, Step::Kill);
        check(running(), Seen::Ended(Exit::Killed), 31, Step::Finish(Outcome::Failed));
    }

    #[test]
    fn an_evicted_guest_is_shut_down_and_has_failed() {
        let evicted = |phase| Want { evicted: Some(at(30)), ..want(phase) };
        check(Some(evicted(Phase::Running)), live(None), 1, Step::PressButton);
        check(Some(evicted(Phase::Running)), live(Some(1)), 2, Step::Wait(Some(at(6))));
        check(Some(evicted(Phase::Running)), live(Some(26)), 30, Step::Kill);
        for exit in [Exit::GuestShutdown, Exit::Killed] {
            let step = Step::Finish(Outcome::Failed);
            check(Some(evicted(Phase::Running)), Seen::Ended(exit), 9, step);
        }
        // It was about to start: it does not any more.
        let step = Step::Finish(Outcome::Failed);
        check(Some(evicted(Phase::Scheduled)), Seen::Nothing, 1, step);
        check(Some(evicted(Phase::Failed)), Seen::Ended(Exit::GuestShutdown), 9, Step::CleanUp);
        // A deletion counts more: it was asked for by a person.
        let deleted = Want { deleted: Some(at(0)), ..evicted(Phase::Running) };
        let step = Step::Finish(Outcome::Succeeded);
        check(Some(deleted), Seen::Ended(Exit::GuestShutdown), 9, step);
    }

    #[test]
    fn who_cannot_hear_the_button_is_ended_without_blame() {
        let deaf = || Want { acpi: false, ..deleted(Phase::Running) };
        let at_once = || Want { grace: Duration::ZERO, ..deleted(Phase::Running) };
        for want in [deaf, at_once] {
            check(Some(want()), live(None), 0, Step::Kill);
            let killed = Seen::Ended(Exit::Killed);
            check(Some(want()), killed, 0, Step::Finish(Outcome::Succeeded));
        }
    }

    #[test]
    fn a_deleted_object_is_released_last() {
        check(Some(deleted(Phase::Scheduled)), Seen::Nothing, 0, Step::Finish(Outcome::Succeeded));
        check(Some(deleted(Phase::Succeeded)), Seen::Nothing, 0, Step::Release);
        let released = Want { finalizer: false, ..deleted(Phase::Succeeded) };
        check(Some(released), Seen::Nothing, 0, Step::Wait(None));
        check(Some(deleted(Phase::Failed)), Seen::Ended(DIED), 0, Step::CleanUp);
    }

    #[test]
    fn what_has_no_object_is_removed() {
        check(None, live(None), 0, Step::Kill);
        check(None, Seen::Ended(DIED), 0, Step::CleanUp);
        check(None, Seen::Unstarted, 0, Step::CleanUp);
        check(None, Seen::Nothing, 0, Step::Forget);
    }

    #[test]
    fn a_guest_that_must_not_live_is_killed() {
        let condemned = Want { condemned: true, ..want(Phase::Running) };
        check(Some(condemned), live(None), 0, Step::Kill);
        check(Some(want(Phase::Failed)), live(None), 0, Step::Kill);
    }
}
