//! Decides which node may run a guest after a failed migration. Pure.
//!
//! The target never runs the guest before the object names it, and the source writes that only
//! after its QEMU has completed. So before that point the guest belongs to the source for certain.
//! In post-copy that point is earlier: from the moment that the target gets the state of devices,
//! the guest goes on there or nowhere.

use std::time::Duration;

use qemu::qmp::MigrationStatus;
use virt::v1::VirtualMachineInstanceMigrationState;

/// Which node the object gives the guest to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    Source,
    Target,
    /// The write that gives it away was sent, and its fate is not known.
    Unknown,
}

/// The source's reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The migration is cancelled; the guest runs, or goes on where QEMU stopped it.
    Cancel,
    /// A write that says that it failed comes first. Then no earlier write can give the guest
    /// away any more, and it goes on.
    RecordThenResume,
    /// The guest is the target's: QEMU is killed here.
    Yield,
    /// The guest was switched to post-copy: it goes on at the target, or is lost.
    NeverResume,
    /// Nothing may run until the object can be read or written.
    AskAgain,
}

/// The decision of the source; `status` is what its QEMU says.
pub(super) fn source(status: MigrationStatus, owner: Ownership) -> Recovery {
    match (status, owner) {
        (_, Ownership::Target) => Recovery::Yield,
        (MigrationStatus::PostCopy | MigrationStatus::PostCopyPaused, _) => Recovery::NeverResume,
        (MigrationStatus::Completed, Ownership::Unknown) => Recovery::AskAgain,
        (MigrationStatus::Completed, Ownership::Source) => Recovery::RecordThenResume,
        (
            MigrationStatus::None
            | MigrationStatus::Active
            | MigrationStatus::PreSwitchover
            | MigrationStatus::Device
            | MigrationStatus::Failed,
            Ownership::Source | Ownership::Unknown,
        ) => Recovery::Cancel,
    }
}

/// For how long the stream of a post-copy may be broken before the guest is given up.
pub(super) const STREAM_LIMIT: Duration = Duration::from_secs(60);

/// The next step of the source of a post-copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServeStep {
    /// It never began: the guest is as before, and the migration has failed.
    RollBack,
    /// The object is given to the target, once that has the state of all devices.
    HandOver,
    Wait,
    /// The stream broke: it is restored.
    Reconnect,
    /// Nothing is left to send, or no target to send it to: QEMU is killed here.
    End,
    /// The guest is still this node's, and cannot go on here nor there.
    Lost,
}

/// The decision of the source. `is_over` says that the object has seen the end of the migration.
pub(super) fn serve(
    status: MigrationStatus,
    owner: Ownership,
    is_over: bool,
    broken_for: Duration,
) -> ServeStep {
    use MigrationStatus as Status;
    match (owner, status) {
        (
            Ownership::Source | Ownership::Unknown,
            Status::None | Status::Active | Status::PreSwitchover,
        ) => ServeStep::RollBack,
        (Ownership::Source | Ownership::Unknown, Status::Failed) => ServeStep::Lost,
        (Ownership::Source | Ownership::Unknown, _) if is_over => ServeStep::Lost,
        (Ownership::Unknown, _) | (Ownership::Source, Status::Device) => ServeStep::Wait,
        (Ownership::Source, Status::PostCopyPaused) if broken_for >= STREAM_LIMIT => {
            ServeStep::Lost
        }
        (Ownership::Source, Status::PostCopy | Status::PostCopyPaused | Status::Completed) => {
            ServeStep::HandOver
        }
        (Ownership::Target, _) if is_over => ServeStep::End,
        (Ownership::Target, Status::Device | Status::PostCopy) => ServeStep::Wait,
        (Ownership::Target, Status::PostCopyPaused) if broken_for < STREAM_LIMIT => {
            ServeStep::Reconnect
        }
        (Ownership::Target, _) => ServeStep::End,
    }
}

/// The next step of the target of a post-copy, whose guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeStep {
    Wait,
    /// All memory is here.
    Complete,
    /// The stream was not restored within this time: the guest misses memory.
    Lost(Duration),
}

/// The decision of the target.
pub(super) fn take(status: MigrationStatus, broken_for: Duration) -> TakeStep {
    match status {
        MigrationStatus::Completed => TakeStep::Complete,
        MigrationStatus::Failed => TakeStep::Lost(broken_for),
        MigrationStatus::PostCopyPaused if broken_for >= STREAM_LIMIT => {
            TakeStep::Lost(STREAM_LIMIT)
        }
        MigrationStatus::None
        | MigrationStatus::Active
        | MigrationStatus::PreSwitchover
        | MigrationStatus::Device
        | MigrationStatus::PostCopy
        | MigrationStatus::PostCopyPaused => TakeStep::Wait,
    }
}

/// The target's action on a guest that has not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The guest is this node's.
    Arrived,
    /// It will not come: QEMU is killed here.
    Abandoned,
    Undecided,
}

