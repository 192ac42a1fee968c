//! The record of a host's network: the confirmed change, the one on trial, and those that were
//! rolled back. Pure.
//!
//! ```text
//!            Applied                   Confirmed
//!  Applying ────────► AwaitingConfirmation ─────► (confirmed)
//!     │ Failed, Late,        │ Late, Withdrawn,
//!     │ Interrupted          │ Interrupted         Restored
//!     └──────► RollingBack ◄─┘ ──────────────────► (rejected, with the reason)
//! ```
//!
//! A change concerns one bridge with its uplink and interfaces: a [`HostUnit`]. One change is on
//! trial at a time. A unit that was rolled back is not tried again until it is another one, or has
//! another revision. VLANs of guests are no part of a trial: they do not concern the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::health::{HealthRound, PingTargets};
use crate::name::LinkName;
use crate::uplink::{AddressOrigin, HostInterface, Uplink};

/// One bridge with its uplink and the host's interfaces on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUnit {
    pub uplink: Option<Uplink>,
    pub interfaces: Vec<HostInterface>,
    /// Names the request for this unit: another one is another attempt.
    pub revision: String,
}

impl HostUnit {
    /// The part that is tried: without VLANs of guests, addresses of DHCP servers, and the revision.
    fn shape(&self) -> (Option<Uplink>, Vec<HostInterface>) {
        let (mut uplink, mut interfaces) = (self.uplink.clone(), self.interfaces.clone());
        if let Some(uplink) = &mut uplink {
            uplink.vlans.clear();
        }
        for own in interfaces.iter_mut().filter(|own| own.origin == AddressOrigin::Dhcp) {
            own.addresses.clear();
        }
        (uplink, interfaces)
    }

    /// Takes the addresses of DHCP servers from another version of the unit.
    fn follow_leases(&mut self, source: &Self) {
        for own in self.interfaces.iter_mut().filter(|own| own.origin == AddressOrigin::Dhcp) {
            let same = |other: &&HostInterface| {
                other.link == own.link && other.origin == AddressOrigin::Dhcp
            };
            if let Some(other) = source.interfaces.iter().find(same) {
                own.addresses.clone_from(&other.addresses);
            }
        }
    }

    fn is_same_attempt(&self, other: &Self) -> bool {
        self.revision == other.revision && self.shape() == other.shape()
    }
}

/// How a change is confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confirmation {
    /// By checks of this node.
    #[default]
    Auto,
    /// By a person.
    Manual,
    /// It is not tried at all.
    Never,
}

/// A change of one unit; nothing instead of a unit removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChange {
    pub bridge: LinkName,
    pub unit: Option<HostUnit>,
}

/// Progress of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrialState {
    Applying,
    AwaitingConfirmation,
    RollingBack { reason: String },
}

/// The targets of the checks, and the outcome before the change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialChecks {
    pub targets: PingTargets,
    pub before: HealthRound,
}

/// A change that has to prove itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Unique on this node.
    pub id: u64,
    pub change: HostChange,
    pub confirmation: Confirmation,
    /// Names the boot of the host in which the trial began.
    pub boot: String,
    /// When it is rolled back, in seconds since 1970.
    pub deadline: i64,
    pub checks: TrialChecks,
    /// Why the last round of checks failed; empty when it passed.
    #[serde(default)]
    pub failure: String,
    pub state: TrialState,
}

/// A change before its trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTrial {
    pub change: HostChange,
    pub confirmation: Confirmation,
    pub boot: String,
    pub deadline: i64,
    pub checks: TrialChecks,
}

/// A unit that was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedUnit {
    pub unit: Option<HostUnit>,
    pub reason: String,
}

/// The network of the host as far as Sheaf changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRecord {
    /// The last trial.
    pub last_id: u64,
    pub confirmed: BTreeMap<LinkName, HostUnit>,
    pub trial: Option<Trial>,
    pub rejected: BTreeMap<LinkName, RejectedUnit>,
}

