use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use expect_test::expect_file;

use super::judge::{Decider, FirstPacket, Judgement};
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
    let nodes = BTreeSet::from([[10, 52, 0, 250].into()]);
    PolicyRules::new(&bridge(), &[], policies, &nodes, &BTreeSet::new())
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
    let no_peers = AllowRule {
        peers: Peers::Only { addresses: BTreeSet::new(), blocks: vec![] },
        ports: AllowedPorts::All,
    };
    let only = |rules: &[&AllowRule]| Ingress::Only(rules.iter().copied().cloned().collect());
    let restricted = [
        (2, GuestPolicy { ingress: only(&[&web]), ..Default::default() }),
        (3, GuestPolicy { ingress: only(&[]), egress: Some(vec![]), ..Default::default() }),
        (
            4,
            GuestPolicy {
                ingress: only(&[&everything]),
                egress: Some(vec![web.clone()]),
                ..Default::default()
            },
        ),
        (5, GuestPolicy { ingress: only(&[&no_peers]), ..Default::default() }),
        (
            6,
            GuestPolicy {
                ingress: Ingress::IsolatedTo([guest(6), guest(7)].into()),
                ..Default::default()
            },
        ),
        (7, GuestPolicy { egress: Some(vec![web.clone()]), ..Default::default() }),
    ];
    let policies = Policies {
        guests: (2..9).map(guest).collect(),
        restricted: restricted.map(|(last, policy)| (guest(last), policy)).into(),
        ..Policies::default()
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
    let closed = GuestPolicy { ingress: Ingress::Only(vec![]), ..Default::default() };
    let restricted = Policies { restricted: [(guest(2), closed)].into(), ..one.clone() };
    let digests: BTreeSet<_> = [&none, &one, &restricted].map(|it| rules(it).digest).into();
    assert_eq!(digests.len(), 3);
    assert_eq!(rules(&one).digest, rules(&one.clone()).digest);
}

fn tier_rule(policy: &str, number: usize, action: TierAction, peers: &[u8]) -> Arc<TierRule> {
    let addresses = peers.iter().copied().map(guest).collect();
    let source = RuleSource { policy: policy.to_owned(), priority: 10, number, name: None };
    let peers = Peers::Only { addresses, blocks: vec![] };
    Arc::new(TierRule { source, action, peers, ports: AllowedPorts::All })
}

fn only_tcp(port: u16, rule: &Arc<TierRule>) -> Arc<TierRule> {
    let range = PortRange { protocol: Protocol::Tcp, first: port, last: port };
    Arc::new(TierRule { ports: AllowedPorts::Only([range].into()), ..(**rule).clone() })
}

/// Guests with tiers around every sort of restriction.
fn with_tiers() -> Policies {
    use TierAction::{Accept, Deny, Pass};
    let ingress_tiers = Tiers {
        admin: vec![
            tier_rule("guard", 1, Deny, &[9]),
            tier_rule("guard", 2, Pass, &[3]),
            only_tcp(22, &tier_rule("guard", 3, Accept, &[3, 4])),
        ],
        baseline: vec![
            tier_rule("floor", 1, Accept, &[5]),
            tier_rule("floor", 2, Deny, &[3, 4, 5]),
        ],
    };
    let egress_tiers = Tiers {
        admin: vec![tier_rule("guard", 1, Pass, &[2]), tier_rule("guard", 2, Deny, &[2, 5])],
        baseline: vec![tier_rule("floor", 1, Pass, &[3]), tier_rule("floor", 2, Deny, &[3, 4])],
    };
    let from = |peer| AllowRule {
        peers: Peers::Only { addresses: [guest(peer)].into(), blocks: vec![] },
        ports: AllowedPorts::All,
    };
    let free = GuestPolicy {
        ingress_tiers: ingress_tiers.clone(),
        egress_tiers: egress_tiers.clone(),
        ..Default::default()
    };
    let isolated = GuestPolicy { ingress: Ingress::IsolatedTo([guest(3)].into()), ..free.clone() };
    let selected = GuestPolicy {
        ingress: Ingress::Only(vec![from(4)]),
        egress: Some(vec![from(2)]),
        ..free.clone()
    };
    Policies {
        guests: (2..8).map(guest).collect(),
        restricted: [(2, free), (3, isolated), (4, selected.clone()), (5, selected)]
            .map(|(last, policy)| (guest(last), policy))
            .into(),
        ..Policies::default()
    }
}

