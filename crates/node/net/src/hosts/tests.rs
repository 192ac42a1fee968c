use super::*;

fn bridge() -> Bridge {
    let mut bridge = Bridge::new("10.52.0.1/24".parse().unwrap());
    bridge.host_tcp.insert(6443);
    bridge
}

fn hosts(addresses: &[&str], api_ports: &[u16]) -> ClusterHosts {
    ClusterHosts {
        addresses: addresses.iter().map(|own| own.parse().unwrap()).collect(),
        api_ports: api_ports.iter().copied().collect(),
    }
}

#[test]
fn the_rules_name_hosts_and_the_ports_of_the_api() {
    let hosts = hosts(&["192.0.2.1/32", "192.0.2.2/32", "10.60.0.0/24", "10.60.0.7/32"], &[443]);
    let rules = HostRules::new(&bridge(), Some(&hosts));
    expect_test::expect_file!["tests/hosts.nft"].assert_eq(&rules.text);
}

#[test]
fn rules_stay_until_the_hosts_are_known_and_without_any_the_outside_is_closed() {
    let missing = |guard: &HostGuard, seen| HostRules::missing(&bridge(), guard, seen);
    assert_eq!(missing(&HostGuard::Unenforced, None), None);
    assert_eq!(missing(&HostGuard::Unknown, Some("before")), None);
    let closed = missing(&HostGuard::Unknown, None).unwrap();
    assert!(closed.text.contains("ip daddr != 10.52.0.0/24 drop"), "{}", closed.text);
    let known = HostGuard::Known(hosts(&["192.0.2.1/32"], &[]));
    let rules = missing(&known, Some(&closed.digest)).unwrap();
    assert_eq!(missing(&known, Some(&rules.digest)), None);
}

#[test]
fn of_a_host_guests_reach_the_api_and_node_ports() {
    let hosts = hosts(&["192.0.2.1/32", "10.0.0.0/8"], &[6443]);
    for (to, protocol, port, expected) in [
        ("192.0.2.1", Protocol::Tcp, 6443, HostVerdict::Api),
        ("192.0.2.1", Protocol::Udp, 6443, HostVerdict::Refused),
        ("192.0.2.1", Protocol::Tcp, 22, HostVerdict::Refused),
        ("192.0.2.1", Protocol::Tcp, 30_000, HostVerdict::NodePort),
        ("192.0.2.1", Protocol::Udp, 32_767, HostVerdict::NodePort),
        ("192.0.2.1", Protocol::Sctp, 30_000, HostVerdict::Refused),
        ("192.0.2.1", Protocol::Tcp, 32_768, HostVerdict::Refused),
        ("192.0.2.3", Protocol::Tcp, 22, HostVerdict::Elsewhere),
        ("10.52.0.9", Protocol::Tcp, 22, HostVerdict::Elsewhere),
        ("10.53.0.9", Protocol::Tcp, 22, HostVerdict::Refused),
    ] {
        let from = "10.52.0.2".parse().unwrap();
        let packet = FirstPacket { from, to: to.parse().unwrap(), protocol, port };
        let network = bridge().gateway.trunc();
        assert_eq!(hosts.judge(network, &packet), expected, "{to} {protocol} {port}");
    }
}
