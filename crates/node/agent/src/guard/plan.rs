//! Whether a guest may execute, by the state of its volumes. Pure.

use std::path::{Path, PathBuf};

use block::storage::{StorageStatus, VolumeState};
use qemu::qmp::RunState;

/// Whether this node certainly holds a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeClaim {
    /// No other node can have it.
    Held,
    /// Another node may have it, or has it.
    Doubtful,
    /// It is being opened, or is not served: its requests wait.
    Unknown,
}

impl VolumeClaim {
    fn of(volume: &VolumeState) -> Self {
        match &volume.status {
            Some(status) if status.phase == "fenced" => Self::Doubtful,
            Some(status) if status.phase != "active" => Self::Unknown,
            Some(status) if status.unproven => Self::Doubtful,
            Some(_) => Self::Held,
            None => Self::Unknown,
        }
    }
}

/// The claims on the volumes behind these sockets.
pub(super) fn claims(status: Option<&StorageStatus>, sockets: &[PathBuf]) -> Vec<VolumeClaim> {
    let volumes = status.map_or(&[][..], |status| status.volumes.as_slice());
    let find = |socket: &Path| {
        volumes.iter().find(|volume| volume.attachment.nbd.as_deref() == Some(socket))
    };
    sockets
        .iter()
        .map(|socket| find(socket).map_or(VolumeClaim::Unknown, VolumeClaim::of))
        .collect()
}

/// The action on a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardAction {
    Nothing,
    Pause,
    Resume,
    /// A user has resumed it.
    Forget,
}

/// `is_paused`: the guard has paused it, and has not resumed it since.
pub(super) fn decide(
    claims: &[VolumeClaim],
    is_paused: bool,
    state: Option<&RunState>,
) -> GuardAction {
    let is_running = state == Some(&RunState::Running);
    let doubt = claims.contains(&VolumeClaim::Doubtful);
    let held = claims.iter().all(|claim| *claim == VolumeClaim::Held);
    match (is_paused, doubt) {
        (_, true) if is_running => GuardAction::Pause,
        (true, false) if held && is_running => GuardAction::Forget,
        (true, false) if held => GuardAction::Resume,
        _ => GuardAction::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_stands_still_while_a_volume_may_be_taken_over() {
        use GuardAction::{Forget, Nothing, Pause, Resume};
        use VolumeClaim::{Doubtful, Held, Unknown};
        let (running, paused) = (Some(RunState::Running), Some(RunState::Paused));
        for (claims, is_paused, state, expected) in [
            (&[][..], false, &running, Nothing),
            (&[Held, Held], false, &running, Nothing),
            (&[Held, Unknown], false, &running, Nothing),
            (&[Held, Doubtful], false, &running, Pause),
            // A user paused it, who may resume it.
            (&[Doubtful], false, &paused, Nothing),
            (&[Held], false, &paused, Nothing),
            (&[Doubtful], true, &paused, Nothing),
            (&[Doubtful], true, &running, Pause),
            (&[Unknown], true, &paused, Nothing),
            (&[Held], true, &paused, Resume),
            (&[Held], true, &running, Forget),
            (&[Held], true, &None, Resume),
        ] {
            let found = decide(claims, is_paused, state.as_ref());
            assert_eq!(found, expected, "{claims:?} {is_paused} {state:?}");
        }
    }
}
