//! Trials of the host's network with real links: the watchdog, pings, and interfaces in VLANs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use net::{
    Confirmation, HostChange, HostInterface, HostRecord, HostUnit, LinkName, NewTrial, PingTarget,
    RecordFile, TrialChecks, TrialEvent, Uplink, Uplinks, ping, restore, run_watchdog,
};

use crate::world::{OUTSIDE, in_world};

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn begin(file: &RecordFile, unit: HostUnit, seconds: i64) -> HostRecord {
    let change = HostChange { bridge: name("lan-br"), unit: Some(unit) };
    let new = NewTrial {
        change,
        confirmation: Confirmation::Auto,
        boot: net::boot_id(),
        deadline: base::clock::now().as_second() + seconds,
        checks: TrialChecks::default(),
    };
    file.change(|record| Ok(record.on(TrialEvent::Begun(new))?)).unwrap()
}

#[test]
fn an_address_answers_a_ping_or_not() {
    in_world(async |world| {
        let _outside = world.outside();
        let target =
            |address: Ipv4Addr, link: Option<&str>| PingTarget { address, link: link.map(name) };
        let silent = Ipv4Addr::new(192, 0, 2, 77);
        let limit = Duration::from_secs(3);
        assert!(ping(&target(OUTSIDE, None), 1, limit).await.unwrap());
        assert!(ping(&target(OUTSIDE, Some("up0")), 2, limit).await.unwrap());
        assert!(!ping(&target(silent, Some("up0")), 3, limit).await.unwrap());
        assert!(!ping(&target(OUTSIDE, Some("lo")), 4, limit).await.unwrap());
    });
}

#[test]
fn a_watchdog_rolls_back_at_the_deadline_and_leaves_what_is_confirmed() {
    in_world(async |world| {
        let dir = tempfile::tempdir().unwrap();
        let file = RecordFile::new(dir.path());
        let id = begin(&file, HostUnit::default(), 1).last_id;
        file.on(id, TrialEvent::Applied).unwrap();
        run_watchdog(file.clone(), id, &world.tasks, || {}).await.unwrap();
        let record = file.load().unwrap();
        assert_eq!(record.trial, None);
        let rejected = &record.rejected[&name("lan-br")];
        assert!(rejected.reason.contains("not confirmed before its deadline"), "{rejected:?}");
        // One that was confirmed meanwhile stays.
        let id = begin(&file, HostUnit::default(), 1).last_id;
        let confirm = || {
            file.on(id, TrialEvent::Applied).unwrap();
            file.on(id, TrialEvent::Confirmed).unwrap();
        };
        run_watchdog(file.clone(), id, &world.tasks, confirm).await.unwrap();
        let record = file.load().unwrap();
        assert!(record.confirmed.contains_key(&name("lan-br")) && record.rejected.is_empty());
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn an_interface_of_the_host_is_rolled_back_with_its_vlan() {
    in_world(async |world| {
        crate::world::run("ip link add eth1 type veth peer name eth1p");
        crate::world::run("ip link set eth1p up");
        let uplink = Uplink {
            bridge: name("lan-br"),
            bond: name("lan-bo"),
            nics: vec![name("eth1")],
            mode: net::BondMode::ActiveBackup,
            miimon: 100,
            mtu: 1500,
            mac: None,
            tx_queue_len: None,
            vlans: [10.try_into().unwrap()].into(),
        };
        let plain = HostUnit { uplink: Some(uplink), ..HostUnit::default() };
        let dir = tempfile::tempdir().unwrap();
        let file = RecordFile::new(dir.path());
        let confirmed = BTreeMap::from([(name("lan-br"), plain.clone())]);
        file.change(|record| Ok(HostRecord { confirmed, ..record })).unwrap();
        let uplinks = Uplinks::start(&world.tasks).unwrap();
        let report = restore(&uplinks, &file.load().unwrap()).await.unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        let interface = HostInterface {
            link: name("lan-br.20"),
            bridge: name("lan-br"),
            vlan: 20.try_into().unwrap(),
            addresses: vec!["198.51.100.1/24".parse().unwrap()],
        };
        let unit = HostUnit { interfaces: vec![interface], ..plain };
        let record = begin(&file, unit, 3);
        let report = restore(&uplinks, &record).await.unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        file.on(record.last_id, TrialEvent::Applied).unwrap();
        let shown = crate::world::run("ip -o address show dev lan-br.20");
        assert!(shown.contains("198.51.100.1/24"), "{shown}");
        let vlans = || crate::world::run("bridge vlan show");
        assert_eq!(vlans().matches("20").count(), 2, "{}", vlans());
        // Nothing is left to do, and so nothing flaps.
        assert_eq!(restore(&uplinks, &record).await.unwrap().steps, 0);
        run_watchdog(file.clone(), record.last_id, &world.tasks, || {}).await.unwrap();
        let links = uplinks.observe().await.unwrap();
        assert!(!links.contains_key(&name("lan-br.20")) && links.contains_key(&name("lan-br")));
        assert_eq!(vlans().matches("20").count(), 0, "{}", vlans());
        assert!(file.load().unwrap().rejected.contains_key(&name("lan-br")));
    });
}
