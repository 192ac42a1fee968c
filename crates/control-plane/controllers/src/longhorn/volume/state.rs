//! The state of a volume, and how sound its data is.
//!
//! ```text
//!            made            wanted             runs
//!  Creating ──────► Detached ──────► Attaching ──────► Attached
//!                      ▲                 │                 │
//!                      │ all is still    │ unwanted, or    │
//!                      └──── Detaching ◄─┴─ elsewhere ─────┘
//!
//!  any ── deletion ──► Deleting
//! ```
//!
//! [`State::next`] is the only way a volume changes state. An engine that fails is no reason to
//! detach: its node brings it up again, and the machine above it only waits.

/// The state of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeState {
    Creating,
    Detached,
    Attaching,
    Attached,
    Detaching,
    Deleting,
}

/// An engine or a replica, as reported by its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instance {
    /// Its node has said nothing yet.
    Unmade,
    Stopped,
    Running,
    /// On its way between the two.
    Moving,
    Error,
    Unknown,
}

impl Instance {
    pub(super) fn read(text: &str) -> Self {
        match text {
            "" => Self::Unmade,
            "stopped" => Self::Stopped,
            "running" => Self::Running,
            "starting" | "stopping" => Self::Moving,
            "error" => Self::Error,
            _ => Self::Unknown,
        }
    }

    /// Nothing of it is at work.
    pub(super) fn is_still(self) -> bool {
        matches!(self, Self::Unmade | Self::Stopped)
    }
}

/// The facts that decide about the next state.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeFacts<'a> {
    pub(super) deleting: bool,
    /// There is an engine.
    pub(super) made: bool,
    /// The node where it is to be attached.
    pub(super) wanted: Option<&'a str>,
    pub(super) engine: Instance,
    /// The node of the engine, empty while it has none.
    pub(super) engine_node: &'a str,
    /// Neither the engine nor a replica is at work.
    pub(super) still: bool,
}

impl VolumeState {
    /// A text that is not known is that of a volume that was not reconciled yet.
    pub(super) fn read(text: &str) -> Self {
        match text {
            "detached" => Self::Detached,
            "attaching" => Self::Attaching,
            "attached" => Self::Attached,
            "detaching" => Self::Detaching,
            "deleting" => Self::Deleting,
            _ => Self::Creating,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Detached => "detached",
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Detaching => "detaching",
            Self::Deleting => "deleting",
        }
    }

    /// It is to be used, and its instances are to run.
    pub(super) fn is_up(self) -> bool {
        matches!(self, Self::Attaching | Self::Attached)
    }

    /// One step; the same state when nothing leads out of it.
    pub(super) fn next(self, facts: VolumeFacts<'_>) -> Self {
        if facts.deleting {
            return Self::Deleting;
        }
        let free = facts.engine_node.is_empty();
        let here = facts.wanted.is_some_and(|node| free || node == facts.engine_node);
        match self {
            Self::Creating if facts.made => Self::Detached,
            Self::Detached if facts.wanted.is_some() => Self::Attaching,
            Self::Attaching | Self::Attached if !here => Self::Detaching,
            Self::Attaching if !free && facts.engine == Instance::Running => Self::Attached,
            Self::Detaching if facts.still => Self::Detached,
            state => state,
        }
    }
}

/// How sound the data of a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Robustness {
    Unknown,
    Healthy,
    Degraded,
    Faulted,
}

/// Copies of a volume, by what they are good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Copies {
    /// How many there should be.
    pub(super) wanted: usize,
    /// In sync, as reported by the engine.
    pub(super) sound: usize,
    /// The engine gave them up.
    pub(super) lost: usize,
    /// Known to have all data, and not failed since.
    pub(super) kept: usize,
    /// Failed, or not built yet.
    pub(super) other: usize,
}

