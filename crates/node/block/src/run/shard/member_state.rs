//! The state of a replica of a volume that is served, as users and controllers see it. Pure.
//!
//! A replica that is not connected is not given up at once: the engine connects again by itself,
//! and brings a short absence up to date by a delta rebuild. It is `away` only after
//! [`CONNECT_TIMEOUT`], and controllers create another replica then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;
use crate::run::stream::Address;
use crate::wire::WorkProgress;

/// How long the engine tries to connect before a replica counts as away: more than a replica's
/// node takes to learn that the engine may connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    #[serde(rename = "in-sync")]
    InSync,
    /// In sync as the volume's record says, which changes if it does not come back.
    #[serde(rename = "in-sync, not connected")]
    Disconnected,
    /// Is rebuilt.
    #[serde(rename = "learner")]
    Learner,
    /// Was added or lost a moment ago.
    #[serde(rename = "connecting")]
    Connecting,
    #[serde(rename = "away", other)]
    Away,
}

/// A replica of a volume that is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    pub id: ReplicaId,
    pub state: MemberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_bytes: Option<u64>,
    pub latency_micros: u64,
    /// Where it is connected, if it is on another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Of its disk, and what it takes of it.
    #[serde(default)]
    pub free_bytes: u64,
    #[serde(default)]
    pub used_bytes: u64,
    /// Merging of removed snapshots, or copying of a base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkProgress>,
    /// Why it could not be rebuilt the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The facts that decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberFacts {
    pub(super) in_sync: bool,
    pub(super) is_rebuilt: bool,
    pub(super) is_connected: bool,
    /// The last rebuild failed.
    pub(super) has_failed: bool,
    /// Time since it was added, or since it left the replicas in sync.
    pub(super) absent_for: Duration,
}

impl MemberState {
    pub(super) fn of(facts: MemberFacts) -> Self {
        match facts {
            MemberFacts { is_rebuilt: true, .. } => Self::Learner,
            MemberFacts { in_sync: true, is_connected: true, .. } => Self::InSync,
            MemberFacts { in_sync: true, .. } => Self::Disconnected,
            MemberFacts { has_failed: true, .. } => Self::Away,
            MemberFacts { absent_for, .. } if absent_for < CONNECT_TIMEOUT => Self::Connecting,
            MemberFacts { .. } => Self::Away,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in-sync",
            Self::Disconnected => "in-sync, not connected",
            Self::Learner => "learner",
            Self::Connecting => "connecting",
            Self::Away => "away",
        }
    }

    /// Whether the volume's record names it among the replicas in sync.
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::InSync | Self::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_away_only_after_a_while() {
        let absent = |seconds, has_failed| MemberFacts {
            in_sync: false,
            is_rebuilt: false,
            is_connected: false,
            has_failed,
            absent_for: Duration::from_secs(seconds),
        };
        let new = absent(0, false);
        for (what, facts, expected) in [
            ("was added", new, MemberState::Connecting),
            (
                "waits for its grant",
                MemberFacts { is_connected: true, ..new },
                MemberState::Connecting,
            ),
            ("does not come", absent(10, false), MemberState::Away),
            ("cannot be rebuilt", absent(0, true), MemberState::Away),
            ("is rebuilt", MemberFacts { is_rebuilt: true, ..new }, MemberState::Learner),
            (
                "is in sync",
                MemberFacts { in_sync: true, is_connected: true, ..absent(60, false) },
                MemberState::InSync,
            ),
            (
                "lost its connection",
                MemberFacts { in_sync: true, ..new },
                MemberState::Disconnected,
            ),
        ] {
            assert_eq!(MemberState::of(facts), expected, "{what}");
        }
    }

    #[test]
    fn states_of_other_versions_are_read() {
        for state in [
            MemberState::InSync,
            MemberState::Disconnected,
            MemberState::Learner,
            MemberState::Connecting,
            MemberState::Away,
        ] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(text, format!("{:?}", state.as_str()));
            assert_eq!(serde_json::from_str::<MemberState>(&text).unwrap(), state);
        }
        let later: MemberState = serde_json::from_str("\"of a later version\"").unwrap();
        assert_eq!(later, MemberState::Away);
    }
}
