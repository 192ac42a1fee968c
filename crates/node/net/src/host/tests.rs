//! Trials step by step, and random edits and failures against a model of a host.
//!
//! The seed and the number of rounds can be given: `SHEAF_SEED=7 SHEAF_TRIAL_ROUNDS=100000`.

use std::collections::BTreeMap;

use super::trial::*;
use crate::name::LinkName;
use crate::uplink::{AddressOrigin, BondMode, HostInterface, Uplink};

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn unit(network: &str, nics: &[&str], mtu: u16) -> HostUnit {
    let uplink = Uplink {
        bridge: name(&format!("{network}-br")),
        bond: name(&format!("{network}-bo")),
        nics: nics.iter().map(|nic| name(nic)).collect(),
        mode: BondMode::ActiveBackup,
        miimon: 100,
        mtu,
        mac: None,
        tx_queue_len: None,
        vlans: [10.try_into().unwrap()].into(),
    };
    HostUnit { uplink: Some(uplink), interfaces: vec![], revision: "1".into() }
}

fn units(all: &[(&str, HostUnit)]) -> BTreeMap<LinkName, HostUnit> {
    all.iter().map(|(network, unit)| (name(&format!("{network}-br")), unit.clone())).collect()
}

fn begin(record: HostRecord, wanted: &BTreeMap<LinkName, HostUnit>) -> HostRecord {
    let change = record.next(wanted).unwrap();
    record.on(begun(change)).unwrap()
}

fn begun(change: HostChange) -> TrialEvent {
    TrialEvent::Begun(Box::new(NewTrial {
        change,
        confirmation: Confirmation::Auto,
        boot: "boot".to_owned(),
        deadline: 90,
        checks: TrialChecks::default(),
    }))
}

#[test]
fn a_confirmed_change_stays_and_another_is_rolled_back() {
    let wanted = units(&[("lan", unit("lan", &["eth1"], 1500))]);
    let record = begin(HostRecord::default(), &wanted);
    assert_eq!(record.active(), wanted);
    let record = record.on(TrialEvent::Applied).unwrap().on(TrialEvent::Confirmed).unwrap();
    assert_eq!((&record.confirmed, &record.trial), (&wanted, &None));
    assert_eq!(record.next(&wanted), None);
    let other = units(&[("lan", unit("lan", &["eth2"], 1500))]);
    let record = begin(record, &other).on(TrialEvent::Applied).unwrap();
    assert_eq!(record.active(), other);
    let record = record.on(TrialEvent::Checked("no answer".into())).unwrap();
    assert_eq!(record.active(), other, "one failure is not the end");
    let record = record.on(TrialEvent::Late("it was not confirmed".into())).unwrap();
    assert_eq!(record.active(), wanted, "the earlier network is to be restored");
    assert!(record.clone().on(TrialEvent::Confirmed).is_err(), "too late");
    let record = record.on(TrialEvent::Restored).unwrap();
    assert_eq!((&record.confirmed, &record.trial), (&wanted, &None));
    // Not again, until it is another attempt.
    assert_eq!(record.next(&other), None);
    let reason = record.rejection(&name("lan-br"), other.get(&name("lan-br")));
    assert_eq!(reason, Some("not confirmed before its deadline: no answer"));
    let mut again = other.clone();
    again.get_mut(&name("lan-br")).unwrap().revision = "2".into();
    assert!(record.next(&again).is_some());
    assert_eq!(record.next(&wanted), None);
}

#[test]
fn addresses_of_dhcp_servers_change_without_a_trial() {
    let leased = |address: &str| {
        let mut unit = unit("lan", &["eth1"], 1500);
        let addresses = address.parse().into_iter().collect();
        let (link, bridge) = (name("lan-br.20"), name("lan-br"));
        let (vlan, origin) = (20.try_into().unwrap(), AddressOrigin::Dhcp);
        unit.interfaces.push(HostInterface { link, bridge, vlan, origin, addresses });
        units(&[("lan", unit)])
    };
    let record = begin(HostRecord::default(), &leased(""));
    let mut record = record.on(TrialEvent::Applied).unwrap();
    assert!(record.is_wanted(&leased("198.51.100.9/24")));
    assert!(record.follow_vlans(&leased("198.51.100.9/24")));
    let mut record = record.on(TrialEvent::Confirmed).unwrap();
    assert_eq!(record.confirmed, leased("198.51.100.9/24"));
    assert_eq!(record.next(&leased("198.51.100.7/24")), None);
    assert!(record.follow_vlans(&leased("198.51.100.7/24")));
    assert_eq!(record.confirmed, leased("198.51.100.7/24"));
    record.forget_leases();
    assert_eq!(record.confirmed, leased(""));
}

#[test]
fn events_that_do_not_fit_change_nothing() {
    let wanted = units(&[("lan", unit("lan", &["eth1"], 1500))]);
    assert_eq!(HostRecord::default().on(TrialEvent::Confirmed), Err(TrialError::NoTrial));
    let record = begin(HostRecord::default(), &wanted);
    let bridge = name("lan-br");
    let early = record.clone().on(TrialEvent::Confirmed);
    assert_eq!(early, Err(TrialError::NotApplied { bridge: bridge.clone() }));
    let change = HostChange { bridge: bridge.clone(), unit: None };
    assert_eq!(record.on(begun(change)), Err(TrialError::Busy { bridge }));
}

#[test]
fn vlans_of_guests_are_followed_without_a_trial() {
    let wanted = units(&[("lan", unit("lan", &["eth1"], 1500))]);
    let mut record = HostRecord { confirmed: wanted.clone(), ..HostRecord::default() };
    let mut more = wanted.clone();
    let own = more.get_mut(&name("lan-br")).unwrap();
    own.uplink.as_mut().unwrap().vlans.insert(11.try_into().unwrap());
    own.revision = "2".into();
    assert_eq!(record.next(&more), None);
    assert!(record.follow_vlans(&more));
    assert_eq!(record.active(), more);
    assert!(!record.follow_vlans(&more));
}

