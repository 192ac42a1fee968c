//! Which units of the host's network are wanted, and what becomes of a change on trial. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use hci::host_network::{ChangePolicy, ConfirmMode, TrialReport};
use net::{
    Confirmation, HostRecord, HostUnit, LinkName, PingTarget, Trial, TrialEvent, TrialState,
};

use super::interface::WantedInterface;
use super::plan::WantedUplink;

/// How long all checks must pass without a break.
const SETTLED: Duration = Duration::from_secs(10);

/// A unit with what its objects say about trials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedUnit {
    pub(super) unit: HostUnit,
    pub(super) policy: ChangePolicy,
    /// Other nodes in the VLANs of its interfaces.
    pub(super) new_path: Vec<PingTarget>,
}

/// All units of this node, by bridge. What objects cannot say stays as it is confirmed.
pub(super) fn units(
    uplinks: &[WantedUplink],
    interfaces: &[WantedInterface],
    record: &HostRecord,
) -> BTreeMap<LinkName, WantedUnit> {
    let mut units: BTreeMap<LinkName, WantedUnit> = BTreeMap::new();
    for wanted in uplinks {
        let Some(bridge) = wanted.bridge() else { continue };
        let kept = || record.confirmed.get(&bridge).and_then(|unit| unit.uplink.clone());
        let Some(uplink) = wanted.uplink.clone().ok().or_else(kept) else { continue };
        let unit = HostUnit {
            uplink: Some(uplink),
            interfaces: Vec::new(),
            revision: wanted.revision.clone(),
        };
        let policy = wanted.policy.clone();
        units.insert(bridge, WantedUnit { unit, policy, new_path: Vec::new() });
    }
    for wanted in interfaces {
        let Ok(interface) = &wanted.interface else { continue };
        let own = units.entry(interface.bridge.clone()).or_insert_with(|| WantedUnit {
            unit: HostUnit::default(),
            policy: wanted.policy.clone(),
            new_path: Vec::new(),
        });
        own.unit.interfaces.push(interface.clone());
        own.unit.revision += &format!(";{}", wanted.revision);
        own.new_path.extend(wanted.peers.iter().cloned());
        // The more careful one of several.
        if wanted.policy.mode == ConfirmMode::Manual {
            own.policy = wanted.policy.clone();
        }
    }
    units
}

/// What is known when a trial is looked at.
#[derive(Debug, Clone)]
pub(super) struct TrialFacts<'a> {
    /// In seconds since 1970.
    pub(super) now: i64,
    pub(super) boot: &'a str,
    pub(super) is_wanted: bool,
    /// The trial that a person confirmed.
    pub(super) confirmed: Option<u64>,
    /// How long all checks have passed without a break.
    pub(super) healthy_for: Option<Duration>,
    pub(super) failure: &'a str,
}

/// The next thing to do about a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrialStep {
    Confirm,
    /// Note the event and restore what was confirmed.
    RollBack(TrialEvent),
    /// Restore what was confirmed; the reason is noted already.
    Restore,
    Check,
}

pub(super) fn step(trial: &Trial, facts: &TrialFacts<'_>) -> TrialStep {
    if matches!(trial.state, TrialState::RollingBack { .. }) {
        return TrialStep::Restore;
    }
    if trial.boot != facts.boot {
        let why = "the host was restarted before the change was confirmed";
        return TrialStep::RollBack(TrialEvent::Interrupted(why.to_owned()));
    }
    // Steps are carried out in one go: whoever finds this state finds what was interrupted.
    if trial.state == TrialState::Applying {
        let why = "the server was interrupted while the change was applied";
        return TrialStep::RollBack(TrialEvent::Interrupted(why.to_owned()));
    }
    if !facts.is_wanted {
        return TrialStep::RollBack(TrialEvent::Withdrawn);
    }
    if facts.now >= trial.deadline {
        return TrialStep::RollBack(TrialEvent::Late(facts.failure.to_owned()));
    }
    let is_settled = facts.healthy_for.is_some_and(|time| time >= SETTLED);
    let is_confirmed = facts.confirmed == Some(trial.id);
    if is_confirmed || is_settled && trial.confirmation == Confirmation::Auto {
        return TrialStep::Confirm;
    }
    TrialStep::Check
}

/// The condition that says what became of a change: its status, reason and message.
pub(super) fn applied(
    record: &HostRecord,
    bridge: &LinkName,
    unit: Option<&HostUnit>,
    waiting: Option<&str>,
) -> (&'static str, &'static str, String) {
    if let Some(trial) = record.trial.as_ref().filter(|trial| trial.change.bridge == *bridge) {
        return match &trial.state {
            TrialState::Applying => ("Unknown", "Applying", String::new()),
            TrialState::AwaitingConfirmation => {
                let until = time(trial.deadline);
                (
                    "Unknown",
                    "AwaitingConfirmation",
                    format!("trial {} is rolled back at {until} unless it is confirmed", trial.id),
                )
            }
            TrialState::RollingBack { reason } => ("False", "RollingBack", reason.clone()),
        };
    }
    if let Some(reason) = record.rejection(bridge, unit) {
        return ("False", "RolledBack", reason.to_owned());
    }
    match waiting {
        Some(why) => ("False", "Waiting", why.to_owned()),
        None => ("True", "Confirmed", String::new()),
    }
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(base::clock::rfc3339).unwrap_or_default()
}

