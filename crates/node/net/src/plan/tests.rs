use std::collections::BTreeSet;

use expect_test::{Expect, expect};

use super::*;
use crate::overlay::plan::SeenOverlay;
use crate::service::reroute::SeenReroute;
use crate::want::{InboundPolicy, SpoofGuard};

fn bridge_spec() -> Bridge {
    Bridge::new("10.52.0.1/24".parse().unwrap())
}

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn nat(number: u8) -> Port {
    Port {
        tap: name(&format!("shf-{number}")),
        mac: Mac::new([2, 0, 0, 0, 0, number]),
        owner: 1000,
        queues: Queues::Single,
        attachment: Attachment::Nat {
            address: [10, 52, 0, number].into(),
            inbound: InboundPolicy::All,
        },
    }
}

fn on(bridge: &str, number: u8) -> Port {
    let attachment = Attachment::Bridge {
        name: name(bridge),
        guard: SpoofGuard::default(),
        vlans: PortVlan::untagged(),
    };
    Port { attachment, ..nat(number) }
}

fn link(index: u32, kind: LinkKind) -> NetworkInterface {
    NetworkInterface {
        index,
        kind,
        mac: None,
        mtu: 1500,
        is_up: true,
        group: GROUP,
        master: None,
        filters_vlans: false,
        vlans: PortVlan::default(),
    }
}

fn idle_tap() -> LinkKind {
    LinkKind::Tap { owner: Some(1000), queues: Queues::Single, is_open: false, is_isolated: true }
}

/// A node that is exactly as `ports` want it.
fn converged(ports: &[Port]) -> ObservedNetwork {
    let bridge = bridge_spec();
    let want = DesiredNetwork::new(bridge.clone(), ports.to_vec());
    let ours = NetworkInterface { mac: Some(bridge.mac()), ..link(1, LinkKind::Bridge) };
    let taps = ports.iter().zip(10..).map(|(port, index)| {
        (port.tap.clone(), NetworkInterface { master: Some(1), ..link(index, idle_tap()) })
    });
    ObservedNetwork {
        links: taps.chain([(bridge.name.clone(), ours)]).collect(),
        addresses: vec![bridge.gateway],
        neighbours: ports.iter().filter_map(|port| Some((port.address()?, port.mac))).collect(),
        rules: Some(Ruleset::new(&want).digest),
        service_chains: None,
        reroute: None,
        hosts: None,
        policies: None,
        tap_chains: None,
        sysctls: sysctls(&bridge).into_iter().map(|(key, value)| (key, value.to_owned())).collect(),
        overlay: SeenOverlay::default(),
    }
}

fn say(action: &NetworkAction) -> String {
    match action {
        NetworkAction::DeleteTap { tap } => format!("delete {tap}"),
        NetworkAction::CreateBridge { name, mtu, .. } => format!("create bridge {name}, mtu {mtu}"),
        NetworkAction::ChangeBridge { name, mtu, .. } => format!("change bridge {name}, mtu {mtu}"),
        NetworkAction::RemoveAddress { address } => format!("remove address {address}"),
        NetworkAction::AddAddress { address } => format!("add address {address}"),
        NetworkAction::SetSysctl { key, value } => format!("set {key} to {value}"),
        NetworkAction::CreateTap { tap, owner, queues } => {
            format!("create {tap} for {owner}, {queues:?}")
        }
        NetworkAction::ReplaceRules(_) => "replace the rules".to_owned(),
        NetworkAction::ReplaceServices(_) => "replace the rules of services".to_owned(),
        NetworkAction::ReplaceHosts(_) => "replace the rules of hosts".to_owned(),
        NetworkAction::ReplacePolicies(_) => "replace the rules of policies".to_owned(),
        NetworkAction::ReplaceReroute(_) => "replace the rules of taps".to_owned(),
        NetworkAction::RemoveNeighbour { address } => format!("forget {address}"),
        NetworkAction::SetNeighbour { address, mac } => format!("{address} is at {mac}"),
        NetworkAction::Attach { tap, bridge, mtu, isolation, .. } => {
            format!("attach {tap} to {bridge}, mtu {mtu}, {isolation:?}")
        }
        NetworkAction::Overlay(action) => format!("{action:?}"),
    }
}

