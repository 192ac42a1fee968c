//! Which machine moves to which host so that memory is used evenly: pure.
//!
//! One machine at a time, and only one that makes hosts more even. A machine that was moved lately
//! stays where it is, so that nothing moves to and fro.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::condition;
use crate::object::{annotation, is_deleting, name, namespace, read, uid};
use crate::record::instance::InstanceFields;
use crate::record::node::{NodeFields, NodeSpec, TaintFields};
use crate::vmi::requests::requests;

/// Hosts whose shares of used memory differ by less are even enough, in thousandths.
const DIFFERENCE: i64 = 200;
/// How long hosts have to be uneven.
pub(super) const UNEVEN_FOR: Duration = Duration::from_secs(600);
/// A machine that was moved stays for so long.
const REST: SignedDuration = SignedDuration::from_hours(1);
/// On an instance, with the value `false`: it is not moved.
const BALANCE: &str = "sheaf.io/balance";
/// On a migration: why it was created.
const REASON: &str = "sheaf.io/reason";

/// A host, as far as its memory goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HostMemory {
    pub(super) name: String,
    pub(super) allocatable: i64,
    pub(super) used: i64,
}

impl HostMemory {
    /// How much of its memory would be in use with so much more, in thousandths.
    fn share_with(&self, more: i64) -> i64 {
        let used = i128::from(self.used) + i128::from(more);
        i64::try_from(used * 1000 / i128::from(self.allocatable.max(1))).unwrap_or(i64::MAX)
    }
}

/// A machine that may be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) host: String,
    pub(super) memory: i64,
}

/// A move that makes hosts more even.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Move {
    pub(super) machine: Candidate,
    pub(super) to: String,
    pub(super) reason: String,
}

/// Whether new machines may be placed on a host.
fn is_usable(node: &Value, spec: &NodeSpec<'_>) -> bool {
    let keeps_away = |taint: &TaintFields<'_>| taint.effect != "PreferNoSchedule";
    condition::is(node, "Ready", "True")
        && !spec.unschedulable
        && !spec.taints.iter().any(keeps_away)
}

fn memory_of(instance: &Value) -> i64 {
    requests(instance).get("memory").map_or(0, types::Quantity::units)
}

pub(super) fn hosts(nodes: &[Value], instances: &[Value]) -> Vec<HostMemory> {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for instance in instances {
        let status = read::<InstanceFields<'_>>(instance).status;
        if !status.is_over() {
            *used.entry(status.node_name).or_default() += memory_of(instance);
        }
    }
    let host = |node| {
        let NodeFields { spec, status } = read(node);
        let allocatable = status.allocatable.memory.amount().map_or(0, |own| own.units());
        (is_usable(node, &spec) && allocatable > 0).then(|| HostMemory {
            name: name(node).to_owned(),
            allocatable,
            used: used.get(name(node)).copied().unwrap_or_default(),
        })
    };
    nodes.iter().filter_map(host).collect()
}

/// Instances that can be moved without harm. `moved` are the uids of those that this process moved lately.
pub(super) fn candidates(
    instances: &[Value],
    moved: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<Candidate> {
    let was_moved = |end: &str| {
        let end: Option<Timestamp> = end.parse().ok();
        end.is_some_and(|end| now.duration_since(end) < REST)
    };
    let is_movable = |own: &Value, fields: &InstanceFields<'_>| {
        fields.status.phase == "Running"
            && condition::is(own, "LiveMigratable", "True")
            && !condition::is(own, "Paused", "True")
            && !is_deleting(own)
            && annotation(own, BALANCE) != Some("false")
            && fields.spec.eviction_strategy != "None"
            && !was_moved(fields.status.migration_state.end_timestamp)
            && !moved.contains(uid(own))
    };
    let candidate = |own| {
        let fields: InstanceFields<'_> = read(own);
        is_movable(own, &fields).then(|| Candidate {
            namespace: namespace(own).to_owned(),
            name: name(own).to_owned(),
            uid: uid(own).to_owned(),
            host: fields.status.node_name.to_owned(),
            memory: memory_of(own),
        })
    };
    instances.iter().filter_map(candidate).collect()
}