#[test]
fn rules_of_administrators_are_before_and_after_those_of_namespaces() {
    expect_file!["tests/tiers.nft"].assert_eq(&rules(&with_tiers()).text);
}

/// The decider, whether it accepts, and the numbers of rules that passed.
fn describe(judgement: &Judgement<'_>) -> String {
    let decider = match judgement.decider {
        Decider::Tier(tier, source) => format!("{tier} {} {}", source.policy, source.number),
        other => format!("{other:?}"),
    };
    let passed =
        judgement.passed.iter().map(|(tier, source)| format!(", {tier} {} passes", source.number));
    let verdict = if judgement.is_accepted { "accepts" } else { "drops" };
    format!("{decider} {verdict}{}", passed.collect::<String>())
}

#[test]
fn the_first_tier_with_a_rule_that_decides_is_named() {
    let policies = with_tiers();
    let packet = |from, to, port| FirstPacket {
        from: guest(from),
        to: guest(to),
        protocol: Protocol::Tcp,
        port,
    };
    for (from, to, port, expected) in [
        (9, 2, 80, "Admin guard 1 drops"),
        (4, 2, 22, "Admin guard 3 accepts"),
        (3, 2, 22, "Baseline floor 2 drops, Admin 2 passes"),
        (4, 2, 80, "Baseline floor 2 drops"),
        (5, 2, 80, "Baseline floor 1 accepts"),
        (6, 2, 80, "Nothing accepts"),
        (5, 3, 80, "Baseline floor 1 accepts"),
        (6, 3, 80, "Isolation drops"),
        (200, 3, 80, "Isolation drops"),
        (250, 3, 80, "Isolation accepts"),
        (5, 4, 80, "Namespace drops"),
        (4, 5, 80, "Namespace accepts"),
        (4, 4, 80, "Namespace accepts"),
        (9, 4, 80, "Admin guard 1 drops"),
        (2, 8, 80, "UnknownGuest drops"),
        (2, 6, 80, "Nothing accepts"),
    ] {
        let packet = packet(from, to, port);
        let nodes = BTreeSet::from([guest(250)]);
        let judged = policies.judge_ingress(&packet, bridge().gateway.trunc(), &nodes);
        assert_eq!(describe(&judged), expected, "{from} to {to}:{port}");
    }
    for (from, to, expected) in [
        (2, 5, "Admin guard 2 drops"),
        (2, 3, "Nothing accepts, Baseline 1 passes"),
        (2, 4, "Baseline floor 2 drops"),
        (2, 9, "Nothing accepts"),
        (4, 2, "Namespace accepts, Admin 1 passes"),
        (4, 3, "Namespace drops"),
        (8, 2, "UnknownGuest drops"),
    ] {
        let judged = packet(from, to, 80);
        assert_eq!(describe(&policies.judge_egress(&judged)), expected, "{from} to {to}");
    }
}

#[test]
fn comments_have_no_quotes_and_are_short() {
    let rule = tier_rule(&format!("a\"; drop{}", "x".repeat(250)), 25, TierAction::Accept, &[2]);
    let tiers = Tiers { admin: vec![rule], baseline: vec![] };
    let policy = GuestPolicy { egress_tiers: tiers, ..Default::default() };
    let restricted = [(guest(2), policy)].into();
    let policies = Policies { guests: [guest(2)].into(), restricted, ..Policies::default() };
    let text = rules(&policies).text;
    let comment = text.split("comment \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(comment.starts_with("Admin adropxx") && comment.len() < 127, "{comment}");
}
