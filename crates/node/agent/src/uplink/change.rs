//! Which units of the host's network are wanted, and what becomes of a change on trial. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use hci::host_network::{ChangePolicy, ConfirmMode, TrialReport};
use net::{
    AddressOrigin, Confirmation, HealthRound, HostChange, HostRecord, HostUnit, LinkName,
    PingTarget, Trial, TrialEvent, TrialState,
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
    pub(super) peers: Vec<PingTarget>,
    /// A node that rolled back what one of its interfaces is to become.
    pub(super) rolled_back_on: Option<String>,
}

impl WantedUnit {
    fn new(unit: HostUnit, policy: ChangePolicy) -> Self {
        Self { unit, policy, peers: Vec::new(), rolled_back_on: None }
    }
}

/// All units of this node, by bridge. Parts that objects cannot express stay as they are
/// confirmed.
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
        units.insert(bridge, WantedUnit::new(unit, wanted.policy.clone()));
    }
    for wanted in interfaces {
        let Ok(interface) = &wanted.interface else { continue };
        let own = units
            .entry(interface.bridge.clone())
            .or_insert_with(|| WantedUnit::new(HostUnit::default(), wanted.policy.clone()));
        own.unit.interfaces.push(interface.clone());
        own.unit.revision += &format!(";{}", wanted.revision);
        own.peers.extend(wanted.peers.iter().cloned());
        own.rolled_back_on = own.rolled_back_on.take().or_else(|| wanted.rolled_back_on.clone());
        // The more careful one of several.
        if wanted.policy.mode == ConfirmMode::Manual {
            own.policy = wanted.policy.clone();
        }
    }
    units
}

/// Other nodes of which one must answer on each interface: on those that a change adds or gives another
/// address, and on those where one answers before the change.
pub(super) fn new_path(
    change: &HostChange,
    confirmed: Option<&HostUnit>,
    peers: &[PingTarget],
    before: &HealthRound,
) -> Vec<PingTarget> {
    let interface = |unit: Option<&HostUnit>, link: &LinkName| {
        let all = unit.map(|unit| unit.interfaces.as_slice()).unwrap_or_default();
        all.iter().find(|own| own.link == *link).cloned()
    };
    let is_new =
        |link: &LinkName| interface(change.unit.as_ref(), link) != interface(confirmed, link);
    let answers =
        |link: &LinkName| before.answered.iter().any(|own| own.link.as_ref() == Some(link));
    let counts =
        |peer: &&PingTarget| peer.link.as_ref().is_some_and(|link| is_new(link) || answers(link));
    peers.iter().filter(counts).cloned().collect()
}

/// The facts for the next step of a trial.
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

/// The event of a trial that began in another boot.
pub(super) fn interrupted_by_boot() -> TrialEvent {
    TrialEvent::Interrupted("the host was restarted before the change was confirmed".to_owned())
}

pub(super) fn step(trial: &Trial, facts: &TrialFacts<'_>) -> TrialStep {
    if matches!(trial.state, TrialState::RollingBack { .. }) {
        return TrialStep::Restore;
    }
    if trial.boot != facts.boot {
        return TrialStep::RollBack(interrupted_by_boot());
    }
    // Steps are carried out in one go: this state is only found after an interruption.
    if trial.state == TrialState::Applying {
        let why = "the server was interrupted while the change was applied";
        return TrialStep::RollBack(TrialEvent::Interrupted(why.to_owned()));
    }
    if !facts.is_wanted {
        return TrialStep::RollBack(TrialEvent::Withdrawn);
    }
    if facts.now >= trial.deadline {
        return TrialStep::RollBack(TrialEvent::Late("it was not confirmed".to_owned()));
    }
    let is_settled = facts.healthy_for.is_some_and(|time| time >= SETTLED);
    let is_confirmed = facts.confirmed == Some(trial.id);
    if is_confirmed || is_settled && trial.confirmation == Confirmation::Auto {
        return TrialStep::Confirm;
    }
    TrialStep::Check
}

/// Why the interfaces of a trial are not complete: one that asks for an address has none.
pub(super) fn unleased(trial: &Trial) -> Option<String> {
    let interfaces = trial.change.unit.iter().flat_map(|unit| &unit.interfaces);
    let mut waiting =
        interfaces.filter(|own| own.origin == AddressOrigin::Dhcp && own.addresses.is_empty());
    waiting.next().map(|own| format!("no DHCP server has given {} an address", own.link))
}

