//! Uplinks and VLANs with real frames: two nodes and a switch, each a network namespace.
//!
//! These need a kernel with 8021q, bonding and bridges that filter VLANs: `make net-test` boots one.

use net::{
    Attachment, BondMode, DesiredNetwork, Network, Port, PortVlan, SpoofGuard, Uplink,
    UplinkReport, Uplinks, VlanId,
};

use crate::world::{Guest, Namespace, bridge, eventually, in_world, port};

/// Runs `work` in the namespace of a node, as a process of its own would.
fn on<T: Send, Work: Future<Output = T>>(
    node: &Namespace,
    work: impl FnOnce(base::Tasks) -> Work + Send,
) -> T {
    node.within(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tasks = base::Tasks::default();
            let done = work(tasks.clone()).await;
            tasks.stop(std::time::Duration::from_secs(2)).await;
            done
        })
    })
}

fn vlan(number: u64) -> VlanId {
    number.try_into().unwrap()
}

fn access(number: u64) -> PortVlan {
    PortVlan::access(vlan(number))
}

/// Two nodes with two cables each to a switch that carries VLANs 10 and 11.
struct Lab {
    switch: Namespace,
    nodes: [Namespace; 2],
    ports: [Vec<Port>; 2],
}

impl Lab {
    fn new() -> Self {
        let (switch, nodes) = (Namespace::new("switch"), ["a", "b"].map(Namespace::new));
        switch.run("ip link add sw0 type bridge vlan_filtering 1");
        switch.run("ip link set sw0 up");
        for (node, side) in nodes.iter().zip(["a", "b"]) {
            for number in [1, 2] {
                let (cable, nic) = (format!("{side}{number}"), format!("eth{number}"));
                let peer = format!("peer name {nic} netns {}", node.name);
                switch.run(&format!("ip link add {cable} type veth {peer}"));
                switch.run(&format!("ip link set {cable} master sw0 up"));
                switch.run(&format!("bridge vlan add dev {cable} vid 10-11"));
            }
        }
        Self { switch, nodes, ports: [vec![], vec![]] }
    }

    fn apply(&self, node: usize, want: &[Uplink]) -> UplinkReport {
        on(&self.nodes[node], async |tasks| {
            Uplinks::start(&tasks).unwrap().apply(want).await.unwrap()
        })
    }

