//! The life cycle of a node that falls silent. Pure: one state, one transition function.
//!
//! ```text
//!            no renewal for its lease        no observer reaches it, no mass outage
//!  Alive ──────────────────────► Suspected ────────────────────────────► Lost
//!    ▲  ▲                            │                                     │
//!    │  └───── a renewal ────────────┤ an observer reaches it, or too many │ renewals, and no guest
//!    │                               ▼ are silent at once                  │ of a finished instance
//!    └────────── a renewal ───── Unreachable                               │
//!    └─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Only a lost node's machines are started elsewhere. An unreachable one may run its guests still,
//! and takes no new ones.

use std::time::Duration;

use hci::failover::{PortState, Sighting};

/// How long after the last renewal the lease is over, at the earliest: a second more than guests need
/// to be paused on a node that is cut off.
const LEAST_LEASE: Duration = Duration::from_secs(6);
/// So long before the end of its lease observers begin to probe a node.
const ASK_BEFORE: Duration = Duration::from_secs(4);
/// How long no observer may have reached a node that is declared lost. The node may have lost the
/// API long before it lost its storage peers, and only then its guests are paused: after 5 s, and
/// the second that this takes at most. The engine that takes a volume over waits 2 s for the reads
/// of the old one to end, which makes up the rest.
const UNREACHED: Duration = Duration::from_secs(4);
/// For observers to answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long an answer counts; then observers are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(4);
/// The same for a node that was reached: nothing has to be done in a hurry.
const ASK_REACHED_AGAIN: Duration = Duration::from_secs(30);
/// A node that renews its lease did so at most this long ago.
pub(crate) const RENEWED_WITHIN: Duration = Duration::from_secs(3);
/// A lost node stays lost for so long: the actions that follow from the declaration are in
/// progress.
const SETTLE: Duration = Duration::from_secs(5);

/// Why a silent node is not declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// Its agent accepts connections: it is cut off from the API only, or hangs.
    ApiOnly,
    /// Its agent is gone, and its storage serves on.
    AgentDown,
    /// Too many nodes are silent at once.
    MassOutage,
    /// It runs the control plane that judges it.
    Management,
    /// `vm-force-reset-policy` is switched off.
    PolicyOff,
}

impl Unreachable {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::ApiOnly => "ApiUnreachable",
            Self::AgentDown => "AgentDown",
            Self::MassOutage => "PartialOutage",
            Self::Management => "NodeStatusUnknown",
            Self::PolicyOff => "ForceResetDisabled",
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::ApiOnly => {
                "The node does not renew its lease, but other nodes reach it: its machines run on \
                 and are not started elsewhere."
            }
            Self::AgentDown => {
                "The agent of the node does not run, and its storage serves on: its machines run on \
                 and are not started elsewhere. Start sheaf on the node."
            }
            Self::MassOutage => {
                "More than a third of the nodes are silent at once, which is more likely a failure \
                 of the network: no machine is started elsewhere. Mark a node that is certain to be \
                 off with the taint node.kubernetes.io/out-of-service."
            }
            Self::Management => "Kubelet stopped posting node status.",
            Self::PolicyOff => {
                "The node does not renew its lease. The setting vm-force-reset-policy is disabled: \
                 its machines are not started elsewhere."
            }
        }
    }
}

/// The state of a node, as far as the controller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeLife {
    Alive,
    /// Its lease is over, or soon will be. `ask`: observers have to be asked, again perhaps.
    Suspected {
        ask: bool,
    },
    Unreachable(Unreachable),
    Lost,
}