/// The decision of the target `node` about `migration`.
pub(super) fn target(
    owner: &str,
    state: &VirtualMachineInstanceMigrationState,
    node: &str,
    migration: &str,
) -> Verdict {
    if owner == node {
        return Verdict::Arrived;
    }
    let is_same = state.migration_uid.as_deref() == Some(migration);
    let is_over = state.completed == Some(true) || state.failed == Some(true);
    if is_same && !is_over { Verdict::Undecided } else { Verdict::Abandoned }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_goes_on_where_the_object_says_and_never_on_two_nodes() {
        use MigrationStatus as Status;
        let table = [
            // Before the switch, anything: the guest is the source's.
            (Status::None, Ownership::Source, Recovery::Cancel),
            (Status::Active, Ownership::Source, Recovery::Cancel),
            (Status::PreSwitchover, Ownership::Source, Recovery::Cancel),
            (Status::Device, Ownership::Source, Recovery::Cancel),
            // The target's QEMU died: the source's goes on by itself.
            (Status::Failed, Ownership::Source, Recovery::Cancel),
            // Nothing was given away before the source completed.
            (Status::Failed, Ownership::Unknown, Recovery::Cancel),
            // Both are paused: a write decides.
            (Status::Completed, Ownership::Source, Recovery::RecordThenResume),
            (Status::Completed, Ownership::Unknown, Recovery::AskAgain),
            (Status::Completed, Ownership::Target, Recovery::Yield),
            // Post-copy: the source is not resumed, independent of the object.
            (Status::PostCopy, Ownership::Source, Recovery::NeverResume),
            (Status::PostCopyPaused, Ownership::Source, Recovery::NeverResume),
            (Status::PostCopy, Ownership::Unknown, Recovery::NeverResume),
            // The agent was started again after the hand-over.
            (Status::None, Ownership::Target, Recovery::Yield),
        ];
        for (status, owner, expected) in table {
            assert_eq!(source(status, owner), expected, "{status:?} {owner:?}");
        }
    }

    #[test]
    fn the_source_of_a_post_copy_serves_memory_and_never_runs_the_guest() {
        use MigrationStatus as Status;
        let (soon, late) = (Duration::from_secs(1), STREAM_LIMIT);
        for (status, owner, is_over, broken, expected) in [
            // The agent was killed after its note, before QEMU was ordered to switch.
            (Status::PreSwitchover, Ownership::Source, false, soon, ServeStep::RollBack),
            (Status::Active, Ownership::Source, false, soon, ServeStep::RollBack),
            (Status::None, Ownership::Source, false, soon, ServeStep::RollBack),
            // The point of no return.
            (Status::PostCopy, Ownership::Source, false, soon, ServeStep::HandOver),
            (Status::PostCopyPaused, Ownership::Source, false, soon, ServeStep::HandOver),
            // The target does not say that it has the devices, and it cannot be queried.
            (Status::PostCopyPaused, Ownership::Source, false, late, ServeStep::Lost),
            // The rest was so small that it was sent as in pre-copy.
            (Status::Device, Ownership::Source, false, soon, ServeStep::Wait),
            (Status::Completed, Ownership::Source, false, soon, ServeStep::HandOver),
            (Status::PostCopy, Ownership::Source, true, soon, ServeStep::Lost),
            (Status::Failed, Ownership::Source, false, soon, ServeStep::Lost),
            // The guest runs at the target.
            (Status::PostCopy, Ownership::Target, false, soon, ServeStep::Wait),
            (Status::PostCopyPaused, Ownership::Target, false, soon, ServeStep::Reconnect),
            (Status::PostCopyPaused, Ownership::Target, false, late, ServeStep::End),
            (Status::PostCopyPaused, Ownership::Target, true, soon, ServeStep::End),
            (Status::Completed, Ownership::Target, false, soon, ServeStep::End),
            (Status::Failed, Ownership::Target, false, soon, ServeStep::End),
        ] {
            let step = serve(status, owner, is_over, broken);
            assert_eq!(step, expected, "{status:?} {owner:?} {is_over}");
        }
    }

    #[test]
    fn the_target_of_a_post_copy_gives_up_a_guest_without_memory() {
        use MigrationStatus as Status;
        let (soon, late) = (Duration::from_secs(1), STREAM_LIMIT);
        for (status, broken, expected) in [
            (Status::PostCopy, soon, TakeStep::Wait),
            (Status::PostCopyPaused, soon, TakeStep::Wait),
            (Status::PostCopyPaused, late, TakeStep::Lost(STREAM_LIMIT)),
            (Status::Completed, soon, TakeStep::Complete),
            (Status::Failed, soon, TakeStep::Lost(soon)),
        ] {
            assert_eq!(take(status, broken), expected, "{status:?}");
        }
    }

    #[test]
    fn the_target_waits_until_the_object_decides() {
        let state = |uid: &str, completed, failed| VirtualMachineInstanceMigrationState {
            migration_uid: Some(uid.into()),
            completed,
            failed,
            ..VirtualMachineInstanceMigrationState::default()
        };
        for (owner, state, expected) in [
            ("a", state("m", None, None), Verdict::Undecided),
            ("b", state("m", Some(true), None), Verdict::Arrived),
            ("a", state("m", None, Some(true)), Verdict::Abandoned),
            ("a", state("n", None, None), Verdict::Abandoned),
            // Another node got it meanwhile.
            ("c", state("m", Some(true), None), Verdict::Abandoned),
            ("", VirtualMachineInstanceMigrationState::default(), Verdict::Abandoned),
        ] {
            assert_eq!(target(owner, &state, "b", "m"), expected, "{owner} {state:?}");
        }
    }
}