#[test]
fn a_change_that_is_withdrawn_is_rolled_back() {
    let wanted = units(&[("lan", unit("lan", &["eth1"], 1500))]);
    let record = begin(HostRecord::default(), &wanted).on(TrialEvent::Applied).unwrap();
    assert!(record.is_wanted(&wanted));
    assert!(!record.is_wanted(&BTreeMap::new()));
    let record = record.on(TrialEvent::Withdrawn).unwrap();
    assert_eq!(record.active(), BTreeMap::new());
    let record = record.on(TrialEvent::Restored).unwrap();
    assert_eq!(record.next(&BTreeMap::new()), None);
}

/// A sequence of numbers that depends on the seed only.
struct TrialRandom(u64);

impl TrialRandom {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

/// A host whose management leads over `mgmt-br`: it is reached unless a unit cuts it off.
fn is_reached(units: &BTreeMap<LinkName, HostUnit>) -> bool {
    let mtu = |unit: &HostUnit| unit.uplink.as_ref().map(|uplink| uplink.mtu);
    let interfaces = |unit: &HostUnit| unit.interfaces.len();
    units.get(&name("mgmt-br")).is_some_and(|unit| mtu(unit) == Some(1500) && interfaces(unit) == 1)
}

fn random_unit(random: &mut TrialRandom, network: &str) -> Option<HostUnit> {
    let nics: &[&str] =
        [&["eth1"][..], &["eth1", "eth2"], &["eth2"]][usize::try_from(random.below(3)).unwrap()];
    let mut unit = unit(network, nics, [1500, 9000][usize::from(random.below(4) == 0)]);
    if random.below(5) > 0 {
        unit.interfaces.push(HostInterface {
            origin: AddressOrigin::Static,
            link: name(&format!("{network}-br.5")),
            bridge: name(&format!("{network}-br")),
            vlan: 5.try_into().unwrap(),
            addresses: vec!["192.0.2.10/24".parse().unwrap()],
        });
    }
    unit.revision = random.below(3).to_string();
    (random.below(6) > 0).then_some(unit)
}

/// The server may die at any point, and the watchdog and the next server go on.
#[test]
fn random_edits_and_failures_never_leave_a_host_cut_off() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed: u64 = number("SHEAF_SEED").unwrap_or(1);
    let rounds: u64 = number("SHEAF_TRIAL_ROUNDS").unwrap_or(20_000);
    println!("SHEAF_SEED={seed} SHEAF_TRIAL_ROUNDS={rounds}");
    let mut random = TrialRandom(seed);
    let mut management = unit("mgmt", &["eth1"], 1500);
    management.interfaces = random_unit(&mut TrialRandom(3), "mgmt").unwrap().interfaces;
    assert_eq!(management.interfaces.len(), 1);
    let first = units(&[("mgmt", management)]);
    let mut record = HostRecord { confirmed: first.clone(), ..HostRecord::default() };
    let (mut wanted, mut confirmed, mut rolled_back, mut cut_for) = (first, 0, 0, 0);
    for _ in 0..rounds {
        match &record.trial {
            None => {
                assert!(is_reached(&record.active()), "cut off without a trial: {record:?}");
                let network = ["mgmt", "lan", "dmz"][usize::try_from(random.below(3)).unwrap()];
                let bridge = name(&format!("{network}-br"));
                match random_unit(&mut random, network) {
                    Some(unit) => wanted.insert(bridge, unit),
                    None => wanted.remove(&bridge),
                };
                record.follow_vlans(&wanted);
                let Some(change) = record.next(&wanted) else { continue };
                record = record.on(begun(change)).unwrap();
                cut_for = 0;
            }
            Some(trial) => {
                // Bounded: a trial ends within its deadline.
                cut_for += 1;
                let is_late = cut_for > 5;
                let event = match (&trial.state, random.below(10)) {
                    (TrialState::RollingBack { .. }, 0..3) => TrialEvent::Late("again".into()),
                    (TrialState::RollingBack { .. }, _) => TrialEvent::Restored,
                    (_, _) if is_late => TrialEvent::Late("late".into()),
                    (TrialState::Applying, 0) => TrialEvent::Failed("step".into()),
                    (TrialState::Applying, 1) => TrialEvent::Interrupted("killed".into()),
                    (TrialState::Applying, _) => TrialEvent::Applied,
                    (TrialState::AwaitingConfirmation, 0) => TrialEvent::Interrupted("boot".into()),
                    (TrialState::AwaitingConfirmation, 1) => TrialEvent::Withdrawn,
                    // Checks pass only where the host is reached.
                    (TrialState::AwaitingConfirmation, _) if is_reached(&record.active()) => {
                        TrialEvent::Confirmed
                    }
                    (TrialState::AwaitingConfirmation, _) => continue,
                };
                let (is_confirmed, is_restored) =
                    (event == TrialEvent::Confirmed, event == TrialEvent::Restored);
                record = record.on(event).unwrap();
                confirmed += u64::from(is_confirmed);
                rolled_back += u64::from(is_restored);
                if let Some(TrialState::RollingBack { .. }) =
                    record.trial.as_ref().map(|trial| &trial.state)
                {
                    assert!(
                        is_reached(&record.active()),
                        "rolled back to a network that is cut off"
                    );
                }
            }
        }
    }
    // A simulation without both outcomes would prove nothing.
    assert!(confirmed > rounds / 50 && rolled_back > rounds / 50, "{confirmed} {rolled_back}");
}