/// An event of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialEvent {
    Begun(Box<NewTrial>),
    /// All steps were carried out.
    Applied,
    /// A step failed.
    Failed(String),
    Confirmed,
    /// A round of checks ended; the text says why it failed, and is empty otherwise.
    Checked(String),
    /// The deadline has passed; the text is the reason unless a check failed.
    Late(String),
    /// The change is not wanted any more.
    Withdrawn,
    /// The host or the server was restarted meanwhile.
    Interrupted(String),
    /// The configuration that was confirmed before is in place again.
    Restored,
}

/// An event that does not fit the state of the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    #[error("a change of {bridge} is on trial already")]
    Busy { bridge: LinkName },
    #[error("no change of the host's network is on trial")]
    NoTrial,
    #[error("the change of {bridge} is already being rolled back: {reason}")]
    RollingBack { bridge: LinkName, reason: String },
    #[error("the change of {bridge} is not complete yet")]
    NotApplied { bridge: LinkName },
}

impl HostRecord {
    /// The only way that trials change.
    pub fn on(mut self, event: TrialEvent) -> Result<Self, TrialError> {
        let Some(mut trial) = self.trial.take() else {
            let TrialEvent::Begun(new) = event else { return Err(TrialError::NoTrial) };
            let NewTrial { change, confirmation, boot, deadline, checks } = *new;
            self.last_id += 1;
            let (id, failure, state) = (self.last_id, String::new(), TrialState::Applying);
            self.rejected.remove(&change.bridge);
            self.trial =
                Some(Trial { id, change, confirmation, boot, deadline, checks, failure, state });
            return Ok(self);
        };
        let bridge = trial.change.bridge.clone();
        let roll_back = |reason: String| TrialState::RollingBack { reason };
        let next = match (trial.state, event) {
            (_, TrialEvent::Begun(_)) => return Err(TrialError::Busy { bridge }),
            (TrialState::RollingBack { reason }, TrialEvent::Restored) => {
                let unit = trial.change.unit;
                self.rejected.insert(bridge, RejectedUnit { unit, reason });
                return Ok(self);
            }
            // The first reason is the cause.
            (TrialState::RollingBack { reason }, TrialEvent::Confirmed) => {
                return Err(TrialError::RollingBack { bridge, reason });
            }
            (TrialState::RollingBack { reason }, _) => roll_back(reason),
            (TrialState::Applying, TrialEvent::Applied) => TrialState::AwaitingConfirmation,
            (TrialState::AwaitingConfirmation, TrialEvent::Applied) => {
                TrialState::AwaitingConfirmation
            }
            (TrialState::AwaitingConfirmation, TrialEvent::Confirmed) => {
                self.adopt(trial.change);
                return Ok(self);
            }
            (TrialState::Applying, TrialEvent::Confirmed) | (_, TrialEvent::Restored) => {
                return Err(TrialError::NotApplied { bridge });
            }
            (_, TrialEvent::Failed(reason) | TrialEvent::Interrupted(reason)) => roll_back(reason),
            (state, TrialEvent::Checked(failure)) => {
                trial.failure = failure;
                state
            }
            (_, TrialEvent::Late(reason)) => {
                let failed = !trial.failure.is_empty();
                let reason = if failed { &trial.failure } else { &reason };
                roll_back(format!("not confirmed before its deadline: {reason}"))
            }
            (_, TrialEvent::Withdrawn) => roll_back("the change was withdrawn".to_owned()),
        };
        trial.state = next;
        self.trial = Some(trial);
        Ok(self)
    }

    /// Confirms a change without a trial.
    pub fn adopt(&mut self, change: HostChange) {
        self.rejected.remove(&change.bridge);
        match change.unit {
            Some(unit) => self.confirmed.insert(change.bridge, unit),
            None => self.confirmed.remove(&change.bridge),
        };
    }

    /// Units that have to be in place now.
    pub fn active(&self) -> BTreeMap<LinkName, HostUnit> {
        match &self.trial {
            Some(trial) if !matches!(trial.state, TrialState::RollingBack { .. }) => {
                self.with(&trial.change)
            }
            _ => self.confirmed.clone(),
        }
    }

