use std::collections::BTreeSet;

use expect_test::expect_file;

use super::*;
use crate::mac::Mac;
use crate::tap::Queues;
use crate::vlan::PortVlan;
use crate::want::Protocol;

fn port(tap: &str, last: u8, attachment: Attachment) -> Port {
    Port {
        tap: tap.parse().unwrap(),
        mac: Mac::new([2, 0, 0, 0, 0, last]),
        owner: 1000,
        queues: Queues::Single,
        attachment,
    }
}

fn nat(tap: &str, last: u8, inbound: InboundPolicy) -> Port {
    let address = [10, 52, 0, last].into();
    port(tap, last, Attachment::Nat { address, inbound })
}

fn foreign(tap: &str, last: u8, guard: SpoofGuard) -> Port {
    port(
        tap,
        last,
        Attachment::Bridge { name: "br-lan".parse().unwrap(), guard, vlans: PortVlan::untagged() },
    )
}

fn want(ports: Vec<Port>) -> DesiredNetwork {
    DesiredNetwork::new(Bridge::new("10.52.0.1/24".parse().unwrap()), ports)
}

#[test]
fn rules_of_an_empty_network() {
    expect_file!["tests/empty.nft"].assert_eq(&Ruleset::new(&want(vec![])).text);
}

#[test]
fn rules_of_guests_of_every_sort() {
    let some = BTreeSet::from([(Protocol::Udp, 53), (Protocol::Tcp, 22), (Protocol::Tcp, 80)]);
    let mut want = want(vec![
        nat("shf-open", 2, InboundPolicy::All),
        nat("shf-some", 3, InboundPolicy::Only(some)),
        nat("shf-none", 4, InboundPolicy::Only(BTreeSet::new())),
        foreign(
            "shf-mac",
            5,
            SpoofGuard { own_mac_only: true, no_servers: false, access_port: true },
        ),
        foreign(
            "shf-srv",
            6,
            SpoofGuard { own_mac_only: false, no_servers: true, access_port: false },
        ),
        foreign("shf-free", 7, SpoofGuard::default()),
    ]);
    want.bridge.host_tcp = BTreeSet::from([6443]);
    // A port of the NAT network has its own server.
    for tap in ["shf-mac", "shf-open"] {
        want.dhcp.insert(tap.parse().unwrap(), [10, 7, 0, 2].into());
    }
    want.bridge.direct = vec!["10.52.0.0/16".parse().unwrap(), "10.52.1.0/24".parse().unwrap()];
    expect_file!["tests/guests.nft"].assert_eq(&Ruleset::new(&want).text);
}

#[test]
fn the_digest_follows_the_rules_and_nothing_else() {
    let one = want(vec![nat("shf-a", 2, InboundPolicy::All)]);
    let mut other_owner = one.clone();
    other_owner.ports[0].owner = 7;
    let mut closed = one.clone();
    closed.ports[0] = nat("shf-a", 2, InboundPolicy::Only(BTreeSet::new()));
    assert_eq!(Ruleset::new(&one), Ruleset::new(&other_owner));
    assert_ne!(Ruleset::new(&one).digest, Ruleset::new(&closed).digest);
}
