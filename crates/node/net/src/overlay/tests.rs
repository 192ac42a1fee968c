use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::plan::{OverlayAction, SeenOverlay, plan};
use super::rules::OverlayRules;
use super::*;
use crate::plan::{GROUP, LinkKind, NetworkInterface};

fn bridge() -> Bridge {
    Bridge::new("10.52.0.1/24".parse().unwrap())
}

fn guest(last: u8) -> Ipv4Addr {
    [10, 52, 0, last].into()
}

fn peer(number: u8, guests: &[u8]) -> OverlayPeer {
    OverlayPeer {
        underlay: IpAddr::from([192, 0, 2, number]),
        mac: Mac::new([2, 0, 0, 0, 1, number]),
        address: guest(200 + number),
        guests: guests.iter().copied().map(guest).collect(),
        expected: BTreeSet::new(),
    }
}

fn overlay(peers: Vec<OverlayPeer>) -> Overlay {
    let this = peer(1, &[]);
    Overlay { underlay: this.underlay, mac: this.mac, address: this.address, peers }
}

/// The tunnel exactly as `overlay` wants it.
fn made(overlay: &Overlay) -> SeenOverlay {
    let mut routes: BTreeMap<_, _> =
        overlay.peers.iter().map(|peer| (peer.address, None)).collect();
    for peer in &overlay.peers {
        routes.extend(peer.guests.iter().map(|guest| (*guest, Some(peer.address))));
    }
    SeenOverlay {
        device: Some(NetworkInterface {
            index: 7,
            kind: LinkKind::Tunnel { underlay: Some(overlay.underlay) },
            mac: Some(overlay.mac),
            mtu: 1450,
            is_up: true,
            group: GROUP,
            master: None,
            filters_vlans: false,
            vlans: crate::vlan::PortVlan::default(),
        }),
        addresses: vec![overlay.address],
        neighbours: overlay.peers.iter().map(|peer| (peer.address, peer.mac)).collect(),
        forwarding: overlay.peers.iter().map(|peer| (peer.mac, peer.underlay)).collect(),
        routes,
        rules: Some(OverlayRules::new(&bridge(), overlay).digest),
        underlay_mtu: Some(1500),
    }
}

fn say(action: &OverlayAction) -> String {
    match action {
        OverlayAction::ReplaceRules(rules) if rules.digest.is_empty() => "remove rules".to_owned(),
        OverlayAction::ReplaceRules(_) => "replace rules".to_owned(),
        OverlayAction::SetRoute { address, gateway: Some(over) } => {
            format!("route {address} over {over}")
        }
        OverlayAction::SetRoute { address, gateway: None } => format!("route {address}"),
        other => format!("{other:?}"),
    }
}

fn check(want: &GuestOverlay, seen: &SeenOverlay, expected: Expect) {
    let actions = plan(&bridge(), want, seen);
    expected.assert_eq(&actions.iter().map(say).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_first_other_node_brings_a_tunnel_and_the_last_takes_it_away() {
    let connected = overlay(vec![peer(2, &[7, 8])]);
    check(
        &GuestOverlay::Connected(connected.clone()),
        &SeenOverlay::default(),
        expect![[r"
        replace rules
        CreateDevice { underlay: 192.0.2.1, mac: 02:00:00:00:01:01, mtu: 1450 }
        AddAddress { address: 10.52.0.201 }
        SetForwarding { mac: 02:00:00:00:01:02, underlay: 192.0.2.2 }
        SetNeighbour { address: 10.52.0.202, mac: 02:00:00:00:01:02 }
        route 10.52.0.202
        route 10.52.0.7 over 10.52.0.202
        route 10.52.0.8 over 10.52.0.202"]],
    );
    let seen = made(&connected);
    check(&GuestOverlay::Connected(connected), &seen, expect![[""]]);
    check(&GuestOverlay::Unknown, &seen, expect![[""]]);
    check(
        &GuestOverlay::Alone,
        &seen,
        expect![[r"
        DeleteDevice
        remove rules"]],
    );
    check(&GuestOverlay::Alone, &SeenOverlay::default(), expect![[""]]);
}

#[test]
fn a_guest_that_moves_changes_one_route_and_the_rules() {
    let before = made(&overlay(vec![peer(2, &[7]), peer(3, &[])]));
    let after = overlay(vec![peer(2, &[]), peer(3, &[7])]);
    check(
        &GuestOverlay::Connected(after),
        &before,
        expect![[r"
        replace rules
        route 10.52.0.7 over 10.52.0.203"]],
    );
    // It comes to this node.
    let here = overlay(vec![peer(2, &[]), peer(3, &[])]);
    check(
        &GuestOverlay::Connected(here),
        &before,
        expect![[r"
        replace rules
        RemoveRoute { address: 10.52.0.7 }"]],
    );
}

#[test]
fn a_node_that_leaves_takes_its_entries_along() {
    let before = made(&overlay(vec![peer(2, &[7]), peer(3, &[8])]));
    let after = overlay(vec![peer(3, &[8])]);
    check(
        &GuestOverlay::Connected(after),
        &before,
        expect![[r"
        replace rules
        RemoveRoute { address: 10.52.0.7 }
        RemoveRoute { address: 10.52.0.202 }
        RemoveNeighbour { address: 10.52.0.202 }
        RemoveForwarding { mac: 02:00:00:00:01:02, underlay: 192.0.2.2 }"]],
    );
}

#[test]
fn a_device_of_another_address_is_made_anew_and_a_changed_mtu_is_set() {
    let connected = overlay(vec![peer(2, &[])]);
    let mut seen = made(&connected);
    seen.underlay_mtu = Some(9000);
    check(
        &GuestOverlay::Connected(connected.clone()),
        &seen,
        expect![[r"
        ChangeDevice { mac: 02:00:00:00:01:01, mtu: 8950 }"]],
    );
    let moved = Overlay { underlay: IpAddr::from([192, 0, 2, 9]), ..connected };
    check(
        &GuestOverlay::Connected(moved),
        &seen,
        expect![[r"
        DeleteDevice
        CreateDevice { underlay: 192.0.2.9, mac: 02:00:00:00:01:01, mtu: 8950 }
        AddAddress { address: 10.52.0.201 }
        SetForwarding { mac: 02:00:00:00:01:02, underlay: 192.0.2.2 }
        SetNeighbour { address: 10.52.0.202, mac: 02:00:00:00:01:02 }
        route 10.52.0.202"]],
    );
}

#[test]
fn headers_of_both_families_are_taken_off_the_mtu() {
    let (four, six) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap());
    for (underlay, link, expected) in
        [(four, 1500, 1450), (six, 1500, 1430), (four, 9000, 8950), (four, 500, 576)]
    {
        assert_eq!(mtu(underlay, link), expected);
    }
}

#[test]
fn only_guests_of_the_sending_node_come_out_of_the_tunnel() {
    let mut third = peer(3, &[8]);
    third.expected.insert(guest(7));
    let rules = OverlayRules::new(&bridge(), &overlay(vec![peer(2, &[7]), third]));
    expect_test::expect_file!["tests/overlay.nft"].assert_eq(&rules.text);
}
