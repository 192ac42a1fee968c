//! Who may run a guest when something went wrong while it moved. Pure.
//!
//! The target never runs the guest before the object names it, and the source writes that only
//! after its QEMU has completed. So before that point the guest belongs to the source for certain.

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

/// What the source does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The migration is cancelled; the guest runs, or goes on where QEMU stopped it.
    Cancel,
    /// A write that says that it failed comes first. Then no earlier write can give the guest
    /// away any more, and it goes on.
    RecordThenResume,
    /// The guest is the target's: QEMU is killed here.
    Yield,
    /// Nothing may run until the object can be read or written.
    AskAgain,
}

/// The decision of the source; `status` is what its QEMU says.
pub(super) fn source(status: MigrationStatus, owner: Ownership) -> Recovery {
    match (status, owner) {
        (_, Ownership::Target) => Recovery::Yield,
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

/// What the target does with a guest that has not arrived.
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
            // Both stand still: a write decides.
            (Status::Completed, Ownership::Source, Recovery::RecordThenResume),
            (Status::Completed, Ownership::Unknown, Recovery::AskAgain),
            (Status::Completed, Ownership::Target, Recovery::Yield),
            // The agent was started again after the hand-over.
            (Status::None, Ownership::Target, Recovery::Yield),
        ];
        for (status, owner, expected) in table {
            assert_eq!(source(status, owner), expected, "{status:?} {owner:?}");
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
