//! Nodes that stall, requests that arrive late, and a controller that is replaced: at no time do two
//! nodes have the address, and in the end one has it.

use std::collections::BTreeMap;
use std::time::Duration;

use hci::announcement::{AnnouncementLease, RENEW, VALID};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::plan::{AnnouncementChange, plan};
use super::{LEASE, cluster, node};

/// One step of the simulated clock.
const STEP: Duration = Duration::from_millis(250);
/// How late the kernel may remove an address.
const KERNEL: Duration = Duration::from_millis(1250);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Numbers that appear random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The agent of one node, as `agent::announce` behaves.
#[derive(Default, Clone)]
struct Agent {
    stalled_until: Duration,
    /// When the renewal that is on its way was sent, when it arrives, and of which version.
    request: Option<(Duration, Duration, String)>,
    next: Duration,
    /// When the kernel removes the address.
    until: Duration,
}

#[derive(Default)]
struct World {
    now: Duration,
    version: u64,
    lease: Option<Value>,
    agents: [Agent; 3],
    seen: BTreeMap<String, (String, Duration)>,
    controller_stalled_until: Duration,
}

impl World {
    fn write(&mut self, change: impl FnOnce(&mut Value)) {
        self.version += 1;
        let version = json!(self.version.to_string());
        let lease = self.lease.as_mut().unwrap();
        change(lease);
        lease["metadata"]["resourceVersion"] = version;
    }

    fn known(&self) -> Option<AnnouncementLease> {
        self.lease.as_ref().and_then(AnnouncementLease::read)
    }

    fn run_agent(&mut self, index: usize, delay: Duration) {
        let name = NAMES[index];
        let now = self.now;
        let mut agent = self.agents[index].clone();
        let lease = self.known();
        if let Some((sent, arrives, version)) = agent.request.clone()
            && arrives <= now
        {
            agent.request = None;
            // Carried out by the server, whatever became of the sender.
            if lease.as_ref().is_some_and(|own| own.resource_version == version) {
                self.write(|lease| lease["spec"]["renewTime"] = json!(format!("{now:?}")));
                // The deadline counts from the moment of sending.
                if agent.stalled_until <= now && now < sent + VALID {
                    agent.until = agent.until.max(sent + VALID + KERNEL);
                }
            }
        }
        if agent.stalled_until <= now {
            match self.known().filter(|own| own.holder == name) {
                Some(own) if own.wanted != name => {
                    agent.until = now;
                    agent.request = None;
                    self.write(|lease| lease["spec"]["holderIdentity"] = Value::Null);
                }
                Some(own) if agent.request.is_none() && agent.next <= now => {
                    agent.request = Some((now, now + delay, own.resource_version));
                    agent.next = now + RENEW;
                }
                Some(_) => {}
                None => agent.until = agent.until.min(now),
            }
        }
        self.agents[index] = agent;
    }

    fn run_controller(&mut self, ready: &[bool; 3]) {
        let mut state = cluster(&[], None);
        state.nodes = NAMES
            .iter()
            .zip(ready)
            .map(|(name, ready)| node(name, if *ready { "True" } else { "Unknown" }))
            .collect();
        state.leases = self.lease.iter().cloned().collect();
        let print = self.known().map(|own| format!("{} {}", own.holder, own.renewed));
        if let Some(print) = print
            && self.seen.get(LEASE).is_none_or(|(old, _)| *old != print)
        {
            self.seen.insert(LEASE.into(), (print, self.now));
        }
        let seen = self.seen.iter().map(|(key, (_, since))| (key.clone(), self.now - *since));
        state.unchanged = seen.collect();
        for change in plan(&state, Timestamp::UNIX_EPOCH) {
            match change {
                AnnouncementChange::CreateLease(object) => {
                    self.lease = Some(object);
                    self.write(|_| {});
                }
                AnnouncementChange::PatchLease { patch, .. } => self.write(|lease| {
                    for part in ["metadata", "spec"] {
                        for (key, value) in patch[part].as_object().into_iter().flatten() {
                            if key == "annotations" {
                                let wanted = value["sheaf.io/announce-on"].clone();
                                lease[part][key]["sheaf.io/announce-on"] = wanted;
                            } else {
                                lease[part][key] = value.clone();
                            }
                        }
                    }
                }),
                AnnouncementChange::DeleteLease { .. } | AnnouncementChange::Status { .. } => {}
            }
        }
    }

    fn owners(&self) -> Vec<&'static str> {
        let all = NAMES.iter().zip(&self.agents);
        all.filter(|(_, agent)| self.now < agent.until).map(|(name, _)| *name).collect()
    }
}

#[test]
fn no_two_nodes_have_an_address() {
    for seed in 0..40 {
        let mut numbers = Numbers(seed);
        let mut world = World::default();
        let mut ready = [true; 3];
        for step in 0..600 {
            world.now += STEP;
            let is_calm = step > 500;
            if !is_calm && numbers.below(40) == 0 {
                let index = usize::try_from(numbers.below(3)).unwrap();
                let stall = Duration::from_millis(numbers.below(20_000));
                world.agents[index].stalled_until = world.now + stall;
            }
            if !is_calm && numbers.below(60) == 0 {
                ready[usize::try_from(numbers.below(3)).unwrap()] ^= true;
            }
            if !is_calm && numbers.below(100) == 0 {
                // Another leader begins: the measurements are lost.
                world.seen.clear();
                world.controller_stalled_until = world.now + Duration::from_secs(numbers.below(15));
            }
            if is_calm {
                ready = [true; 3];
            }
            for index in 0..3 {
                let late = if is_calm { 0 } else { numbers.below(4).pow(6) * 2 };
                world.run_agent(index, Duration::from_millis(late));
            }
            if world.controller_stalled_until <= world.now {
                world.run_controller(&ready);
            }
            assert!(world.owners().len() < 2, "seed {seed}, {:?}: {:?}", world.now, world.owners());
        }
        assert_eq!(world.owners().len(), 1, "seed {seed}: {:?}", world.lease);
    }
}
