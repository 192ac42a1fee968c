use std::collections::BTreeSet;

use expect_test::expect_file;

use super::judge::{BridgedPacket, TapVerdict};
use super::rules::TapTable;
use super::*;
use crate::policy::PortRange;
use crate::want::Protocol;

fn tap(name: &str) -> LinkName {
    name.parse().unwrap()
}

fn tcp(port: u16) -> AllowedPorts {
    AllowedPorts::Only([PortRange { protocol: Protocol::Tcp, first: port, last: port }].into())
}

fn only(addresses: &[&str], blocks: &[(&str, &[&str])]) -> TapPeers {
    let block = |(cidr, except): &(&str, &[&str])| TapBlock {
        cidr: cidr.parse().unwrap(),
        except: except.iter().map(|own| own.parse().unwrap()).collect(),
    };
    TapPeers::Only {
        addresses: addresses.iter().map(|own| own.parse().unwrap()).collect(),
        blocks: blocks.iter().map(block).collect(),
    }
}

fn rules(policies: &[&str], rules: &[(&str, TapPeers, AllowedPorts)]) -> TapRules {
    let rule = |(policy, peers, ports): &(&str, TapPeers, AllowedPorts)| TapRule {
        policy: (*policy).to_owned(),
        peers: peers.clone(),
        ports: ports.clone(),
    };
    TapRules {
        policies: policies.iter().map(|&name| name.to_owned()).collect(),
        rules: rules.iter().map(rule).collect(),
    }
}

/// An interface that accepts two guests and a network, and one that may reach a network only.
fn policies() -> TapPolicies {
    let guests = only(&["192.0.2.3", "fd00::3"], &[]);
    let network = only(
        &[],
        &[
            ("198.51.100.7/24", &["198.51.100.0/25", "198.51.100.1/32"]),
            ("fd01::/16", &["fd01:2::/32"]),
        ],
    );
    let web = [("n/web", guests, tcp(80)), ("n/open", network.clone(), AllowedPorts::All)];
    let web = TapPolicy { ingress: Some(rules(&["n/web", "n/open"], &web)), egress: None };
    let build = rules(&["n/build"], &[("n/build", network, tcp(443))]);
    let build = TapPolicy { ingress: None, egress: Some(build) };
    [(tap("shf-2"), web), (tap("shf-3"), build), (tap("shf-4"), TapPolicy::default())].into()
}

fn text(policies: &TapPolicies, seen: &[&str]) -> String {
    let (prefix, nat) = (tap("shf-"), tap("shf-nat"));
    let table = TapTable { prefix: &prefix, elsewhere: BTreeSet::from([&nat]), policies };
    let seen = seen.iter().map(|&chain| chain.to_owned()).collect();
    table.ruleset().transaction("sheaf_policies", "digest_a", &seen)
}

#[test]
fn rules_of_interfaces_on_bridges() {
    expect_file!["tests/taps.nft"].assert_eq(&text(&policies(), &[]));
}

#[test]
fn rules_without_restrictions_only_name_the_interfaces() {
    let none = text(&[(tap("shf-4"), TapPolicy::default())].into(), &[]);
    expect_file!["tests/unrestricted.nft"].assert_eq(&none);
}

#[test]
fn chains_and_sets_of_others_are_deleted_after_the_rules_that_name_them() {
    let seen = ["digest_a", "digest_old", "from_shf_2", "from_shf_9", "to_shf_9", "prerouting"];
    let deleted: Vec<_> = text(&policies(), &seen)
        .lines()
        .skip_while(|line| !line.starts_with("flush table"))
        .filter_map(|line| line.strip_prefix("delete "))
        .map(|line| line.replace("bridge sheaf_policies ", ""))
        .collect();
    assert_eq!(
        deleted,
        [
            "chain digest_old",
            "chain from_shf_9",
            "chain to_shf_9",
            "set flows4_shf_9",
            "set ending4_shf_9",
            "set pairs4_shf_9",
            "set ends4_shf_9",
            "set flows6_shf_9",
            "set ending6_shf_9",
            "set pairs6_shf_9",
            "set ends6_shf_9",
        ]
    );
}