    /// Units that are in place once a change is.
    pub fn with(&self, change: &HostChange) -> BTreeMap<LinkName, HostUnit> {
        let mut units = self.confirmed.clone();
        match &change.unit {
            Some(unit) => units.insert(change.bridge.clone(), unit.clone()),
            None => units.remove(&change.bridge),
        };
        units
    }

    /// The next change on the way to `wanted`; one that was rolled back is none.
    pub fn next(&self, wanted: &BTreeMap<LinkName, HostUnit>) -> Option<HostChange> {
        let bridges = self.confirmed.keys().chain(wanted.keys());
        let mut bridges: Vec<&LinkName> = bridges.collect();
        bridges.sort();
        bridges.dedup();
        bridges.into_iter().find_map(|bridge| {
            let (confirmed, unit) = (self.confirmed.get(bridge), wanted.get(bridge));
            let is_same = confirmed.map(HostUnit::shape) == unit.map(HostUnit::shape);
            let is_rejected = self.rejected.get(bridge).is_some_and(|own| own.is_for(unit));
            let change = HostChange { bridge: bridge.clone(), unit: unit.cloned() };
            (!is_same && !is_rejected).then_some(change)
        })
    }

    /// Whether the trial is still what is wanted.
    pub fn is_wanted(&self, wanted: &BTreeMap<LinkName, HostUnit>) -> bool {
        let Some(trial) = &self.trial else { return true };
        match (&trial.change.unit, wanted.get(&trial.change.bridge)) {
            (Some(tried), Some(unit)) => tried.shape() == unit.shape(),
            (tried, unit) => tried.is_none() && unit.is_none(),
        }
    }

    /// The reason why `unit` of a bridge was rolled back, if it was.
    pub fn rejection(&self, bridge: &LinkName, unit: Option<&HostUnit>) -> Option<&str> {
        let rejected = self.rejected.get(bridge).filter(|own| own.is_for(unit))?;
        Some(&rejected.reason)
    }

    /// Addresses of DHCP servers are those of the last boot: they have to be asked for again.
    pub fn forget_leases(&mut self) {
        let all = self.confirmed.values_mut().flat_map(|unit| &mut unit.interfaces);
        for own in all.filter(|own| own.origin == AddressOrigin::Dhcp) {
            own.addresses.clear();
        }
    }

    /// Gives the confirmed units, and that on trial, the VLANs of guests, the addresses of DHCP servers
    /// and the revisions of `wanted`; returns whether any is another now. They are in force at once.
    pub fn follow_vlans(&mut self, wanted: &BTreeMap<LinkName, HostUnit>) -> bool {
        let before = self.clone();
        let tried = self.trial.as_mut().map(|trial| &mut trial.change);
        let tried = tried.and_then(|change| Some((&change.bridge, change.unit.as_mut()?)));
        for (bridge, unit) in self.confirmed.iter_mut().chain(tried) {
            let Some(source) = wanted.get(bridge) else { continue };
            if let (Some(own), Some(uplink)) = (&mut unit.uplink, &source.uplink) {
                own.vlans.clone_from(&uplink.vlans);
            }
            unit.follow_leases(source);
            if unit.shape() == source.shape() {
                unit.revision.clone_from(&source.revision);
            }
        }
        *self != before
    }
}

impl RejectedUnit {
    fn is_for(&self, unit: Option<&HostUnit>) -> bool {
        match (&self.unit, unit) {
            (Some(own), Some(unit)) => own.is_same_attempt(unit),
            (own, unit) => own.is_none() && unit.is_none(),
        }
    }
}

/// All uplinks and interfaces of units.
pub fn host_parts(units: &BTreeMap<LinkName, HostUnit>) -> (Vec<Uplink>, Vec<HostInterface>) {
    let uplinks = units.values().filter_map(|unit| unit.uplink.clone()).collect();
    let interfaces = units.values().flat_map(|unit| unit.interfaces.clone()).collect();
    (uplinks, interfaces)
}