impl Robustness {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Faulted => "faulted",
        }
    }

    /// Unknown for a detached volume; but one whose copies all failed is lost when detached too.
    pub(super) fn of(state: VolumeState, engine: Instance, copies: Copies) -> Self {
        if state != VolumeState::Attached {
            let lost = copies.kept == 0 && copies.other > 0 && state != VolumeState::Creating;
            return if lost { Self::Faulted } else { Self::Unknown };
        }
        match copies {
            _ if engine != Instance::Running => Self::Unknown,
            Copies { sound, wanted, .. } if sound > 0 && sound >= wanted => Self::Healthy,
            Copies { sound, .. } if sound > 0 => Self::Degraded,
            Copies { lost, .. } if lost > 0 => Self::Faulted,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> VolumeFacts<'static> {
        VolumeFacts {
            deleting: false,
            made: true,
            wanted: Some("one"),
            engine: Instance::Running,
            engine_node: "one",
            still: false,
        }
    }

    #[test]
    fn every_way_between_states() {
        use VolumeState::{Attached, Attaching, Creating, Deleting, Detached, Detaching};
        let unwanted = VolumeFacts { wanted: None, ..facts() };
        let elsewhere = VolumeFacts { wanted: Some("two"), ..facts() };
        let failed = VolumeFacts { engine: Instance::Error, ..facts() };
        let silent = VolumeFacts { engine: Instance::Unknown, ..facts() };
        let still = VolumeFacts {
            wanted: None,
            still: true,
            engine: Instance::Stopped,
            engine_node: "",
            ..facts()
        };
        for (from, facts, to) in [
            (Creating, VolumeFacts { made: false, ..facts() }, Creating),
            (Creating, facts(), Detached),
            (Detached, still, Detached),
            (Detached, facts(), Attaching),
            (Attaching, VolumeFacts { engine: Instance::Moving, ..facts() }, Attaching),
            (Attaching, VolumeFacts { engine_node: "", ..facts() }, Attaching),
            (Attaching, facts(), Attached),
            (Attaching, unwanted, Detaching),
            (Attaching, failed, Attaching),
            (Attached, facts(), Attached),
            (Attached, failed, Attached),
            (Attached, silent, Attached),
            (Attached, unwanted, Detaching),
            (Attached, elsewhere, Detaching),
            (Detaching, facts(), Detaching),
            (Detaching, still, Detached),
            (Attached, VolumeFacts { deleting: true, ..facts() }, Deleting),
            (Deleting, VolumeFacts { deleting: true, ..facts() }, Deleting),
        ] {
            assert_eq!(from.next(facts), to, "from {from:?} with {facts:?}");
        }
    }

    #[test]
    fn states_are_read_as_they_are_written() {
        for state in [
            VolumeState::Creating,
            VolumeState::Detached,
            VolumeState::Attaching,
            VolumeState::Attached,
            VolumeState::Detaching,
            VolumeState::Deleting,
        ] {
            assert_eq!(VolumeState::read(state.text()), state);
        }
        assert_eq!(VolumeState::read(""), VolumeState::Creating);
    }

    #[test]
    fn soundness_follows_the_copies() {
        let copies = |wanted, sound, lost| Copies { wanted, sound, lost, kept: sound, other: lost };
        for (state, engine, copies, expected) in [
            (VolumeState::Attached, Instance::Running, copies(1, 1, 0), Robustness::Healthy),
            (VolumeState::Attached, Instance::Running, copies(2, 3, 0), Robustness::Healthy),
            (VolumeState::Attached, Instance::Running, copies(3, 1, 1), Robustness::Degraded),
            (VolumeState::Attached, Instance::Running, copies(3, 0, 3), Robustness::Faulted),
            (VolumeState::Attached, Instance::Running, copies(3, 0, 0), Robustness::Unknown),
            (VolumeState::Attached, Instance::Error, copies(1, 1, 0), Robustness::Unknown),
            (VolumeState::Attaching, Instance::Moving, copies(1, 1, 0), Robustness::Unknown),
            (VolumeState::Detached, Instance::Stopped, copies(1, 1, 1), Robustness::Unknown),
            (VolumeState::Detached, Instance::Stopped, copies(1, 0, 2), Robustness::Faulted),
            (VolumeState::Detached, Instance::Stopped, copies(1, 0, 0), Robustness::Unknown),
        ] {
            assert_eq!(Robustness::of(state, engine, copies), expected, "{state:?} {copies:?}");
        }
    }
}
