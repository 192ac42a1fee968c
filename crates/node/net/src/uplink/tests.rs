mod simulation;

use expect_test::{Expect, expect};

use super::*;
use crate::vlan::VlanRole;

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

fn vlan(number: u64) -> VlanId {
    number.try_into().unwrap()
}

fn link(kind: ObservedKind) -> ObservedLink {
    ObservedLink {
        index: 0,
        kind,
        mac: None,
        mtu: 1500,
        tx_queue_len: 1000,
        is_up: false,
        has_carrier: true,
        state: LinkState::Up,
        is_promiscuous: false,
        group: 0,
        master: None,
        lower: None,
        addresses: vec![],
        vlans: PortVlan::default(),
        member: None,
    }
}

fn card() -> ObservedLink {
    ObservedLink { is_up: true, ..link(ObservedKind::Nic) }
}

fn uplink(cluster_network: &str, nics: &[&str]) -> Uplink {
    Uplink {
        bridge: name(&format!("{cluster_network}-br")),
        bond: name(&format!("{cluster_network}-bo")),
        nics: nics.iter().map(|nic| name(nic)).collect(),
        mode: BondMode::ActiveBackup,
        miimon: 100,
        mtu: 1500,
        mac: None,
        tx_queue_len: None,
        vlans: BTreeSet::from([vlan(10)]),
    }
}

/// Cards eth0 to eth3, the first of which has the node's address.
fn node() -> ObservedLinks {
    let mut links: ObservedLinks = ["eth0", "eth1", "eth2", "eth3"]
        .iter()
        .zip(1..)
        .map(|(nic, index)| (name(nic), ObservedLink { index, ..card() }))
        .collect();
    links.get_mut(&name("eth0")).unwrap().addresses = vec!["192.0.2.1/24".parse().unwrap()];
    links
}

/// A node with the uplink of `lan` on eth1 and eth2, of which the first is active.
fn connected() -> ObservedLinks {
    let mut links = node();
    let bridge = ObservedKind::Bridge { filters_vlans: true, default_vlan: 0 };
    let bond = ObservedKind::Bond { mode: Some(BondMode::ActiveBackup), miimon: 100 };
    let ours = |kind| ObservedLink { group: UPLINK_GROUP, is_up: true, ..link(kind) };
    links.insert(name("lan-br"), ObservedLink { index: 10, ..ours(bridge) });
    let vlans = PortVlan::trunk([vlan(10)]);
    let bond = ObservedLink { index: 11, master: Some(10), vlans, ..ours(bond) };
    links.insert(name("lan-bo"), bond);
    for (nic, is_active) in [("eth1", true), ("eth2", false)] {
        let card = links.get_mut(&name(nic)).unwrap();
        card.master = Some(11);
        card.member = Some(BondMember { is_active, aggregator: None });
    }
    links
}

fn check(want: &[Uplink], seen: &ObservedLinks, expected: Expect) {
    let plan = plan_uplinks(want, seen);
    let steps = plan.steps.iter().map(|step| format!("{step:?}\n"));
    let problems = plan.problems.iter().map(|(bridge, problem)| format!("{bridge}: {problem}\n"));
    expected.assert_eq(&steps.chain(problems).collect::<String>());
}