fn check(ports: &[Port], seen: &ObservedNetwork, expected: Expect) {
    let want = DesiredNetwork::new(bridge_spec(), ports.to_vec());
    let (actions, conflicts) = plan(&want, seen);
    let lines = actions.iter().map(say);
    let conflicts = conflicts.iter().map(|conflict| format!("conflict: {conflict}"));
    expected.assert_eq(&lines.chain(conflicts).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_bare_node_gets_everything_with_rules_before_ports() {
    check(
        &[nat(2)],
        &ObservedNetwork::default(),
        expect![[r"
            create bridge sheaf0, mtu 1500
            add address 10.52.0.1/24
            set net/ipv4/ip_forward to 1
            set net/ipv4/conf/sheaf0/forwarding to 1
            set net/ipv4/conf/sheaf0/proxy_arp_pvlan to 1
            set net/ipv4/conf/sheaf0/proxy_arp to 1
            set net/ipv4/neigh/sheaf0/proxy_delay to 0
            set net/ipv6/conf/sheaf0/disable_ipv6 to 1
            create shf-2 for 1000, Single
            replace the rules
            10.52.0.2 is at 02:00:00:00:00:02
            attach shf-2 to sheaf0, mtu 1500, Isolated"]],
    );
}

#[test]
fn a_node_that_is_as_wanted_is_left_alone() {
    for ports in [vec![], vec![nat(2)], vec![nat(2), nat(3)]] {
        check(&ports, &converged(&ports), expect![[""]]);
    }
}

#[test]
fn finished_steps_are_not_repeated() {
    let ports = [nat(2), nat(3)];
    let mut seen = converged(&ports);
    seen.links.remove(&name("shf-3"));
    check(
        &ports,
        &seen,
        expect![[r"
            create shf-3 for 1000, Single
            attach shf-3 to sheaf0, mtu 1500, Isolated"]],
    );
}

#[test]
fn a_port_that_is_not_wanted_any_more_goes_before_its_rules() {
    check(
        &[nat(2)],
        &converged(&[nat(2), nat(3)]),
        expect![[r"
            delete shf-3
            replace the rules
            forget 10.52.0.3"]],
    );
}

#[test]
fn a_tap_that_a_guest_uses_is_not_taken_away() {
    let mut seen = converged(&[nat(2), nat(3)]);
    let kind = LinkKind::Tap {
        owner: Some(1000),
        queues: Queues::Single,
        is_open: true,
        is_isolated: true,
    };
    seen.links.get_mut(&name("shf-3")).unwrap().kind = kind;
    check(
        &[nat(2)],
        &seen,
        expect![[r#"
        replace the rules
        forget 10.52.0.3
        conflict: tap shf-3 is not wanted, but a running guest uses it"#]],
    );
    assert_eq!(
        taps_to_remove(&DesiredNetwork::new(bridge_spec(), vec![nat(2)]), &seen),
        [name("shf-2"), name("shf-3")]
    );
}

#[test]
fn links_of_others_are_never_deleted() {
    let mut seen = converged(&[]);
    seen.links.insert(name("tap0"), link(7, idle_tap()));
    seen.links.insert(name("shf-veth"), link(8, LinkKind::Other));
    seen.links.insert(name("shf-br"), link(9, LinkKind::Bridge));
    check(&[], &seen, expect![[""]]);
}

#[test]
fn a_bridge_without_our_mark_is_refused() {
    let changes: [fn(&mut NetworkInterface); 2] =
        [|link| link.group = 0, |link| link.kind = LinkKind::Other];
    for change in changes {
        let mut seen = converged(&[nat(2)]);
        change(seen.links.get_mut(&name("sheaf0")).unwrap());
        check(
            &[nat(2)],
            &seen,
            expect![[
                r"conflict: interface sheaf0 exists and was not made by us; choose another name for the bridge"
            ]],
        );
    }
}

#[test]
fn a_changed_gateway_replaces_the_old_one() {
    let mut seen = converged(&[]);
    seen.addresses = vec!["10.9.0.1/24".parse().unwrap()];
    check(
        &[],
        &seen,
        expect![[r"
            remove address 10.9.0.1/24
            add address 10.52.0.1/24"]],
    );
}

#[test]
fn an_idle_tap_of_another_owner_is_made_anew_and_one_in_use_is_kept() {
    let with = |is_open| {
        let mut seen = converged(&[nat(2)]);
        let kind =
            LinkKind::Tap { owner: Some(7), queues: Queues::Multi, is_open, is_isolated: true };
        seen.links.get_mut(&name("shf-2")).unwrap().kind = kind;
        seen
    };
    check(
        &[nat(2)],
        &with(false),
        expect![[r"
            delete shf-2
            create shf-2 for 1000, Single
            attach shf-2 to sheaf0, mtu 1500, Isolated"]],
    );
    check(&[nat(2)], &with(true), expect![[""]]);
}

#[test]
fn every_deviation_of_a_port_leads_to_attaching_it_again() {
    let deviations: [fn(&mut NetworkInterface); 5] = [
        |link| link.is_up = false,
        |link| link.master = None,
        |link| link.master = Some(99),
        |link| link.mtu = 9000,
        |link| {
            link.kind = LinkKind::Tap {
                owner: Some(1000),
                queues: Queues::Single,
                is_open: true,
                is_isolated: false,
            }
        },
    ];
    for deviate in deviations {
        let mut seen = converged(&[nat(2)]);
        deviate(seen.links.get_mut(&name("shf-2")).unwrap());
        check(&[nat(2)], &seen, expect![[r"attach shf-2 to sheaf0, mtu 1500, Isolated"]]);
    }
}

#[test]
fn a_port_on_a_bridge_of_the_host_takes_its_mtu_and_is_not_isolated() {
    let ports = [on("br-lan", 2)];
    let mut seen = converged(&[]);
    seen.links.insert(
        name("br-lan"),
        NetworkInterface { group: 0, mtu: 9000, ..link(5, LinkKind::Bridge) },
    );
    check(
        &ports,
        &seen,
        expect![[r"
            create shf-2 for 1000, Single
            replace the rules
            attach shf-2 to br-lan, mtu 9000, Shared"]],
    );
}

#[test]
fn a_port_gets_the_vlans_of_its_network_from_a_bridge_that_filters() {
    let vlan = |number: u64| PortVlan::access(number.try_into().unwrap());
    let wanted = |vlans| {
        let (name, guard) = (name("lan-br"), SpoofGuard::default());
        Port { attachment: Attachment::Bridge { name, guard, vlans }, ..nat(2) }
    };
    let mut seen = converged(&[wanted(vlan(10))]);
    let filtering = NetworkInterface { filters_vlans: true, ..link(5, LinkKind::Bridge) };
    seen.links.insert(name("lan-br"), filtering);
    let tap = seen.links.get_mut(&name("shf-2")).unwrap();
    (tap.master, tap.vlans) = (Some(5), vlan(10));
    if let LinkKind::Tap { is_isolated, .. } = &mut tap.kind {
        *is_isolated = false;
    }
    check(&[wanted(vlan(10))], &seen, expect![[""]]);
    let changed = plan(&DesiredNetwork::new(bridge_spec(), vec![wanted(vlan(11))]), &seen).0;
    let attached = changed.iter().find_map(|action| match action {
        NetworkAction::Attach { vlans, .. } => vlans.clone(),
        _ => None,
    });
    assert_eq!(attached, Some(vlan(11)));
    // Beside all others is not where a guest of a VLAN belongs.
    seen.links.get_mut(&name("lan-br")).unwrap().filters_vlans = false;
    let want = DesiredNetwork::new(bridge_spec(), vec![wanted(vlan(10))]);
    let conflict = Conflict::Unfiltered { tap: name("shf-2"), bridge: name("lan-br") };
    assert_eq!(plan(&want, &seen), (vec![], vec![conflict]));
}

#[test]
fn a_port_whose_bridge_is_missing_does_not_hold_up_the_others() {
    let mut seen = converged(&[]);
    seen.links.insert(name("eth0"), link(5, LinkKind::Other));
    check(
        &[on("br-none", 2), on("eth0", 3), nat(4)],
        &seen,
        expect![[r"
            create shf-4 for 1000, Single
            replace the rules
            10.52.0.4 is at 02:00:00:00:00:04
            attach shf-4 to sheaf0, mtu 1500, Isolated
            conflict: bridge br-none that tap shf-2 is to be attached to does not exist on this node
            conflict: interface eth0 that tap shf-3 is to be attached to is not a bridge"]],
    );
}

#[test]
fn a_kernel_without_ipv6_is_not_asked_to_switch_it_off() {
    let mut seen = converged(&[]);
    seen.sysctls.retain(|key, _| !key.starts_with("net/ipv6/"));
    check(&[], &seen, expect![[""]]);
    seen.sysctls.insert("net/ipv4/ip_forward".into(), "0".into());
    check(&[], &seen, expect![[r"set net/ipv4/ip_forward to 1"]]);
}

fn chains(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("chain "));
    names.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn services_are_left_alone_until_they_are_known_and_then_kept_as_wanted() {
    let ports = [nat(2)];
    let want = |services| DesiredNetwork {
        services,
        ..DesiredNetwork::new(bridge_spec(), ports.to_vec())
    };
    let steps = |services, seen: &ObservedNetwork| {
        let (actions, _) = plan(&want(services), seen);
        actions.iter().map(say).collect::<Vec<_>>().join(", ")
    };
    let none_yet = converged(&ports);
    assert_eq!(steps(None, &none_yet), "");
    let both = "replace the rules of services, replace the rules of taps";
    assert_eq!(steps(Some(vec![]), &none_yet), both);

    let text = ServiceRules::new(&bridge_spec(), &[], None).text;
    let reroute = Reroute::new(&bridge_spec(), &[&ports[0]], &[]);
    let taps = BTreeSet::from(["shf-2".to_owned()]);
    let mut seen = converged(&ports);
    seen.service_chains = Some(chains(&text));
    seen.reroute = Some(SeenReroute { chains: chains(&reroute.text), taps });
    assert_eq!(steps(Some(vec![]), &seen), "");
    assert_eq!(steps(None, &seen), "");

    let mut without_tap = seen.clone();
    without_tap.links.remove(&name("shf-2"));
    let remade = steps(Some(vec![]), &without_tap);
    assert!(
        remade.contains("create shf-2 for 1000, Single, replace the rules of taps"),
        "{remade}"
    );
}

#[test]
fn policies_stay_until_they_are_known_and_guests_without_any_are_cut_off() {
    let want = |policies| DesiredNetwork { policies, ..DesiredNetwork::new(bridge_spec(), vec![]) };
    let steps = |policies, in_force: Option<&str>| {
        let policies_seen = in_force.map(str::to_owned);
        let tap_chains = in_force.map(|digest| [format!("digest_{digest}")].into());
        let seen = ObservedNetwork { policies: policies_seen, tap_chains, ..converged(&[]) };
        let (actions, _) = plan(&want(policies), &seen);
        actions.iter().map(say).collect::<Vec<_>>().join(", ")
    };
    let none = Policies::default();
    let rules = PolicyRules::new(&bridge_spec(), &[], &none, &BTreeSet::new(), &BTreeSet::new());
    let closed = rules.digest;
    let known = || GuestPolicies::Known(Policies::default());
    assert_eq!(steps(GuestPolicies::Unenforced, None), "");
    assert_eq!(steps(GuestPolicies::Unknown, Some("before")), "");
    assert_eq!(steps(GuestPolicies::Unknown, None), "replace the rules of policies");
    assert_eq!(steps(known(), Some("before")), "replace the rules of policies");
    assert_eq!(steps(known(), Some(&closed)), "");
    // A table that another program has deleted is made again.
    let seen = ObservedNetwork { policies: Some(closed), ..converged(&[]) };
    let (actions, _) = plan(&want(known()), &seen);
    assert_eq!(actions.iter().map(say).collect::<String>(), "replace the rules of policies");
}