/// The names of chains in a transaction that creates them, and of sets that it adds.
fn written(text: &str) -> (Vec<&str>, Vec<&str>) {
    let chains = text.lines().filter_map(|line| line.strip_prefix("\tchain ")?.strip_suffix(" {"));
    let sets = text.lines().filter_map(|line| line.strip_prefix("add set bridge sheaf_policies "));
    (chains.collect(), sets.filter_map(|line| line.split(' ').next()).collect())
}

#[test]
fn a_change_writes_what_it_changes() {
    let all = text(&policies(), &[]);
    let (mut chains, _) = written(&all);
    let judge = chains.iter().position(|name| name.starts_with("ingress_")).unwrap();
    let old = chains.remove(judge);
    let other = text(&policies(), &chains);
    assert!(!other.contains("flush table"), "{other}");
    let lasting = ["judge_from", "prerouting", "judge_to", "postrouting"];
    assert_eq!(written(&other), ([&[old][..], &lasting].concat(), vec![]));

    // The policies of one interface are gone: its chains and sets are, and nothing else is written.
    chains.push(old);
    let mut fewer = policies();
    fewer.insert(tap("shf-2"), TapPolicy::default());
    let fewer = text(&fewer, &chains);
    assert_eq!(written(&fewer), (lasting.to_vec(), vec![]));
    let deleted: Vec<_> = fewer.lines().filter(|line| line.starts_with("delete ")).collect();
    assert_eq!(deleted.len(), 1 + 14 + 8, "{deleted:#?}");
    assert!(deleted.iter().all(|line| line.contains(old) || line.ends_with("_shf_2")));

    // A table that another version wrote is written anew.
    chains.retain(|name| !name.starts_with("layout_"));
    let anew = text(&policies(), &chains);
    assert!(anew.contains("flush table"), "{anew}");
    assert_eq!(written(&anew), written(&all));
}

#[test]
fn the_policy_that_decides_is_named() {
    let policies = policies();
    let packet = |from: &str, to: &str, port| BridgedPacket {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        protocol: Protocol::Tcp,
        port,
    };
    let say = |verdict| match verdict {
        TapVerdict::Unrestricted => "unrestricted".to_owned(),
        TapVerdict::Allowed(policy) => format!("allowed by {policy}"),
        TapVerdict::Dropped(all) => {
            format!("dropped by {}", all.iter().cloned().collect::<Vec<_>>().join(" "))
        }
    };
    let (web, build) = (&policies[&tap("shf-2")], &policies[&tap("shf-3")]);
    for (from, port, expected) in [
        ("192.0.2.3", 80, "allowed by n/web"),
        ("192.0.2.3", 81, "dropped by n/open n/web"),
        ("192.0.2.4", 80, "dropped by n/open n/web"),
        ("fd00::3", 80, "allowed by n/web"),
        ("fd00::4", 80, "dropped by n/open n/web"),
        ("198.51.100.200", 9, "allowed by n/open"),
        ("198.51.100.9", 9, "dropped by n/open n/web"),
        ("fd01:1::1", 9, "allowed by n/open"),
        ("fd01:2::1", 9, "dropped by n/open n/web"),
    ] {
        let packet = packet(from, "192.0.2.2", port);
        assert_eq!(say(web.judge_ingress(&packet)), expected, "{from} {port}");
        assert_eq!(say(web.judge_egress(&packet)), "unrestricted");
    }
    for (to, port, expected) in [
        ("198.51.100.200", 443, "allowed by n/build"),
        ("198.51.100.200", 80, "dropped by n/build"),
        ("192.0.2.2", 443, "dropped by n/build"),
    ] {
        assert_eq!(
            say(build.judge_egress(&packet("192.0.2.3", to, port))),
            expected,
            "{to} {port}"
        );
    }
}

#[test]
fn comments_have_no_quotes_and_are_short() {
    let long = format!("n/a\"; drop{}", "x".repeat(250));
    let closed = TapPolicy { ingress: Some(rules(&[&long], &[])), egress: None };
    let text = text(&[(tap("shf-2"), closed)].into(), &[]);
    let comment = text.split("comment \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(comment.starts_with("n/a dropxx") && comment.len() < 127, "{comment}");
}