/// The condition that says what became of a change: its status, reason and message.
pub(super) fn applied(
    record: &HostRecord,
    bridge: &LinkName,
    unit: Option<&HostUnit>,
    waiting: Option<&str>,
    problems: &[String],
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
        None if !problems.is_empty() => ("False", "Incomplete", problems.join("; ")),
        None => ("True", "Confirmed", String::new()),
    }
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(base::clock::rfc3339).unwrap_or_default()
}

/// The report of a trial in the Node.
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
    use net::{HostInterface, NewTrial, TrialChecks};

    use super::*;

    fn record(confirmation: Confirmation) -> HostRecord {
        let change =
            HostChange { bridge: "lan-br".parse().unwrap(), unit: Some(HostUnit::default()) };
        let boot = "b".to_owned();
        let checks = TrialChecks::default();
        let new = NewTrial { change, confirmation, boot, deadline: 100, checks };
        HostRecord::default().on(TrialEvent::Begun(Box::new(new))).unwrap()
    }

    fn facts() -> TrialFacts<'static> {
        TrialFacts { now: 50, boot: "b", is_wanted: true, confirmed: None, healthy_for: None }
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
        assert_eq!(late, TrialEvent::Late("it was not confirmed".into()));
        let unwanted = TrialFacts { is_wanted: false, ..facts() };
        assert_eq!(roll_back(&auto, unwanted), TrialEvent::Withdrawn);
        let restarted = roll_back(&auto, TrialFacts { boot: "c", ..facts() });
        assert!(matches!(restarted, TrialEvent::Interrupted(why) if why.contains("host")));
        let applying = record(Confirmation::Auto).trial.unwrap();
        let killed = roll_back(&applying, facts());
        assert!(matches!(killed, TrialEvent::Interrupted(why) if why.contains("server")));
    }

    #[test]
    fn the_condition_reports_the_outcome_of_a_change() {
        let bridge: LinkName = "lan-br".parse().unwrap();
        let unit = HostUnit::default();
        let of = |record: &HostRecord, waiting| {
            let (status, reason, message) = applied(record, &bridge, Some(&unit), waiting, &[]);
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
        let problems = ["eth9 is missing".to_owned()];
        let (status, reason, message) =
            applied(&HostRecord::default(), &bridge, Some(&unit), None, &problems);
        assert_eq!((status, reason, message.as_str()), ("False", "Incomplete", "eth9 is missing"));
    }

    #[test]
    fn nodes_on_a_new_path_must_answer_and_others_if_they_did() {
        let interface = |number: u64, address: &str| HostInterface {
            origin: net::AddressOrigin::Static,
            link: format!("lan-br.{number}").parse().unwrap(),
            bridge: "lan-br".parse().unwrap(),
            vlan: number.try_into().unwrap(),
            addresses: vec![address.parse().unwrap()],
        };
        let unit = |interfaces: Vec<HostInterface>| HostUnit { interfaces, ..HostUnit::default() };
        let old = unit(vec![interface(10, "192.0.2.1/24"), interface(20, "198.51.100.1/24")]);
        let new = unit(vec![interface(10, "192.0.2.1/24"), interface(20, "198.51.100.9/24")]);
        let change = HostChange { bridge: "lan-br".parse().unwrap(), unit: Some(new) };
        let peer = |last: u8, link: &str| PingTarget {
            address: [192, 0, 2, last].into(),
            link: Some(link.parse().unwrap()),
        };
        let (same, other) = (peer(1, "lan-br.10"), peer(2, "lan-br.20"));
        let peers = [same.clone(), other.clone()];
        let round = |answered: &[&PingTarget]| HealthRound {
            api: None,
            answered: answered.iter().copied().cloned().collect(),
        };
        let of = |confirmed: Option<&HostUnit>, before: &HealthRound| {
            new_path(&change, confirmed, &peers, before)
        };
        assert_eq!(of(Some(&old), &round(&[])), [other]);
        assert_eq!(of(Some(&old), &round(&[&same])), peers);
        assert_eq!(of(None, &round(&[])), peers);
    }
}