/// All that decides about a node.
#[derive(Debug)]
pub(crate) struct NodeEvidence<'a> {
    /// Since its last renewal, as far as it counts.
    pub(crate) silence: Duration,
    /// How long its lease is valid.
    pub(crate) lease: Duration,
    /// It runs the control plane.
    pub(crate) is_management: bool,
    /// How long ago it was declared lost, if it was and is still marked so.
    pub(crate) lost_for: Option<Duration>,
    /// It was lost, and says that no guest of a finished instance runs on it.
    pub(crate) has_rejoined: bool,
    /// How long ago observers were asked in this silence.
    pub(crate) asked_for: Option<Duration>,
    /// The result of each observer; `None` before it has answered.
    pub(crate) observers: &'a [Option<Sighting>],
    /// Whether this is one of many that fell silent at once.
    pub(crate) is_mass: bool,
    /// Whether machines may be started elsewhere at all.
    pub(crate) may_restart: bool,
    /// How long a node has to be silent at least, if the settings say so.
    pub(crate) period: Option<Duration>,
}

/// The silence after which observers are asked about a node with this lease.
pub(crate) fn ask_after(lease: Duration) -> Duration {
    lease.max(LEAST_LEASE) - ASK_BEFORE
}

/// The only way a node changes its life.
pub(crate) fn transition(seen: &NodeEvidence<'_>) -> NodeLife {
    let lease = seen.lease.max(LEAST_LEASE);
    if let Some(lost_for) = seen.lost_for {
        let is_back = seen.silence <= RENEWED_WITHIN && seen.has_rejoined && lost_for >= SETTLE;
        return if is_back { NodeLife::Alive } else { NodeLife::Lost };
    }
    let may_be_lost = seen.may_restart && !seen.is_management;
    if seen.silence < ask_after(lease) || (seen.silence < lease && !may_be_lost) {
        return NodeLife::Alive;
    }
    let ask = seen.asked_for.is_none_or(|asked_for| asked_for >= ASK_AGAIN);
    if seen.silence < lease {
        return NodeLife::Suspected { ask };
    }
    if seen.is_management {
        return NodeLife::Unreachable(Unreachable::Management);
    }
    if !seen.may_restart {
        return NodeLife::Unreachable(Unreachable::PolicyOff);
    }
    if seen.is_mass {
        return NodeLife::Unreachable(Unreachable::MassOutage);
    }
    let Some(asked_for) = seen.asked_for else { return NodeLife::Suspected { ask: true } };
    let least = seen.period.unwrap_or_default().max(lease + ANSWER_TIME);
    // A node that was reached before its lease was over may have died since.
    let is_late = seen.silence.saturating_sub(asked_for) >= lease;
    match verdict(seen.observers) {
        Verdict::Reached(how) if is_late && asked_for < ASK_REACHED_AGAIN => {
            NodeLife::Unreachable(how)
        }
        // Results of observers are valid for a while only.
        _ if ask => NodeLife::Suspected { ask },
        Verdict::Dead if seen.silence >= least => NodeLife::Lost,
        _ => NodeLife::Suspected { ask: false },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Not all have answered, or failed to reach it for long enough.
    Open,
    Reached(Unreachable),
    Dead,
}

/// One observer that reaches the node is enough to leave it alone. It is dead if all have failed for
/// long enough. A host that refuses both connections runs neither the agent nor the storage: its
/// guests have no disks.
fn verdict(observers: &[Option<Sighting>]) -> Verdict {
    let mut seen = observers.iter().flatten();
    if seen.clone().any(|own| own.agent == PortState::Open) {
        return Verdict::Reached(Unreachable::ApiOnly);
    }
    if seen.any(|own| own.storage == PortState::Open) {
        return Verdict::Reached(Unreachable::AgentDown);
    }
    let is_long = |own: &Sighting| own.unreached.is_none_or(|it| it >= UNREACHED.as_secs());
    let failed = |own: &Option<Sighting>| own.as_ref().is_some_and(is_long);
    let complete = !observers.is_empty() && observers.iter().all(failed);
    if complete { Verdict::Dead } else { Verdict::Open }
}

/// Whether so many of all nodes being silent at once is more likely the network's failure: more than
/// a third, and at least two.
pub(crate) fn is_mass_outage(silent: usize, all: usize) -> bool {
    silent >= 2 && silent * 3 > all
}

#[cfg(test)]
mod tests;