/// What the Node shows of a trial.
pub(super) fn report(trial: &Trial) -> TrialReport {
    let state = match &trial.state {
        TrialState::Applying => "Applying",
        TrialState::AwaitingConfirmation => "AwaitingConfirmation",
        TrialState::RollingBack { .. } => "RollingBack",
    };
    let bridge = trial.change.bridge.as_str();
    TrialReport {
        id: trial.id,
        cluster_network: hci::network::network_of(bridge).unwrap_or(bridge).to_owned(),
        state: state.to_owned(),
        mode: match trial.confirmation {
            Confirmation::Auto => ConfirmMode::Auto,
            Confirmation::Manual => ConfirmMode::Manual,
            Confirmation::Never => ConfirmMode::Never,
        },
        deadline: trial.deadline,
    }
}

#[cfg(test)]
mod tests {
    use net::{HostChange, NewTrial, TrialChecks};

    use super::*;

    fn record(confirmation: Confirmation) -> HostRecord {
        let change =
            HostChange { bridge: "lan-br".parse().unwrap(), unit: Some(HostUnit::default()) };
        let boot = "b".to_owned();
        let checks = TrialChecks::default();
        let new = NewTrial { change, confirmation, boot, deadline: 100, checks };
        HostRecord::default().on(TrialEvent::Begun(new)).unwrap()
    }

    fn facts() -> TrialFacts<'static> {
        TrialFacts {
            now: 50,
            boot: "b",
            is_wanted: true,
            confirmed: None,
            healthy_for: None,
            failure: "no answer",
        }
    }

    #[test]
    fn a_trial_ends_for_one_of_these_reasons() {
        let awaiting = |mode| record(mode).on(TrialEvent::Applied).unwrap().trial.unwrap();
        let (auto, manual) = (awaiting(Confirmation::Auto), awaiting(Confirmation::Manual));
        let healthy = || TrialFacts { healthy_for: Some(SETTLED), ..facts() };
        assert_eq!(step(&auto, &facts()), TrialStep::Check);
        assert_eq!(step(&auto, &healthy()), TrialStep::Confirm);
        assert_eq!(step(&manual, &healthy()), TrialStep::Check);
        assert_eq!(
            step(&manual, &TrialFacts { confirmed: Some(1), ..facts() }),
            TrialStep::Confirm
        );
        let other = TrialFacts { confirmed: Some(7), ..facts() };
        assert_eq!(step(&manual, &other), TrialStep::Check, "an earlier trial was confirmed");
        let roll_back = |trial: &Trial, facts: TrialFacts<'_>| match step(trial, &facts) {
            TrialStep::RollBack(event) => event,
            other => panic!("{other:?}"),
        };
        let late = roll_back(&auto, TrialFacts { now: 100, ..healthy() });
        assert_eq!(late, TrialEvent::Late("no answer".into()));
        let unwanted = TrialFacts { is_wanted: false, ..facts() };
        assert_eq!(roll_back(&auto, unwanted), TrialEvent::Withdrawn);
        let restarted = roll_back(&auto, TrialFacts { boot: "c", ..facts() });
        assert!(matches!(restarted, TrialEvent::Interrupted(why) if why.contains("host")));
        let applying = record(Confirmation::Auto).trial.unwrap();
        let killed = roll_back(&applying, facts());
        assert!(matches!(killed, TrialEvent::Interrupted(why) if why.contains("server")));
    }

    #[test]
    fn the_condition_tells_what_became_of_a_change() {
        let bridge: LinkName = "lan-br".parse().unwrap();
        let unit = HostUnit::default();
        let of = |record: &HostRecord, waiting| {
            let (status, reason, message) = applied(record, &bridge, Some(&unit), waiting);
            format!("{status} {reason} {message}")
        };
        let record = record(Confirmation::Auto).on(TrialEvent::Applied).unwrap();
        assert!(of(&record, None).contains("rolled back at 1970-01-01T00:01:40Z"));
        let record = record.on(TrialEvent::Late("x".into())).unwrap();
        assert!(of(&record, None).starts_with("False RollingBack"));
        let record = record.on(TrialEvent::Restored).unwrap();
        let text = of(&record, None);
        assert_eq!(text, "False RolledBack not confirmed before its deadline: x");
        assert_eq!(
            of(&HostRecord::default(), Some("n1 has its turn")),
            "False Waiting n1 has its turn"
        );
        assert_eq!(of(&HostRecord::default(), None), "True Confirmed ");
    }
}
