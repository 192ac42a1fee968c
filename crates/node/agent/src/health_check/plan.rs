//! Which machines are checked for which load balancer, and what the answers amount to. Pure.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use hci::backend_health::{self, ActiveCheck, BackendHealth};
use hci::harvester::load_balancer::LoadBalancer;
use serde_json::{Value, json};

use crate::known_objects::ObjectKey;

/// A machine of this node, as far as checks need it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CheckedInstance {
    pub(super) labels: Value,
    /// Networks and interfaces, which its address follows from; nothing while it does not run.
    interfaces: Option<Value>,
    /// The annotation as it is.
    pub(super) reported: BTreeMap<String, BackendHealth>,
}

impl CheckedInstance {
    pub(super) fn read(instance: &Value) -> Self {
        let is_running = instance["status"]["phase"] == "Running";
        let interfaces = json!({
            "spec": {"networks": instance["spec"]["networks"]},
            "status": {"interfaces": instance["status"]["interfaces"]},
        });
        Self {
            labels: instance["metadata"]["labels"].clone(),
            interfaces: is_running.then_some(interfaces),
            reported: backend_health::reported(instance),
        }
    }

    fn address(&self, is_reserved: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        backend_health::address(self.interfaces.as_ref()?, is_reserved)?.parse().ok()
    }
}

/// A machine and a load balancer of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CheckKey {
    pub(super) namespace: String,
    pub(super) instance: String,
    pub(super) balancer: String,
}

/// The address of a check, and how often it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckTarget {
    pub(super) address: Ipv4Addr,
    pub(super) check: ActiveCheck,
}

impl CheckTarget {
    pub(super) fn socket(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.check.port))
    }
}

/// Every machine with every load balancer that leads to it and checks it. A guest that reports a
/// reserved address is not checked there.
pub(super) fn targets(
    balancers: &BTreeMap<ObjectKey, LoadBalancer>,
    instances: &BTreeMap<ObjectKey, CheckedInstance>,
    is_reserved: impl Fn(Ipv4Addr) -> bool,
) -> BTreeMap<CheckKey, CheckTarget> {
    let mut all = BTreeMap::new();
    for (key, balancer) in balancers {
        let Some(check) = ActiveCheck::of(balancer) else { continue };
        let own = instances.iter().filter(|(instance, _)| instance.namespace == key.namespace);
        for (instance, known) in own {
            if backend_health::selects(&balancer.spec, &known.labels)
                && let Some(address) = known.address(&is_reserved)
            {
                let key = CheckKey {
                    namespace: key.namespace.clone(),
                    instance: instance.name.clone(),
                    balancer: key.name.clone(),
                };
                all.insert(key, CheckTarget { address, check });
            }
        }
    }
    all
}

/// Answers in a row, and the last verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckState {
    pub(super) target: CheckTarget,
    /// Distinguishes it from others of the same key.
    pub(super) number: u64,
    successes: u32,
    failures: u32,
    is_healthy: Option<bool>,
}

impl CheckState {
    /// `known` is what the machine's annotation says: it holds until there is a verdict.
    pub(super) fn new(target: CheckTarget, known: Option<BackendHealth>, number: u64) -> Self {
        let known = known.filter(|known| known.port == target.check.port);
        let is_healthy = known.map(|known| known.healthy);
        Self { target, number, successes: 0, failures: 0, is_healthy }
    }

    /// Takes the outcome of one attempt.
    pub(super) fn count(&mut self, answered: bool) {
        let check = self.target.check;
        if answered {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            if self.successes >= check.successes {
                self.is_healthy = Some(true);
            }
        } else {
            self.successes = 0;
            self.failures = self.failures.saturating_add(1);
            if self.failures >= check.failures {
                self.is_healthy = Some(false);
            }
        }
    }
}

/// The annotation that a machine should have.
pub(super) fn report(
    states: &BTreeMap<CheckKey, CheckState>,
    instance: &ObjectKey,
) -> BTreeMap<String, BackendHealth> {
    let own = states
        .iter()
        .filter(|(key, _)| key.namespace == instance.namespace && key.instance == instance.name);
    own.filter_map(|(key, state)| {
        let health = BackendHealth { port: state.target.check.port, healthy: state.is_healthy? };
        Some((key.balancer.clone(), health))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    fn balancer(check: &Value) -> LoadBalancer {
        let spec = json!({"backendServerSelector": {"app": ["web"]}, "healthCheck": check});
        serde_json::from_value(json!({"metadata": {"name": "lb"}, "spec": spec})).unwrap()
    }

    fn instance(app: &str, phase: &str, address: &str) -> CheckedInstance {
        CheckedInstance::read(&json!({
            "metadata": {"labels": {"app": app}},
            "spec": {"networks": [{"name": "lan", "multus": {"networkName": "lan"}}]},
            "status": {"phase": phase, "interfaces": [{"name": "lan", "ipAddress": address}]},
        }))
    }

    #[test]
    fn machines_that_run_and_are_selected_are_checked() {
        let check = json!({"port": 80, "successThreshold": 1, "failureThreshold": 2,
            "periodSeconds": 3, "timeoutSeconds": 1});
        let balancers = BTreeMap::from([
            (key("n", "lb"), balancer(&check)),
            (key("n", "unchecked"), balancer(&json!({"port": 0}))),
            (key("other", "lb"), balancer(&check)),
        ]);
        let instances = BTreeMap::from([
            (key("n", "a"), instance("web", "Running", "10.52.0.1")),
            (key("n", "b"), instance("db", "Running", "10.52.0.2")),
            (key("n", "c"), instance("web", "Scheduled", "10.52.0.3")),
            (key("n", "d"), instance("web", "Running", "fd00::1")),
            (key("n", "node"), instance("web", "Running", "192.0.2.1")),
            (key("n", "itself"), instance("web", "Running", "127.0.0.1")),
        ]);
        let node = Ipv4Addr::new(192, 0, 2, 1);
        let found = targets(&balancers, &instances, |address| address == node);
        let found: Vec<String> = found
            .iter()
            .map(|(key, target)| format!("{}/{} {}", key.instance, key.balancer, target.socket()))
            .collect();
        assert_eq!(found, ["a/lb 10.52.0.1:80"]);
    }

    #[test]
    fn a_verdict_takes_answers_in_a_row_and_is_kept_until_the_next() {
        let check =
            ActiveCheck::of(&balancer(&json!({"port": 80, "failureThreshold": 3}))).unwrap();
        let target = CheckTarget { address: Ipv4Addr::new(10, 52, 0, 1), check };
        let mut state = CheckState::new(target, None, 1);
        let mut verdicts = vec![];
        for answered in [true, false, true, true, false, false, true, false, false, false] {
            state.count(answered);
            verdicts.push(state.is_healthy);
        }
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, None, None, yes, yes, yes, yes, yes, yes, no]);
        // A new agent begins with what the last one reported.
        for (port, expected) in [(80, Some(true)), (81, None)] {
            let known = Some(BackendHealth { port, healthy: true });
            assert_eq!(CheckState::new(target, known, 2).is_healthy, expected);
        }
        let of = CheckKey { namespace: "n".into(), instance: "a".into(), balancer: "lb".into() };
        let states = BTreeMap::from([(of, state)]);
        let health = BackendHealth { port: 80, healthy: false };
        assert_eq!(report(&states, &key("n", "a")), BTreeMap::from([("lb".to_owned(), health)]));
        assert!(report(&states, &key("n", "b")).is_empty());
    }
}
