use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use expect_test::expect_file;

use super::rules::PolicyRules;
use super::*;
use crate::want::Bridge;

fn bridge() -> Bridge {
    Bridge::new("10.52.0.1/24".parse().unwrap())
}

fn guest(last: u8) -> Ipv4Addr {
    [10, 52, 0, last].into()
}

fn port(protocol: Protocol, first: u16, last: u16) -> PortRange {
    PortRange { protocol, first, last }
}

fn rules(policies: &Policies) -> PolicyRules {
    PolicyRules::new(&bridge(), policies, &BTreeSet::from([[10, 52, 0, 250].into()]))
}

#[test]
fn rules_of_restrictions_of_every_sort() {
    let web = AllowRule {
        peers: Peers::Only {
            addresses: BTreeSet::from([guest(3), guest(4)]),
            blocks: vec![AddressBlock {
                cidr: "192.0.2.7/24".parse().unwrap(),
                except: vec!["192.0.2.0/25".parse().unwrap(), "192.0.2.1/32".parse().unwrap()],
            }],
        },
        ports: AllowedPorts::Only(BTreeSet::from([
            port(Protocol::Tcp, 80, 80),
            port(Protocol::Tcp, 8000, 8100),
            port(Protocol::Tcp, 8050, 8200),
            port(Protocol::Udp, 443, 443),
        ])),
    };
    let everything = AllowRule { peers: Peers::Any, ports: AllowedPorts::All };
    let nobody = AllowRule {
        peers: Peers::Only { addresses: BTreeSet::new(), blocks: vec![] },
        ports: AllowedPorts::All,
    };
    let only = |rules: &[&AllowRule]| Ingress::Only(rules.iter().copied().cloned().collect());
    let restricted = [
        (2, GuestPolicy { ingress: only(&[&web]), egress: None }),
        (3, GuestPolicy { ingress: only(&[]), egress: Some(vec![]) }),
        (4, GuestPolicy { ingress: only(&[&everything]), egress: Some(vec![web.clone()]) }),
        (5, GuestPolicy { ingress: only(&[&nobody]), egress: None }),
        (
            6,
            GuestPolicy { ingress: Ingress::IsolatedTo([guest(6), guest(7)].into()), egress: None },
        ),
        (7, GuestPolicy { ingress: Ingress::All, egress: Some(vec![web.clone()]) }),
    ];
    let policies = Policies {
        guests: (2..9).map(guest).collect(),
        restricted: restricted.map(|(last, policy)| (guest(last), policy)).into(),
    };
    expect_file!["tests/policies.nft"].assert_eq(&rules(&policies).text);
}

#[test]
fn rules_without_restrictions() {
    expect_file!["tests/none.nft"].assert_eq(&rules(&Policies::default()).text);
}

#[test]
fn the_digest_follows_the_policies() {
    let none = Policies::default();
    let one = Policies { guests: [guest(2)].into(), ..Policies::default() };
    let closed = GuestPolicy { ingress: Ingress::Only(vec![]), egress: None };
    let restricted = Policies { restricted: [(guest(2), closed)].into(), ..one.clone() };
    let digests: BTreeSet<_> = [&none, &one, &restricted].map(|it| rules(it).digest).into();
    assert_eq!(digests.len(), 3);
    assert_eq!(rules(&one).digest, rules(&one.clone()).digest);
}