/// The move that leaves the fullest and the emptiest host most even.
pub(super) fn best_move(hosts: &[HostMemory], candidates: &[Candidate]) -> Option<Move> {
    let by_share = |a: &&HostMemory, b: &&HostMemory| {
        a.share_with(0).cmp(&b.share_with(0)).then_with(|| a.name.cmp(&b.name))
    };
    let full = hosts.iter().max_by(by_share)?;
    let empty = hosts.iter().min_by(by_share)?;
    let difference = full.share_with(0) - empty.share_with(0);
    if difference <= DIFFERENCE {
        return None;
    }
    let after =
        |own: &Candidate| (full.share_with(-own.memory) - empty.share_with(own.memory)).abs();
    let fits = |own: &&Candidate| empty.used.saturating_add(own.memory) <= empty.allocatable;
    let best = candidates
        .iter()
        .filter(|own| own.host == full.name && own.memory > 0)
        .filter(fits)
        .filter(|own| after(own) < difference)
        .min_by_key(|own| (after(own), own.uid.clone()))?;
    let percent = |share: i64| (share + 5) / 10;
    let reason = format!(
        "host {} has {} % of its memory in use and host {} {} %",
        full.name,
        percent(full.share_with(0)),
        empty.name,
        percent(empty.share_with(0)),
    );
    Some(Move { machine: best.clone(), to: empty.name.clone(), reason })
}

/// Whether a migration is under way.
pub(super) fn is_active(migration: &Value) -> bool {
    !read::<InstanceFields<'_>>(migration).status.is_over()
}

