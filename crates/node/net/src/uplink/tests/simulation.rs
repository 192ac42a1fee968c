//! SeededRandom edits and failures against a model of the kernel, which checks after every step that
//! nothing is cut off and that no port carries a VLAN that it should not.
//!
//! The seed and the number of rounds can be given: `SHEAF_SEED=7 SHEAF_UPLINK_ROUNDS=100000`.

use std::collections::BTreeSet;

use super::*;
use crate::plan::GROUP;
use crate::vlan::VlanRole;

const ROUNDS: u64 = 4000;

/// A sequence of numbers that depends on the seed only.
struct SeededRandom(u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn some<T: Copy>(&mut self, all: &[T]) -> Vec<T> {
        all.iter().copied().filter(|_| self.chance(40)).collect()
    }
}

/// A model of the kernel; it refuses the same operations as the kernel.
#[derive(Clone)]
struct Kernel {
    links: ObservedLinks,
    next_index: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct KernelRefusal(&'static str);

impl Kernel {
    /// A node that is managed over a card, a bond of others and a VLAN interface.
    fn new() -> Self {
        let mut kernel = Self { links: ObservedLinks::new(), next_index: 1 };
        for nic in ["eth0", "eth1", "eth2", "eth3", "eth4", "eth5", "eth6", "eth7"] {
            kernel.add(nic, card());
        }
        kernel.at("eth0").addresses = vec!["192.0.2.10/24".parse().unwrap()];
        let bond = ObservedKind::Bond { mode: Some(BondMode::Lacp), miimon: 100 };
        let bond = kernel.add("bond0", ObservedLink { is_up: true, ..link(bond) });
        kernel.at("eth6").master = Some(bond);
        let lower = Some(kernel.at("eth7").index);
        let tagged = ObservedKind::Vlan { vlan: Some(vlan(5)) };
        kernel.add("eth7.5", ObservedLink { lower, is_up: true, ..link(tagged) });
        // The bridge of the guest network has the group of taps.
        let plain = ObservedKind::Bridge { filters_vlans: false, default_vlan: 1 };
        kernel.add("sheaf0", ObservedLink { group: GROUP, is_up: true, ..link(plain) });
        kernel
    }

    fn add(&mut self, name: &str, mut link: ObservedLink) -> u32 {
        link.index = self.next_index;
        self.next_index += 1;
        self.links.insert(super::name(name), link);
        self.next_index - 1
    }

    fn at(&mut self, name: &str) -> &mut ObservedLink {
        self.links.get_mut(&super::name(name)).unwrap()
    }

    fn get(&mut self, name: &LinkName) -> Result<&mut ObservedLink, KernelRefusal> {
        self.links.get_mut(name).ok_or(KernelRefusal("no such device"))
    }

    fn ports(&self, index: u32) -> impl Iterator<Item = (&LinkName, &ObservedLink)> {
        self.links.iter().filter(move |(_, link)| link.master == Some(index))
    }

    fn release(&mut self, index: u32) {
        for link in self.links.values_mut().filter(|link| link.master == Some(index)) {
            link.master = None;
            link.member = None;
            link.vlans = PortVlan::default();
        }
    }

    fn delete(&mut self, name: &LinkName) {
        if let Some(link) = self.links.remove(name) {
            self.release(link.index);
            self.links.retain(|_, upper| upper.lower != Some(link.index));
        }
    }

    fn apply(&mut self, step: &UplinkStep) -> Result<(), KernelRefusal> {
        match step {
            UplinkStep::CreateBridge { bridge, mtu } => {
                let kind = ObservedKind::Bridge { filters_vlans: true, default_vlan: 0 };
                let mtu = u32::from(*mtu);
                self.add(bridge.as_str(), ObservedLink { mtu, group: UPLINK_GROUP, ..link(kind) });
            }
            UplinkStep::FilterVlans { bridge } => self.filter(bridge)?,
            UplinkStep::CreateBond { bond, mode, miimon, mtu, mac } => {
                let kind = ObservedKind::Bond { mode: Some(*mode), miimon: *miimon };
                let (mtu, mac) = (u32::from(*mtu), *mac);
                let made = ObservedLink { mtu, mac, group: UPLINK_GROUP, ..link(kind) };
                self.add(bond.as_str(), made);
            }
            UplinkStep::SetMode { bond, mode, miimon } => {
                let index = self.get(bond)?.index;
                if self.ports(index).next().is_some() {
                    return Err(KernelRefusal("the bond device has slaves"));
                }
                self.get(bond)?.kind = ObservedKind::Bond { mode: Some(*mode), miimon: *miimon };
            }
            UplinkStep::SetMiimon { bond, miimon: wanted } => match &mut self.get(bond)?.kind {
                ObservedKind::Bond { miimon, .. } => *miimon = *wanted,
                other => panic!("{bond} is {other:?}"),
            },
            UplinkStep::SetMac { link, mac } => self.get(link)?.mac = Some(*mac),
            UplinkStep::SetTxQueueLen { link, length } => self.get(link)?.tx_queue_len = *length,
            UplinkStep::SetMtu { link, mtu } => self.get(link)?.mtu = u32::from(*mtu),
            UplinkStep::SetUp { link } => self.get(link)?.is_up = true,
            UplinkStep::AddMember { bond, nic } => self.add_member(bond, nic)?,
            UplinkStep::RemoveMember { nic, .. } => {
                let card = self.get(nic)?;
                (card.master, card.member) = (None, None);
            }
            UplinkStep::JoinBridge { bond, bridge } => {
                let index = self.get(bridge)?.index;
                let kind = self.get(bridge)?.kind.clone();
                let fails_closed = ObservedKind::Bridge { filters_vlans: true, default_vlan: 0 };
                assert_eq!(kind, fails_closed, "{bond} joins {bridge}");
                let bond = self.get(bond)?;
                (bond.master, bond.vlans) = (Some(index), PortVlan::default());
            }
            UplinkStep::AddVlan { port, vlan, role } => self.get(port)?.vlans.insert(*vlan, *role),
            UplinkStep::RemoveVlan { port, vlan } => self.get(port)?.vlans.remove(*vlan),
            UplinkStep::DeleteBond { bond: name } | UplinkStep::DeleteBridge { bridge: name } => {
                self.delete(name);
            }
            UplinkStep::AddSelfVlan { bridge, vlan } => {
                self.get(bridge)?.vlans.insert(*vlan, VlanRole::Tagged);
            }
            UplinkStep::RemoveSelfVlan { bridge, vlan } => self.get(bridge)?.vlans.remove(*vlan),
            UplinkStep::CreateInterface { link: name, bridge, vlan } => {
                let lower = Some(self.get(bridge)?.index);
                let kind = ObservedKind::Vlan { vlan: Some(*vlan) };
                self.add(name.as_str(), ObservedLink { lower, group: UPLINK_GROUP, ..link(kind) });
            }
            UplinkStep::AddAddress { link, address } => {
                let others = self.links.iter().filter(|(name, _)| *name != link);
                let mut others = others.flat_map(|(_, link)| &link.addresses);
                assert!(others.all(|other| !other.contains(&address.addr())), "{address} overlaps");
                self.get(link)?.addresses.push(*address);
            }
            UplinkStep::RemoveAddress { link, address } => {
                self.get(link)?.addresses.retain(|own| own != address);
            }
            UplinkStep::DeleteInterface { link } => drop(self.links.remove(link)),
        }
        Ok(())
    }

    fn filter(&mut self, bridge: &LinkName) -> Result<(), KernelRefusal> {
        let index = self.get(bridge)?.index;
        let was = std::mem::replace(
            &mut self.get(bridge)?.kind,
            ObservedKind::Bridge { filters_vlans: true, default_vlan: 0 },
        );
        if matches!(was, ObservedKind::Bridge { default_vlan: 1, .. }) {
            for port in self.links.values_mut().filter(|port| port.master == Some(index)) {
                port.vlans.remove(VlanId::UNTAGGED);
            }
        }
        Ok(())
    }

    fn add_member(&mut self, bond: &LinkName, nic: &LinkName) -> Result<(), KernelRefusal> {
        let (index, mtu) = (self.get(bond)?.index, self.get(bond)?.mtu);
        let card = self.get(nic)?;
        assert_eq!(card.master, None, "{nic} is taken by {bond}");
        assert!(card.addresses.is_empty(), "{nic} with an address is taken by {bond}");
        (card.master, card.is_up, card.mtu) = (Some(index), true, mtu);
        card.member = Some(BondMember { is_active: false, aggregator: None });
        Ok(())
    }
}

/// Changes that people and machines make to a node, intended or not.
fn disturb(
    random: &mut SeededRandom,
    kernel: &mut Kernel,
    (want, interfaces): (&mut Vec<Uplink>, &mut Vec<HostInterface>),
    trace: &mut Vec<String>,
) {
    let nic = ["eth1", "eth2", "eth3", "eth4", "eth5"][random.below(5)];
    let what = random.below(14);
    trace.push(format!("disturbance {what} at {nic}"));
    match what {
        0..=4 => edit(random, want),
        12 | 13 => edit_interfaces(random, interfaces),
        5 if kernel.links.remove(&name(nic)).is_none() => drop(kernel.add(nic, card())),
        6 => {
            let bond = kernel.at("bond0").index;
            if let Some(link) = kernel.links.get_mut(&name(nic)) {
                link.master = Some(bond);
                link.member = None;
            }
        }
        7 => {
            if let Some(link) = kernel.links.get_mut(&name(nic)) {
                let is_free = link.master.is_none() && link.addresses.is_empty();
                let address = "198.51.100.1/24".parse().unwrap();
                link.addresses = if is_free { vec![address] } else { vec![] };
            }
        }
        8 => {
            let bond = name(["lan-bo", "dmz-bo"][random.below(2)]);
            let number = 10 + random.next() % 5;
            let role = [VlanRole::Tagged, VlanRole::Native][random.below(2)];
            if let Some(link) = kernel.links.get_mut(&bond).filter(|link| link.master.is_some()) {
                link.vlans.insert(vlan(number), role);
            }
        }
        9 => kernel.delete(&name(["lan-bo", "dmz-br", "dmz-bo"][random.below(3)])),
        10 => {
            let bridge = name(["lan-br", "dmz-br"][random.below(2)]);
            let Some(index) = kernel.links.get(&bridge).map(|link| link.index) else { return };
            if kernel.links.remove(&name("shf-a")).is_none() {
                let vlans = PortVlan::access(vlan(10));
                let (master, tap) = (Some(index), ObservedKind::Other("tun".into()));
                kernel.add("shf-a", ObservedLink { master, vlans, group: GROUP, ..link(tap) });
            }
        }
        _ => {
            let bridge = name(["lan-br", "dmz-br"][random.below(2)]);
            if let Some(link) = kernel.links.get_mut(&bridge) {
                link.kind = ObservedKind::Bridge { filters_vlans: false, default_vlan: 1 };
            }
        }
    }
}

/// A person changes a VlanConfig or a network.
fn edit(random: &mut SeededRandom, want: &mut Vec<Uplink>) {
    let which = ["dmz", "lan", "web"][random.below(3)];
    want.retain(|uplink| uplink.bridge.as_str() != format!("{which}-br"));
    if random.chance(20) {
        return;
    }
    let all = ["eth0", "eth1", "eth2", "eth3", "eth4", "eth5", "eth6", "eth7", "eth9", "bond0"];
    let mut uplink = super::uplink(which, &random.some(&all));
    uplink.mode = [BondMode::ActiveBackup, BondMode::Lacp, BondMode::BalanceXor][random.below(3)];
    uplink.miimon = [100, 200][random.below(2)];
    uplink.mtu = [1500, 9000][random.below(2)];
    uplink.vlans = random.some(&[10, 11, 12, 13]).into_iter().map(vlan).collect();
    want.push(uplink);
}

/// A person changes a HostNetworkConfig; one address is in the subnet of the management card.
fn edit_interfaces(random: &mut SeededRandom, interfaces: &mut Vec<HostInterface>) {
    let network = ["dmz", "lan"][random.below(2)];
    let number = 20 + random.below(2);
    let link = name(&format!("{network}-br.{number}"));
    interfaces.retain(|own| own.link != link);
    if random.chance(30) {
        return;
    }
    let address = ["203.0.113.1/28", "203.0.113.17/28", "203.0.113.33/28", "192.0.2.77/24"];
    interfaces.push(HostInterface {
        origin: AddressOrigin::Static,
        link,
        bridge: name(&format!("{network}-br")),
        vlan: vlan(number.try_into().unwrap()),
        addresses: vec![address[random.below(4)].parse().unwrap()],
    });
}

/// The links that no step may change: all that are not ours, except for cards that are free or in
/// a bond of ours.
fn others(kernel: &Kernel) -> ObservedLinks {
    let ours: BTreeSet<_> =
        kernel.links.values().filter(|link| link.is_ours()).map(|link| link.index).collect();
    let is_other = |link: &ObservedLink| {
        let is_card = link.kind == ObservedKind::Nic;
        let is_member = link.master.is_some_and(|index| ours.contains(&index));
        let is_used = link.master.is_some() || !link.addresses.is_empty();
        !link.is_ours() && (!is_card || (is_used && !is_member))
    };
    let all = kernel.links.iter().filter(|(_, link)| is_other(link));
    all.map(|(name, link)| (name.clone(), link.clone())).collect()
}

/// Checks one plan, step by step; a step may fail, or be the last before a crash.
fn carry_out(
    random: &mut SeededRandom,
    kernel: &mut Kernel,
    want: &[Uplink],
    interfaces: &[HostInterface],
) -> bool {
    let plan = plan_host(want, interfaces, &kernel.links);
    let before = kernel.clone();
    let untouched = others(kernel);
    let crash = random.chance(30).then(|| random.below(plan.steps.len() + 1));
    for (at, step) in plan.steps.iter().enumerate() {
        if crash == Some(at) || random.chance(3) {
            return false;
        }
        if let UplinkStep::AddVlan { port, vlan, .. } = step {
            let owner = want.iter().find(|uplink| uplink.bond == *port).unwrap();
            let mut own = interfaces.iter().filter(|own| own.bridge == owner.bridge);
            let is_host = own.any(|own| own.vlan == *vlan);
            assert!(owner.port_vlans().role(*vlan).is_some() || is_host, "{vlan} was not wanted");
        }
        kernel.apply(step).unwrap_or_else(|refused| panic!("{step:?}: {}", refused.0));
        let mut now = others(kernel);
        // Guests' taps may lose the default VLAN of a bridge that had no VLAN filter.
        if matches!(step, UplinkStep::FilterVlans { .. }) {
            now.extend(untouched.iter().map(|(name, link)| (name.clone(), link.clone())));
        }
        for (name, link) in &untouched {
            assert_eq!(now.get(name), Some(link), "{name} changed by {step:?}");
        }
        check_working(want, &before, kernel, step);
    }
    // An address that another interface has until the end of a plan is there with the next one.
    let again = plan_host(want, interfaces, &kernel.links);
    if plan.problems.iter().any(|(_, problem)| matches!(problem, UplinkProblem::Overlap { .. })) {
        return true;
    }
    assert_eq!(again.steps, [], "after {:?}", plan.steps);
    for uplink in want {
        if !again.problems.iter().any(|(bridge, _)| *bridge == uplink.bridge) {
            check_converged(uplink, interfaces, kernel);
        }
    }
    true
}

/// A bond that keeps its mode and at least one of its cards always has one.
fn check_working(want: &[Uplink], before: &Kernel, now: &Kernel, step: &UplinkStep) {
    for uplink in want {
        let (Some(was), Some(is)) = (before.links.get(&uplink.bond), now.links.get(&uplink.bond))
        else {
            continue;
        };
        let ObservedKind::Bond { mode, .. } = &was.kind else { continue };
        let had = before.ports(was.index).map(|(nic, _)| nic).collect::<Vec<_>>();
        let stays = had.iter().any(|nic| uplink.nics.contains(nic));
        if was.is_ours() && *mode == Some(uplink.mode) && stays {
            assert!(now.ports(is.index).next().is_some(), "{} is empty: {step:?}", uplink.bond);
        }
    }
}

fn check_converged(uplink: &Uplink, interfaces: &[HostInterface], kernel: &Kernel) {
    let own: Vec<_> = interfaces.iter().filter(|own| own.bridge == uplink.bridge).collect();
    let mut vlans = uplink.vlans.clone();
    vlans.extend(own.iter().map(|own| own.vlan));
    for interface in &own {
        assert_eq!(kernel.links[&interface.link].addresses, interface.addresses);
    }
    let bond = &kernel.links[&uplink.bond];
    let bridge = &kernel.links[&uplink.bridge];
    assert_eq!(bond.master, Some(bridge.index));
    assert_eq!(bond.vlans, PortVlan::trunk(vlans));
    let members: BTreeSet<_> = kernel.ports(bond.index).map(|(nic, _)| nic).collect();
    assert_eq!(members, uplink.nics.iter().collect());
    assert_eq!((bond.mtu, bridge.mtu), (u32::from(uplink.mtu), u32::from(uplink.mtu)));
    assert!(bond.is_up && bridge.is_up);
}

#[test]
fn random_edits_and_failures_cut_nothing_off_and_open_no_vlan() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed: u64 = number("SHEAF_SEED").unwrap_or(1);
    let rounds = number("SHEAF_UPLINK_ROUNDS").unwrap_or(ROUNDS);
    println!("SHEAF_SEED={seed} SHEAF_UPLINK_ROUNDS={rounds}");
    let mut random = SeededRandom(seed);
    let (mut kernel, mut want, mut interfaces) = (Kernel::new(), Vec::new(), Vec::new());
    let (mut finished, mut trace) = (0, Vec::new());
    for _ in 0..rounds {
        disturb(&mut random, &mut kernel, (&mut want, &mut interfaces), &mut trace);
        finished += u64::from(carry_out(&mut random, &mut kernel, &want, &interfaces));
        assert_eq!(kernel.at("eth0").addresses.len(), 1, "management is cut");
    }
    // A simulation that always crashes would prove nothing.
    assert!(finished > rounds / 3, "{finished} of {rounds}");
}
