use std::collections::BTreeSet;

use expect_test::expect_file;

use super::reroute::{Reroute, SeenReroute};
use super::rules::ServiceRules;
use super::*;
use crate::mac::Mac;
use crate::tap::Queues;
use crate::want::{Attachment, Bridge, InboundPolicy, Port};

fn bridge() -> Bridge {
    let mut bridge = Bridge::new("10.52.0.1/24".parse().unwrap());
    bridge.host_tcp = BTreeSet::from([6443]);
    bridge
}

fn here(last: u8, port: u16) -> Endpoint {
    Endpoint { address: [10, 52, 0, last].into(), port, location: Location::ThisNode }
}

fn elsewhere(last: u8, port: u16) -> Endpoint {
    Endpoint { address: [10, 53, 0, last].into(), port, location: Location::Elsewhere }
}

fn service(id: &str, last: u8, endpoints: Vec<Endpoint>) -> Service {
    Service {
        id: id.to_owned(),
        address: [10, 43, 0, last].into(),
        external_addresses: vec![],
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        affinity: None,
        internal: EndpointScope::Cluster,
        external: EndpointScope::Cluster,
        endpoints,
    }
}

/// The chains that nftables would list after `text`.
fn chains(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("chain "));
    names.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

fn one_of_each() -> Vec<Service> {
    let node_port = |number, service: Service| Service { node_port: Some(number), ..service };
    let external = |last, service: Service| Service {
        external_addresses: vec![[192, 0, 2, last].into()],
        ..service
    };
    vec![
        service("default/one", 2, vec![here(2, 8080)]),
        node_port(30080, service("default/many", 3, vec![here(2, 8080), elsewhere(9, 80)])),
        node_port(30081, service("default/none", 4, vec![])),
        Service {
            protocol: Protocol::Udp,
            port: 53,
            ..service("default/udp:dns", 2, vec![here(3, 53)])
        },
        Service {
            affinity: Some(600),
            ..service("default/sticky", 5, vec![here(2, 80), here(3, 80)])
        },
        Service {
            internal: EndpointScope::Local,
            ..service("default/local", 6, vec![here(2, 80), elsewhere(9, 80)])
        },
        Service {
            internal: EndpointScope::Local,
            external: EndpointScope::Local,
            node_port: Some(30082),
            ..service("default/not-here", 7, vec![elsewhere(9, 80)])
        },
        Service {
            external: EndpointScope::Local,
            node_port: Some(30083),
            ..service("default/outside", 8, vec![here(2, 80), elsewhere(9, 80)])
        },
        external(7, service("default/external", 9, vec![here(2, 80)])),
        external(8, service("default/external-none", 10, vec![])),
    ]
}

#[test]
fn rules_of_services_of_every_sort() {
    let rules = ServiceRules::new(&bridge(), &one_of_each(), None);
    expect_file!["tests/services.nft"].assert_eq(&rules.text);
}

#[test]
fn rules_without_services() {
    expect_file!["tests/none.nft"].assert_eq(&ServiceRules::new(&bridge(), &[], None).text);
}

#[test]
fn a_change_keeps_what_clients_of_staying_endpoints_chose() {
    let sticky = |endpoints| Service { affinity: Some(600), ..service("a/b", 5, endpoints) };
    let before = ServiceRules::new(&bridge(), &[sticky(vec![here(2, 80), here(3, 80)])], None);
    let seen = chains(&before.text);
    let after =
        ServiceRules::new(&bridge(), &[sticky(vec![here(3, 80), here(4, 80)])], Some(&seen));
    let gone = sticky(vec![]).endpoint_key(&here(2, 80));
    let stays = sticky(vec![]).endpoint_key(&here(3, 80));
    assert!(after.text.contains(&format!("delete chain inet sheaf_services endpoint_{gone}\n")));
    assert!(after.text.contains(&format!("delete set inet sheaf_services clients_{gone}\n")));
    assert!(!after.text.contains(&format!("delete set inet sheaf_services clients_{stays}\n")));
    assert!(!after.text.contains("delete table"));
    assert!(!before.is_in_force(Some(&chains(&after.text))));
    assert!(after.is_in_force(Some(&chains(&after.text))));
}

#[test]
fn a_table_of_another_layout_is_replaced_as_a_whole() {
    let foreign = BTreeSet::from(["layout_0".to_owned()]);
    let rules = ServiceRules::new(&bridge(), &[], Some(&foreign));
    assert!(rules.text.starts_with(
        "add table inet sheaf_services\ndelete table inet sheaf_services\ntable inet"
    ));
    assert!(!rules.is_in_force(Some(&foreign)));
    assert!(!rules.is_in_force(None));
}

#[test]
fn the_same_address_twice_does_not_spoil_the_rest() {
    let twice = [service("a/b", 5, vec![here(2, 80)]), service("a/c", 5, vec![here(3, 80)])];
    let text = ServiceRules::new(&bridge(), &twice, None).text;
    assert_eq!(text.matches("10.43.0.5 . tcp . 80 : goto").count(), 1);
}

#[test]
fn comments_cannot_leave_their_quotes() {
    let odd = service("a\"; drop; #/b", 5, vec![here(2, 80)]);
    assert_eq!(odd.comment(), "adrop/b");
}

fn port(number: u8) -> Port {
    Port {
        tap: format!("shf-{number}").parse().unwrap(),
        mac: Mac::new([2, 0, 0, 0, 0, number]),
        owner: 0,
        queues: Queues::Single,
        attachment: Attachment::Nat {
            address: [10, 52, 0, number].into(),
            inbound: InboundPolicy::All,
        },
    }
}

#[test]
fn rules_of_taps() {
    let (one, two) = (port(2), port(3));
    let reroute = Reroute::new(&bridge(), &[&one, &two], &one_of_each());
    expect_file!["tests/reroute.nft"].assert_eq(&reroute.text);
    let text = Reroute::new(&bridge(), &[], &[]).text;
    assert!(!text.contains("hook ingress"), "a hook needs devices");
}

#[test]
fn a_table_that_lost_a_tap_is_replaced() {
    let (one, two) = (port(2), port(3));
    let reroute = Reroute::new(&bridge(), &[&one, &two], &one_of_each());
    let seen = |taps: &[&str]| SeenReroute {
        chains: chains(&reroute.text),
        taps: taps.iter().map(|tap| (*tap).to_owned()).collect(),
    };
    assert!(reroute.is_in_force(Some(&seen(&["shf-2", "shf-3"]))));
    assert!(!reroute.is_in_force(Some(&seen(&["shf-2"]))));
    assert!(!reroute.is_in_force(None));
}