    /// Both nodes with both cables.
    fn connected() -> Self {
        let lab = Self::new();
        for node in [0, 1] {
            let report = lab.apply(node, &[uplink(&["eth1", "eth2"])]);
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
        lab
    }

    /// A guest with an address of one network for all, so that only VLANs keep guests apart.
    fn guest(&mut self, node: usize, number: u8, vlans: PortVlan) -> Guest {
        let guard =
            SpoofGuard { own_mac_only: true, no_servers: false, access_port: vlans.is_access() };
        let attachment = Attachment::Bridge { name: "lan-br".parse().unwrap(), guard, vlans };
        let own = Port { attachment, ..port(number) };
        self.ports[node].push(own.clone());
        let want = DesiredNetwork::new(bridge(), self.ports[node].clone());
        let guest = on(&self.nodes[node], async |tasks| {
            let _network = Network::start(want, &tasks).await.unwrap();
            Guest::plug(own)
        });
        guest.inside.run(&format!("ip address add 198.51.100.{number}/24 dev eth0"));
        guest
    }
}

fn uplink(nics: &[&str]) -> Uplink {
    Uplink {
        bridge: "lan-br".parse().unwrap(),
        bond: "lan-bo".parse().unwrap(),
        nics: nics.iter().map(|nic| nic.parse().unwrap()).collect(),
        mode: BondMode::ActiveBackup,
        miimon: 100,
        mtu: 1500,
        mac: None,
        tx_queue_len: None,
        vlans: [10, 11].map(vlan).into(),
    }
}

fn pings(from: &Guest, to: u8) -> bool {
    from.inside.pings([198, 51, 100, to].into())
}

fn reaches(from: &Guest, to: u8) -> bool {
    from.inside.reaches([198, 51, 100, to].into())
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn guests_reach_those_of_their_vlan_only() {
    in_world(async |_| {
        let mut lab = Lab::connected();
        let networks = [access(10), access(11), PortVlan::untagged()];
        let mut guests = Vec::new();
        for (node, first) in [(0, 11), (1, 21)] {
            for (at, vlans) in networks.iter().enumerate() {
                let number = first + u8::try_from(at).unwrap();
                guests.push((at, number, lab.guest(node, number, vlans.clone())));
            }
        }
        for (network, number, guest) in &guests {
            for (other, to, _) in guests.iter().filter(|(_, to, _)| to > number) {
                let is_answered =
                    if network == other { reaches(guest, *to) } else { pings(guest, *to) };
                assert_eq!(is_answered, network == other, "{number} to {to}");
            }
        }
        // A trunk is in every network that it has, and in no other.
        let trunk = lab.guest(0, 31, PortVlan::trunk([vlan(10)]));
        assert!(reaches(&trunk, 23), "untagged");
        trunk.inside.run("ip address flush dev eth0");
        for (number, is_member) in [(10, true), (11, false)] {
            trunk
                .inside
                .run(&format!("ip link add link eth0 name t{number} type vlan id {number}"));
            trunk.inside.run(&format!("ip address add 198.51.100.31/24 dev t{number}"));
            trunk.inside.run(&format!("ip link set t{number} up"));
            let to = if number == 10 { 21 } else { 22 };
            assert_eq!(reaches(&trunk, to), is_member, "VLAN {number}");
            trunk.inside.run(&format!("ip link delete t{number}"));
        }
        // The port of a guest carries the VLAN of its network only.
        let shown = lab.nodes[0].run("bridge vlan show dev shf-11");
        assert!(shown.contains("10 PVID Egress Untagged"), "{shown}");
        assert_eq!(shown.matches("Untagged").count(), 1, "{shown}");
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn an_access_guest_that_sends_tags_reaches_no_guest() {
    in_world(async |_| {
        let mut lab = Lab::connected();
        let attacker = lab.guest(0, 11, access(10));
        let _targets = [lab.guest(1, 21, access(10)), lab.guest(1, 22, access(11))];
        assert!(reaches(&attacker, 21), "untagged");
        attacker.inside.run("ip address flush dev eth0");
        for (number, to) in [(10, 21), (11, 22)] {
            attacker.inside.run(&format!("ip link add link eth0 name tag0 type vlan id {number}"));
            attacker.inside.run("ip address add 198.51.100.11/24 dev tag0");
            attacker.inside.run("ip link set tag0 up");
            assert!(!pings(&attacker, to), "tag {number}");
            // And once more behind its own tag.
            attacker.inside.run("ip address flush dev tag0");
            attacker.inside.run("ip link add link tag0 name tag1 type vlan id 11");
            attacker.inside.run("ip address add 198.51.100.11/24 dev tag1");
            attacker.inside.run("ip link set tag1 up");
            assert!(!pings(&attacker, to), "tag {number} and another");
            attacker.inside.run("ip link delete tag0");
        }
        let rules = lab.nodes[0].run("nft list chain bridge sheaf from_access");
        let drops = rules.lines().find(|line| line.contains("8021q")).unwrap();
        assert!(!drops.contains("packets 0 "), "{rules}");
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn a_cut_cable_is_survived_and_seen() {
    in_world(async |_| {
        let mut lab = Lab::connected();
        let guest = lab.guest(0, 11, access(10));
        let _other = lab.guest(1, 21, access(10));
        assert!(reaches(&guest, 21));
        for (cut, mended) in [("a1", "a2"), ("a2", "a1")] {
            lab.switch.run(&format!("ip link set {mended} up"));
            let carrier = |nic: &str| {
                let links = on(&lab.nodes[0], async |tasks| {
                    Uplinks::start(&tasks).unwrap().observe().await.unwrap()
                });
                links[&nic.parse().unwrap()].has_carrier
            };
            let nic = |cable: &str| format!("eth{}", &cable[1..]);
            eventually("the mended cable", || carrier(&nic(mended))).await;
            lab.switch.run(&format!("ip link set {cut} down"));
            eventually("the other cable", || pings(&guest, 21)).await;
            assert!(!carrier(&nic(cut)), "{cut}");
        }
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn changes_are_made_in_place() {
    in_world(async |_| {
        let mut lab = Lab::connected();
        let guest = lab.guest(0, 11, access(10));
        let _other = lab.guest(1, 21, access(10));
        assert!(reaches(&guest, 21));
        let index = |report: &UplinkReport, name: &str| report.links[&name.parse().unwrap()].index;
        let settled = lab.apply(0, &[uplink(&["eth1", "eth2"])]);
        assert_eq!((settled.steps, settled.problems.len()), (0, 0), "all is as it should be");
        let lacp = Uplink { mode: BondMode::Lacp, ..uplink(&["eth2"]) };
        let wide = Uplink { mtu: 9000, ..lacp.clone() };
        let without = Uplink { vlans: [11].map(vlan).into(), ..lacp.clone() };
        for (what, want, works) in [
            ("one card", uplink(&["eth2"]), true),
            ("another card", uplink(&["eth1"]), true),
            ("another mode", lacp.clone(), true),
            ("a larger MTU", wide, true),
            ("a VLAN less", without, false),
            ("all as before", uplink(&["eth1", "eth2"]), true),
        ] {
            let report = lab.apply(0, std::slice::from_ref(&want));
            assert!(report.steps > 0 && report.problems.is_empty(), "{what}: {report:?}");
            assert_eq!(lab.apply(0, &[want]).steps, 0, "{what} is done at once");
            assert_eq!(
                if works { reaches(&guest, 21) } else { pings(&guest, 21) },
                works,
                "{what}"
            );
            for link in ["lan-br", "lan-bo", "shf-11"] {
                assert_eq!(index(&report, link), index(&settled, link), "{what}: {link}");
            }
        }
        // Nothing is taken away from a guest that runs.
        let kept = lab.apply(0, &[]);
        assert_eq!(kept.steps, 0);
        let problem = kept.problems[&"lan-br".parse().unwrap()].join("");
        assert!(problem.contains("shf-11 is attached to it"), "{problem}");
        assert!(reaches(&guest, 21));
        drop(guest);
        lab.nodes[0].run("ip link delete shf-11");
        assert_eq!(lab.apply(0, &[]).steps, 2);
        let links = lab.nodes[0].run("ip -br link");
        assert!(!links.contains("lan-b"), "{links}");
        let is_up = |line: &str| line.starts_with("eth") && line.contains(",UP");
        assert_eq!(links.lines().filter(|line| is_up(line)).count(), 2, "{links}");
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn cards_that_others_use_are_left_alone() {
    in_world(async |_| {
        let lab = Lab::new();
        let node = &lab.nodes[0];
        node.run("ip link add bond0 type bond");
        node.run("ip link set eth1 down");
        node.run("ip link set eth1 master bond0");
        node.run("ip address add 192.0.2.1/24 dev eth2");
        let before = node.run("ip -br address");
        let report = lab.apply(0, &[uplink(&["eth1", "eth2", "eth9"])]);
        let index = report.links[&"bond0".parse().unwrap()].index;
        let problems = &report.problems[&"lan-br".parse().unwrap()];
        let expected = [
            "get link eth9 failed, error: Link not found".to_owned(),
            format!("eth1 has been enslaved by the link with index {index}"),
            "eth2 has the address 192.0.2.1/24 and is used by this node itself".to_owned(),
        ];
        assert_eq!(*problems, expected);
        let after = node.run("ip -br address");
        let others = |text: &str| {
            let kept = text.lines().filter(|line| !line.starts_with("lan-"));
            kept.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(others(&after), others(&before));
    });
}
