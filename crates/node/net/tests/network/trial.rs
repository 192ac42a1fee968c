//! Trials of the host's network with real links: the watchdog, pings, and interfaces in VLANs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use net::{
    AddressOrigin, Confirmation, DhcpInterface, HostChange, HostDhcp, HostInterface, HostRecord,
    HostUnit, Lease, LinkName, NewTrial, PingTarget, PortDhcp, PortLease, RecordFile, TrialChecks,
    TrialEvent, Uplink, Uplinks, ping, restore, run_watchdog,
};

use crate::world::{LIMIT, Namespace, OUTSIDE, in_world};

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
    file.change(|record| Ok(record.on(TrialEvent::Begun(Box::new(new)))?)).unwrap()
}

fn uplink() -> Uplink {
    Uplink {
        bridge: name("lan-br"),
        bond: name("lan-bo"),
        nics: vec![name("eth1")],
        mode: net::BondMode::ActiveBackup,
        miimon: 100,
        mtu: 1500,
        mac: None,
        tx_queue_len: None,
        vlans: [10.try_into().unwrap()].into(),
    }
}

fn interface(address: &str) -> HostInterface {
    HostInterface {
        link: name("lan-br.20"),
        bridge: name("lan-br"),
        vlan: 20.try_into().unwrap(),
        origin: AddressOrigin::Static,
        addresses: vec![address.parse().unwrap()],
    }
}

#[test]
fn an_address_answers_a_ping_or_not() {
    in_world(async |world| {
        let _outside = world.outside();
        let target = |address: Ipv4Addr, link: Option<&str>| PingTarget {
            address: address.into(),
            link: link.map(name),
        };
        let silent = Ipv4Addr::new(192, 0, 2, 77);
        let limit = Duration::from_secs(3);
        assert!(ping(&target(OUTSIDE, None), 1, LIMIT).await.unwrap());
        assert!(ping(&target(OUTSIDE, Some("up0")), 2, LIMIT).await.unwrap());
        assert!(!ping(&target(silent, Some("up0")), 3, limit).await.unwrap());
        assert!(!ping(&target(OUTSIDE, Some("lo")), 4, limit).await.unwrap());
    });
}