/// The migration for a move.
pub(super) fn migration(wanted: &Move) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "generateName": format!("balance-{}-", wanted.machine.name),
            "namespace": wanted.machine.namespace, "annotations": {REASON: wanted.reason},
        },
        "spec": {
            "vmiName": wanted.machine.name,
            "addedNodeSelector": {"kubernetes.io/hostname": wanted.to},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn host(name: &str, used: i64) -> HostMemory {
        HostMemory { name: name.into(), allocatable: 100 * GIB, used: used * GIB }
    }

    fn on(host: &str, name: &str, memory: i64) -> Candidate {
        Candidate {
            namespace: "n".into(),
            name: name.into(),
            uid: name.into(),
            host: host.into(),
            memory: memory * GIB,
        }
    }

    fn chosen(hosts: &[HostMemory], candidates: &[Candidate]) -> Option<(String, String)> {
        best_move(hosts, candidates).map(|own| (own.machine.name, own.to))
    }

    #[test]
    fn the_machine_that_makes_hosts_most_even_moves() {
        let hosts = [host("a", 80), host("b", 50), host("c", 20)];
        let all =
            [on("a", "small", 5), on("a", "right", 30), on("a", "huge", 60), on("b", "x", 30)];
        assert_eq!(chosen(&hosts, &all), Some(("right".into(), "c".into())));
        let found = best_move(&hosts, &all).unwrap();
        assert_eq!(found.reason, "host a has 80 % of its memory in use and host c 20 %");
        let created = migration(&found);
        assert_eq!(created["spec"]["addedNodeSelector"]["kubernetes.io/hostname"], "c");
        assert_eq!(created["metadata"]["annotations"][REASON], found.reason);
    }

    #[test]
    fn hosts_that_are_even_enough_or_cannot_be_evened_are_left_alone() {
        let all = [on("a", "one", 10)];
        assert_eq!(chosen(&[host("a", 40), host("b", 25)], &all), None, "15 %");
        assert_eq!(chosen(&[host("a", 90)], &all), None, "one host");
        assert_eq!(chosen(&[], &[]), None);
        // The whole load of a host would only change places.
        assert_eq!(chosen(&[host("a", 60), host("b", 0)], &[on("a", "only", 60)]), None);
        assert_eq!(chosen(&[host("a", 60), host("b", 0)], &[on("b", "other", 30)]), None);
    }

    /// Moves end, and each makes the hosts more even.
    #[test]
    fn balancing_ends() {
        for seed in 0_u64..200 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = |below: i64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                i64::try_from(state % u64::try_from(below).unwrap()).unwrap()
            };
            let mut machines: Vec<Candidate> = (0..30)
                .map(|index| {
                    on(
                        ["a", "b", "c"][usize::try_from(random(3)).unwrap()],
                        &format!("m{index}"),
                        1 + random(8),
                    )
                })
                .collect();
            let count = |machines: &[Candidate]| {
                ["a", "b", "c"].map(|name| {
                    let own = machines.iter().filter(|own| own.host == name);
                    HostMemory {
                        name: name.into(),
                        allocatable: 100 * GIB,
                        used: own.map(|own| own.memory).sum(),
                    }
                })
            };
            let mut moves = 0;
            while let Some(found) = best_move(&count(&machines), &machines) {
                let own = machines.iter_mut().find(|own| own.uid == found.machine.uid).unwrap();
                own.host = found.to;
                moves += 1;
                assert!(moves <= 30, "seed {seed}");
            }
        }
    }

    #[test]
    fn only_machines_that_can_be_moved_without_harm_are_considered() {
        let now: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        let running = json!({"metadata": {"name": "m", "namespace": "n", "uid": "u"},
            "spec": {"domain": {"memory": {"guest": "1Gi"}}},
            "status": {"phase": "Running", "nodeName": "a",
                "conditions": [{"type": "LiveMigratable", "status": "True"}]}});
        let count = |path: &str, value: Value, moved: &[&str]| {
            let mut own = running.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            own.pointer_mut(parent).unwrap()[field] = value;
            let moved = moved.iter().map(|&own| own.to_owned()).collect();
            candidates(&[own], &moved, now).len()
        };
        let nothing = ("/metadata/labels", json!({}));
        assert_eq!(count(nothing.0, nothing.1.clone(), &[]), 1);
        assert_eq!(count(nothing.0, nothing.1, &["u"]), 0, "moved by this process");
        for (path, value) in [
            ("/status/phase", json!("Scheduled")),
            ("/status/conditions", json!([])),
            (
                "/status/conditions",
                json!([{"type": "LiveMigratable", "status": "True"},
                {"type": "Paused", "status": "True"}]),
            ),
            ("/metadata/annotations", json!({BALANCE: "false"})),
            ("/metadata/deletionTimestamp", json!("2026-01-02T11:00:00Z")),
            ("/spec/evictionStrategy", json!("None")),
            ("/status/migrationState", json!({"endTimestamp": "2026-01-02T11:30:00Z"})),
        ] {
            assert_eq!(count(path, value.clone(), &[]), 0, "{path} {value}");
        }
        let long_ago = json!({"endTimestamp": "2026-01-02T10:30:00Z"});
        assert_eq!(count("/status/migrationState", long_ago, &[]), 1);
    }

    #[test]
    fn hosts_that_take_no_machines_are_not_filled() {
        let node = |name: &str, more: Value| {
            let mut node = json!({"metadata": {"name": name}, "spec": {}, "status": {
                "allocatable": {"memory": "10Gi"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
            for (path, value) in more.as_object().unwrap() {
                node["spec"][path] = value.clone();
            }
            node
        };
        let nodes = [
            node("a", json!({})),
            node("cordoned", json!({"unschedulable": true})),
            node("tainted", json!({"taints": [{"key": "x", "effect": "NoSchedule"}]})),
            node("soft", json!({"taints": [{"key": "x", "effect": "PreferNoSchedule"}]})),
        ];
        let instance = |phase: &str| {
            json!({"spec": {"domain": {"memory": {"guest": "1Gi"}}},
            "status": {"phase": phase, "nodeName": "a"}})
        };
        let found = hosts(&nodes, &[instance("Running"), instance("Succeeded")]);
        let names: Vec<&str> = found.iter().map(|own| own.name.as_str()).collect();
        assert_eq!(names, ["a", "soft"]);
        assert!(found[0].used > GIB && found[0].used < 2 * GIB, "{}", found[0].used);
    }
}