#[test]
fn a_bare_node_gets_a_bond_in_a_bridge_that_filters() {
    check(
        &[uplink("lan", &["eth1", "eth2"])],
        &node(),
        expect![[r#"
        CreateBridge { bridge: lan-br, mtu: 1500 }
        CreateBond { bond: lan-bo, mode: ActiveBackup, miimon: 100, mtu: 1500, mac: None }
        AddMember { bond: lan-bo, nic: eth1 }
        AddMember { bond: lan-bo, nic: eth2 }
        JoinBridge { bond: lan-bo, bridge: lan-br }
        AddVlan { port: lan-bo, vlan: VlanId(1), role: Native }
        AddVlan { port: lan-bo, vlan: VlanId(10), role: Tagged }
        SetUp { link: lan-bo }
        SetUp { link: lan-br }
    "#]],
    );
}

#[test]
fn a_converged_uplink_is_left_alone() {
    check(&[uplink("lan", &["eth1", "eth2"])], &connected(), expect![[r#""#]]);
}

#[test]
fn cards_are_exchanged_in_place_with_the_new_one_first() {
    check(
        &[uplink("lan", &["eth2", "eth3"])],
        &connected(),
        expect![[r#"
        AddMember { bond: lan-bo, nic: eth3 }
        RemoveMember { bond: lan-bo, nic: eth1 }
    "#]],
    );
}

#[test]
fn another_mode_needs_an_empty_bond() {
    let lacp = Uplink { mode: BondMode::Lacp, ..uplink("lan", &["eth1", "eth2"]) };
    check(
        &[lacp],
        &connected(),
        expect![[r#"
        RemoveMember { bond: lan-bo, nic: eth2 }
        RemoveMember { bond: lan-bo, nic: eth1 }
        SetMode { bond: lan-bo, mode: Lacp, miimon: 100 }
        AddMember { bond: lan-bo, nic: eth1 }
        AddMember { bond: lan-bo, nic: eth2 }
    "#]],
    );
}

#[test]
fn vlans_are_taken_away_before_others_are_given() {
    let other = Uplink { vlans: BTreeSet::from([vlan(11)]), ..uplink("lan", &["eth1", "eth2"]) };
    check(
        &[other],
        &connected(),
        expect![[r#"
        RemoveVlan { port: lan-bo, vlan: VlanId(10) }
        AddVlan { port: lan-bo, vlan: VlanId(11), role: Tagged }
    "#]],
    );
}

#[test]
fn a_bridge_shrinks_first_and_grows_last() {
    let wide = Uplink { mtu: 9000, ..uplink("lan", &["eth1", "eth2"]) };
    check(
        std::slice::from_ref(&wide),
        &connected(),
        expect![[r#"
        SetMtu { link: lan-bo, mtu: 9000 }
        SetMtu { link: lan-br, mtu: 9000 }
    "#]],
    );
    let mut seen = connected();
    for link in ["lan-br", "lan-bo"] {
        seen.get_mut(&name(link)).unwrap().mtu = 9000;
    }
    check(
        &[uplink("lan", &["eth1", "eth2"])],
        &seen,
        expect![[r#"
        SetMtu { link: lan-br, mtu: 1500 }
        SetMtu { link: lan-bo, mtu: 1500 }
    "#]],
    );
}

#[test]
fn cards_of_the_host_of_other_bonds_and_of_other_uplinks_are_not_taken() {
    let mut seen = connected();
    seen.get_mut(&name("eth3")).unwrap().master = Some(99);
    check(
        &[uplink("dmz", &["eth0", "eth1", "eth3", "eth9"]), uplink("lan", &["eth1", "eth2"])],
        &seen,
        expect![[r#"
            CreateBridge { bridge: dmz-br, mtu: 1500 }
            CreateBond { bond: dmz-bo, mode: ActiveBackup, miimon: 100, mtu: 1500, mac: None }
            JoinBridge { bond: dmz-bo, bridge: dmz-br }
            AddVlan { port: dmz-bo, vlan: VlanId(1), role: Native }
            AddVlan { port: dmz-bo, vlan: VlanId(10), role: Tagged }
            SetUp { link: dmz-bo }
            SetUp { link: dmz-br }
            dmz-br: get link eth9 failed, error: Link not found
            dmz-br: eth3 has been enslaved by the link with index 99
            dmz-br: eth0 has the address 192.0.2.1/24 and is used by this node itself
            dmz-br: eth1 is already wanted for bridge lan-br; an interface belongs to one uplink only
        "#]],
    );
}

#[test]
fn a_missing_card_degrades_and_unusable_ones_do_not_replace_those_that_work() {
    let mut seen = connected();
    seen.remove(&name("eth2"));
    check(
        &[uplink("lan", &["eth1", "eth2"])],
        &seen,
        expect![[r#"
        lan-br: get link eth2 failed, error: Link not found
    "#]],
    );
    check(
        &[uplink("lan", &["eth9"])],
        &connected(),
        expect![[r#"
        lan-br: get link eth9 failed, error: Link not found
    "#]],
    );
}

#[test]
fn an_uplink_is_removed_when_no_network_uses_it() {
    check(
        &[],
        &connected(),
        expect![[r#"
        DeleteBond { bond: lan-bo }
        DeleteBridge { bridge: lan-br }
    "#]],
    );
    let mut used = connected();
    let tap = ObservedKind::Other("tun".into());
    used.insert(name("shf-a"), ObservedLink { index: 20, master: Some(10), ..link(tap) });
    check(
        &[],
        &used,
        expect![[r#"
        lan-br: bridge lan-br is not wanted any more, but shf-a is attached to it
    "#]],
    );
}

#[test]
fn a_card_moves_from_one_uplink_to_another() {
    check(
        &[uplink("dmz", &["eth2"]), uplink("lan", &["eth1"])],
        &connected(),
        expect![[r#"
        CreateBridge { bridge: dmz-br, mtu: 1500 }
        CreateBond { bond: dmz-bo, mode: ActiveBackup, miimon: 100, mtu: 1500, mac: None }
        RemoveMember { bond: lan-bo, nic: eth2 }
        AddMember { bond: dmz-bo, nic: eth2 }
        JoinBridge { bond: dmz-bo, bridge: dmz-br }
        AddVlan { port: dmz-bo, vlan: VlanId(1), role: Native }
        AddVlan { port: dmz-bo, vlan: VlanId(10), role: Tagged }
        SetUp { link: dmz-bo }
        SetUp { link: dmz-br }
    "#]],
    );
}

#[test]
fn links_of_others_keep_their_names() {
    let mut seen = connected();
    seen.get_mut(&name("lan-br")).unwrap().group = 0;
    check(
        &[uplink("lan", &["eth1"])],
        &seen,
        expect![[r#"
        lan-br: lan-br already exists and was not made by Sheaf; rename or remove it
    "#]],
    );
    seen.get_mut(&name("lan-br")).unwrap().kind = ObservedKind::Nic;
    check(
        &[uplink("lan", &["eth1"])],
        &seen,
        expect![[r#"
        lan-br: lan-br already exists but is not a bridge
    "#]],
    );
}

#[test]
fn modes_have_the_names_of_the_kernel() {
    for (mode, name, number) in BOND_MODES {
        assert_eq!((name.parse(), BondMode::from_number(number)), (Ok(mode), Some(mode)));
        assert_eq!((mode.to_string().as_str(), mode.number()), (name, number));
    }
    assert!("lacp".parse::<BondMode>().unwrap_err().to_string().contains("802.3ad"));
}

fn interface(network: &str, number: u64, address: &str) -> HostInterface {
    HostInterface {
        link: name(&format!("{network}-br.{number}")),
        bridge: name(&format!("{network}-br")),
        vlan: vlan(number),
        origin: AddressOrigin::Static,
        addresses: vec![address.parse().unwrap()],
    }
}

fn check_host(want: &[Uplink], own: &[HostInterface], seen: &ObservedLinks, expected: Expect) {
    let plan = plan_host(want, own, seen);
    let steps = plan.steps.iter().map(|step| format!("{step:?}\n"));
    let problems = plan.problems.iter().map(|(bridge, problem)| format!("{bridge}: {problem}\n"));
    expected.assert_eq(&steps.chain(problems).collect::<String>());
}

#[test]
fn an_interface_of_the_host_gets_its_vlan_and_its_address() {
    let want = [uplink("lan", &["eth1", "eth2"])];
    check_host(
        &want,
        &[interface("lan", 20, "198.51.100.1/24")],
        &connected(),
        expect![[r#"
            AddVlan { port: lan-bo, vlan: VlanId(20), role: Tagged }
            AddSelfVlan { bridge: lan-br, vlan: VlanId(20) }
            CreateInterface { link: lan-br.20, bridge: lan-br, vlan: VlanId(20) }
            SetUp { link: lan-br.20 }
            AddAddress { link: lan-br.20, address: 198.51.100.1/24 }
        "#]],
    );
    let mut seen = connected();
    let kind = ObservedKind::Vlan { vlan: Some(vlan(20)) };
    let addresses = vec!["198.51.100.1/24".parse().unwrap(), "198.51.100.200/32".parse().unwrap()];
    let made = ObservedLink {
        index: 30,
        group: UPLINK_GROUP,
        lower: Some(10),
        is_up: true,
        addresses,
        ..link(kind)
    };
    seen.insert(name("lan-br.20"), made);
    seen.get_mut(&name("lan-br")).unwrap().vlans.insert(vlan(20), VlanRole::Tagged);
    seen.get_mut(&name("lan-bo")).unwrap().vlans.insert(vlan(20), VlanRole::Tagged);
    // The address of a load balancer stays.
    check_host(&want, &[interface("lan", 20, "198.51.100.1/24")], &seen, expect![[""]]);
    // The new address is there before the old one is removed.
    check_host(
        &want,
        &[interface("lan", 20, "198.51.100.2/24")],
        &seen,
        expect![[r#"
            AddAddress { link: lan-br.20, address: 198.51.100.2/24 }
            RemoveAddress { link: lan-br.20, address: 198.51.100.1/24 }
        "#]],
    );
    check_host(
        &want,
        &[],
        &seen,
        expect![[r#"
            RemoveVlan { port: lan-bo, vlan: VlanId(20) }
            DeleteInterface { link: lan-br.20 }
            RemoveSelfVlan { bridge: lan-br, vlan: VlanId(20) }
        "#]],
    );
}

#[test]
fn an_address_that_would_lead_management_astray_is_refused() {
    check_host(
        &[uplink("lan", &["eth1", "eth2"])],
        &[interface("lan", 20, "192.0.2.99/25"), interface("dmz", 7, "198.51.100.1/24")],
        &connected(),
        expect![[r#"
            AddVlan { port: lan-bo, vlan: VlanId(20), role: Tagged }
            dmz-br: get link dmz-br failed, error: Link not found
            lan-br: 192.0.2.99/25 overlaps 192.0.2.1/24 of eth0, through which this node may be reached
        "#]],
    );
}