#[test]
fn an_ipv6_address_answers_a_ping_or_not() {
    in_world(async |world| {
        let outside = world.outside();
        for (space, address) in [(None, "fd00::1/64"), (Some(&outside), "fd00::2/64")] {
            let link = if space.is_some() { "eth0" } else { "up0" };
            let line = format!("ip -6 address add {address} dev {link} nodad");
            match space {
                Some(space) => drop(space.run(&line)),
                None => drop(crate::world::run(&line)),
            }
        }
        let limit = Duration::from_secs(3);
        for (address, link, token, expected) in [
            ("fd00::2", None, 1, true),
            ("fd00::2", Some("up0"), 2, true),
            ("fd00::77", Some("up0"), 3, false),
        ] {
            let target = PingTarget { address: address.parse().unwrap(), link: link.map(name) };
            let limit = if expected { LIMIT } else { limit };
            assert_eq!(ping(&target, token, limit).await.unwrap(), expected, "{target:?}");
        }
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
        let plain = HostUnit { uplink: Some(uplink()), ..HostUnit::default() };
        let dir = tempfile::tempdir().unwrap();
        let file = RecordFile::new(dir.path());
        let confirmed = BTreeMap::from([(name("lan-br"), plain.clone())]);
        file.change(|record| Ok(HostRecord { confirmed, ..record })).unwrap();
        let uplinks = Uplinks::start(&world.tasks).unwrap();
        let report = restore(&uplinks, &file.load().unwrap()).await.unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        let unit = HostUnit { interfaces: vec![interface("198.51.100.1/24")], ..plain };
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

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn an_address_that_another_station_has_is_refused_in_a_trial_only() {
    in_world(async |world| {
        let far = Namespace::new("far");
        crate::world::run(&format!("ip link add eth1 type veth peer name eth0 netns {}", far.name));
        far.run("ip link add link eth0 name eth0.20 type vlan id 20");
        far.run("ip address add 198.51.100.9/24 dev eth0.20");
        far.run("ip -6 address add fd00::9/64 dev eth0.20 nodad");
        far.run("ip link set eth0 up");
        far.run("ip link set eth0.20 up");
        let uplinks = Uplinks::start(&world.tasks).unwrap();
        for (taken, free) in [("198.51.100.9/24", "198.51.100.1/24"), ("fd00::9/64", "fd00::1/64")]
        {
            let report = uplinks.try_host(&[uplink()], &[interface(taken)]).await.unwrap();
            let failed = report.failed.join("; ");
            assert!(failed.contains("is already used by"), "{taken}: {failed}");
            let report = uplinks.try_host(&[uplink()], &[interface(free)]).await.unwrap();
            assert!(report.failed.is_empty(), "{free}: {:?}", report.failed);
            let has = |links: &net::ObservedLinks, address: &str| {
                links[&name("lan-br.20")].addresses.contains(&address.parse().unwrap())
            };
            assert!(has(&report.links, free) && !has(&report.links, taken), "{:?}", report.links);
        }
        // The address that a node had before is restored in any case.
        let report =
            uplinks.apply_host(&[uplink()], &[interface("198.51.100.9/24")]).await.unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        // The second address of a subnet stays when the first is removed.
        let report = uplinks.try_host(&[uplink()], &[interface("198.51.100.8/24")]).await.unwrap();
        let addresses = &report.links[&name("lan-br.20")].addresses;
        let ipv4: Vec<_> = addresses.iter().filter(|own| own.addr().is_ipv4()).collect();
        assert_eq!(ipv4, [&"198.51.100.8/24".parse().unwrap()]);
    });
}

/// A DHCP server with one lease at the other end of the wire; it ends with the sender.
fn serve_dhcp(outside: Namespace, mac: net::Mac) -> tokio::sync::oneshot::Sender<()> {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let lease = PortLease {
        lease: Lease {
            mac,
            address: Ipv4Addr::new(198, 51, 100, 9),
            options: net::DhcpOptions::default(),
        },
        server: net::DhcpServer {
            address: "198.51.100.1/24".parse().unwrap(),
            router: None,
            dns: None,
            lease_seconds: 600,
        },
    };
    std::thread::spawn(move || {
        outside.enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tasks = base::Tasks::default();
            let server = PortDhcp::new(&tasks);
            server.replace(BTreeMap::from([(name("eth0"), lease)])).unwrap();
            let _ = stopped.await;
            tasks.stop(Duration::from_secs(2)).await;
        });
    });
    stop
}

#[test]
fn an_interface_of_the_host_gets_an_address_by_dhcp() {
    in_world(async |world| {
        let outside = world.outside();
        let links = Uplinks::start(&world.tasks).unwrap().observe().await.unwrap();
        let mac = links[&name("up0")].mac.unwrap();
        let _server = serve_dhcp(outside, mac);
        let mut clients = HostDhcp::new(&world.tasks);
        let mut leases = clients.leases();
        // It had another address before, which the server refuses.
        let earlier = Some(Ipv4Addr::new(198, 51, 100, 77));
        clients.replace(&BTreeMap::from([(name("up0"), DhcpInterface { mac, earlier })]));
        let bound = async {
            loop {
                leases.changed().await.unwrap();
                if let Some(Some(lease)) = leases.borrow_and_update().get(&name("up0")) {
                    return *lease;
                }
            }
        };
        let lease = tokio::time::timeout(Duration::from_secs(60), bound).await.unwrap();
        assert_eq!(lease.address, "198.51.100.9/24".parse().unwrap());
        assert_eq!((lease.server, lease.seconds), (Ipv4Addr::new(198, 51, 100, 1), 600));
        clients.replace(&BTreeMap::new());
        assert!(clients.leases().borrow().is_empty());
    });
}
