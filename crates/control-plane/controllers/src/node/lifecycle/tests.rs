use super::*;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn saw(agent: PortState, storage: PortState) -> Option<Sighting> {
    Some(Sighting { token: "t".into(), agent, storage, unreached: Some(4) })
}

fn silent(silence: u64, observers: &[Option<Sighting>]) -> NodeEvidence<'_> {
    NodeEvidence {
        silence: seconds(silence),
        lease: seconds(6),
        is_management: false,
        lost_for: None,
        has_rejoined: false,
        asked_for: (!observers.is_empty()).then_some(seconds(1)),
        observers,
        is_mass: false,
        may_restart: true,
        period: None,
    }
}

#[test]
fn a_node_is_lost_only_if_all_observers_fail_to_reach_it() {
    use PortState::{Open, Refused, Silent};
    let ask = NodeLife::Suspected { ask: true };
    let wait = NodeLife::Suspected { ask: false };
    let (api, agent) = (Unreachable::ApiOnly, Unreachable::AgentDown);
    let dead = || saw(Silent, Silent);
    for (silence, observers, expected) in [
        (0, vec![], NodeLife::Alive),
        (1, vec![dead()], NodeLife::Alive),
        (2, vec![], ask),
        (5, vec![dead()], wait),
        (6, vec![], ask),
        (7, vec![None], wait),
        (7, vec![dead(), None], wait),
        (6, vec![dead()], wait),
        (7, vec![dead()], NodeLife::Lost),
        (7, vec![dead(), dead()], NodeLife::Lost),
        // The processes are gone and the host answers: guests have no disks.
        (7, vec![saw(Refused, Refused)], NodeLife::Lost),
        (7, vec![saw(Refused, Silent), dead()], NodeLife::Lost),
        (7, vec![saw(Refused, Open)], NodeLife::Unreachable(agent)),
        (7, vec![dead(), saw(Silent, Open)], NodeLife::Unreachable(agent)),
        (7, vec![dead(), saw(Open, Silent)], NodeLife::Unreachable(api)),
        // One observer that reaches it is believed before the others have answered.
        (7, vec![None, saw(Open, Open)], NodeLife::Unreachable(api)),
    ] {
        assert_eq!(transition(&silent(silence, &observers)), expected, "{silence} {observers:?}");
    }
}

#[test]
fn a_node_is_not_lost_before_its_guests_are_paused() {
    let failed_for = |unreached| {
        let silent_for = |own: Option<Sighting>| Some(Sighting { unreached, ..own.unwrap() });
        [
            silent_for(saw(PortState::Silent, PortState::Silent)),
            saw(PortState::Silent, PortState::Silent),
        ]
    };
    let wait = NodeLife::Suspected { ask: false };
    assert_eq!(transition(&silent(30, &failed_for(Some(3)))), wait, "it lost its peers later");
    assert_eq!(transition(&silent(30, &failed_for(Some(4)))), NodeLife::Lost);
    assert_eq!(transition(&silent(30, &failed_for(None))), NodeLife::Lost, "an older agent");
}

#[test]
fn a_node_that_was_reached_before_its_lease_was_over_is_probed_again() {
    let open = [saw(PortState::Open, PortState::Open)];
    let at = |asked| NodeEvidence { asked_for: Some(seconds(asked)), ..silent(7, &open) };
    assert_eq!(transition(&at(1)), NodeLife::Unreachable(Unreachable::ApiOnly));
    assert_eq!(transition(&at(2)), NodeLife::Suspected { ask: false });
    assert_eq!(transition(&at(5)), NodeLife::Suspected { ask: true });
}

#[test]
fn sightings_count_for_a_limited_time() {
    let open = [saw(PortState::Open, PortState::Open)];
    let dead = [saw(PortState::Silent, PortState::Silent)];
    for (observers, early, late) in [(&[None][..], 3, 4), (&dead, 1, 4), (&open, 29, 30)] {
        let ask = NodeLife::Suspected { ask: true };
        let at = |asked| NodeEvidence { asked_for: Some(seconds(asked)), ..silent(99, observers) };
        assert_ne!(transition(&at(early)), ask, "{observers:?}");
        assert_eq!(transition(&at(late)), ask, "{observers:?}");
    }
}

#[test]
fn no_node_is_declared_lost_against_a_rule() {
    let dead = [saw(PortState::Silent, PortState::Silent)];
    let seen = || silent(30, &dead);
    for (evidence, expected) in [
        (NodeEvidence { is_mass: true, ..seen() }, Unreachable::MassOutage),
        (NodeEvidence { is_management: true, ..seen() }, Unreachable::Management),
        (NodeEvidence { may_restart: false, ..seen() }, Unreachable::PolicyOff),
    ] {
        assert_eq!(transition(&evidence), NodeLife::Unreachable(expected));
    }
    let patient = NodeEvidence { period: Some(seconds(60)), ..seen() };
    assert_eq!(transition(&patient), NodeLife::Suspected { ask: false });
    let over = NodeEvidence { period: Some(seconds(20)), ..seen() };
    assert_eq!(transition(&over), NodeLife::Lost);
    // A lease that says that it is valid for longer is believed.
    let slow = NodeEvidence { lease: seconds(40), ..seen() };
    assert_eq!(transition(&slow), NodeLife::Alive);
}

#[test]
fn a_lost_node_returns_when_its_old_guests_are_gone() {
    let lost = |silence, rejoined, lost_for| {
        let known = NodeEvidence {
            lost_for: Some(seconds(lost_for)),
            has_rejoined: rejoined,
            ..silent(silence, &[])
        };
        transition(&known)
    };
    assert_eq!(lost(60, false, 60), NodeLife::Lost);
    assert_eq!(lost(0, false, 60), NodeLife::Lost, "its guests may still run");
    assert_eq!(lost(60, true, 60), NodeLife::Lost, "it fell silent again");
    assert_eq!(lost(0, true, 1), NodeLife::Lost, "the declaration is being carried out");
    assert_eq!(lost(0, true, 60), NodeLife::Alive);
}

#[test]
fn more_than_a_third_and_two_are_an_outage_of_the_network() {
    for (silent, all, expected) in [
        (1, 1, false),
        (1, 2, false),
        (1, 3, false),
        (2, 3, true),
        (2, 5, true),
        (2, 6, false),
        (2, 7, false),
        (3, 8, true),
        (17, 50, true),
        (16, 50, false),
    ] {
        assert_eq!(is_mass_outage(silent, all), expected, "{silent} of {all}");
    }
}
