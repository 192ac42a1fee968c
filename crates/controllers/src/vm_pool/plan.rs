//! Which machines a pool makes, changes and gives up: pure.

mod machine;

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::machine::{REVISION, index_of, revision};
pub(crate) use self::machine::{machine, update};
use crate::condition::{self, Condition};
use crate::object::{is_controlled_by, is_deleting, is_true, name, text};
use crate::selector;
use crate::vmi_replica_set::plan::{replicas, selector_text};

/// How many machines are made or deleted at a time.
const BURST: usize = 20;

/// What would bring a pool nearer to what it should be.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Indices of machines to make.
    pub(crate) create: Vec<usize>,
    /// Names of machines to delete.
    pub(crate) delete: Vec<String>,
    /// Names of machines whose spec is that of an older template.
    pub(crate) update: Vec<String>,
    /// Names of instances that run from an older template and may be restarted now.
    pub(crate) restart: Vec<String>,
}

/// Those of `found` that belong to the pool.
pub(crate) fn own<'a>(pool: &Value, found: &'a [Value]) -> Vec<&'a Value> {
    found.iter().filter(|vm| is_controlled_by(vm, pool)).collect()
}

/// `taken` names all machines of the namespace, `vmis` all instances.
pub(crate) fn plan(pool: &Value, own: &[&Value], taken: &[&str], vmis: &[Value]) -> Plan {
    if is_deleting(pool) || is_true(pool, "/spec/paused") {
        return Plan::default();
    }
    let mut plan = Plan::default();
    let alive: Vec<&Value> = own.iter().filter(|vm| !is_deleting(vm)).copied().collect();
    let wanted = replicas(pool);
    if own.len() < wanted {
        let free = (0..).filter(|index| !taken.contains(&&*format!("{}-{index}", name(pool))));
        plan.create = free.take((wanted - own.len()).min(BURST)).collect();
    }
    let surplus = alive.len().saturating_sub(wanted);
    if surplus > 0 && scales_in(pool) {
        let policy = "/spec/scaleInStrategy/proactive/selectionPolicy";
        let chosen = choose(pool, &alive, policy);
        plan.delete = chosen.into_iter().take(surplus.min(BURST)).map(named).collect();
    }
    if pool.pointer("/spec/updateStrategy/unmanaged").is_some() {
        return plan;
    }
    let revision = revision(pool);
    let outdated = |object: &Value| label(object) != revision;
    let kept = alive.iter().filter(|vm| !plan.delete.iter().any(|own| own == name(vm)));
    let (old, new): (Vec<&Value>, Vec<&Value>) = kept.copied().partition(|vm| outdated(vm));
    plan.update = old.into_iter().map(named).collect();
    if pool.pointer("/spec/updateStrategy/opportunistic").is_none() {
        plan.restart = restarts(pool, &new, vmis, outdated);
    }
    plan
}

/// Instances to restart, as many as may be away.
fn restarts(
    pool: &Value,
    machines: &[&Value],
    vmis: &[Value],
    outdated: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let of = |vm: &Value| vmis.iter().find(|vmi| is_controlled_by(vmi, vm));
    let is_up = |vm: &&&Value| of(vm).is_some_and(|vmi| condition::is(vmi, "Ready", "True"));
    let away = machines.len() - machines.iter().filter(is_up).count();
    let chosen = choose(pool, machines, "/spec/updateStrategy/proactive/selectionPolicy");
    let due: Vec<&Value> = chosen
        .into_iter()
        .filter(|vm| of(vm).is_some_and(|vmi| outdated(vmi) && !is_deleting(vmi)))
        .collect();
    // One that is away anyway costs nothing.
    let (up, down): (Vec<&Value>, Vec<&Value>) = due.into_iter().partition(|vm| is_up(&vm));
    let room = max_unavailable(pool).saturating_sub(away);
    down.into_iter().chain(up.into_iter().take(room)).map(named).collect()
}

fn max_unavailable(pool: &Value) -> usize {
    let wanted = replicas(pool);
    let share = |percent: usize| (wanted * percent).div_ceil(100);
    match pool.pointer("/spec/maxUnavailable") {
        Some(Value::Number(count)) => {
            usize::try_from(count.as_u64().unwrap_or_default()).unwrap_or(wanted)
        }
        Some(Value::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|own| own.parse().ok());
            percent.map_or_else(|| text.parse().unwrap_or(wanted), share)
        }
        _ => wanted,
    }
}

fn scales_in(pool: &Value) -> bool {
    let strategy = |kind| pool.pointer(&format!("/spec/scaleInStrategy/{kind}")).is_some();
    !strategy("unmanaged") && !strategy("opportunistic")
}

/// Machines in the order in which a policy takes them.
fn choose<'a>(pool: &Value, machines: &[&'a Value], policy: &str) -> Vec<&'a Value> {
    let mut chosen = machines.to_vec();
    let labels = pool.pointer(&format!("{policy}/selectors/labelSelector"));
    if let Some(labels) = labels {
        chosen.retain(|vm| {
            selector::matches(labels, vm.pointer("/metadata/labels").unwrap_or(&Value::Null))
        });
    }
    let index = |vm: &&Value| index_of(name(vm)).unwrap_or(usize::MAX);
    let age = |vm: &&Value| text(vm, "/metadata/creationTimestamp").to_owned();
    match text(pool, &format!("{policy}/sortPolicy")) {
        "AscendingOrder" => chosen.sort_by_key(index),
        "Oldest" => chosen.sort_by_key(age),
        "Newest" => chosen.sort_by_key(|vm| Reverse(age(vm))),
        // Any order is random enough; the highest number leaves no gap.
        _ => chosen.sort_by_key(|vm| Reverse(index(vm))),
    }
    chosen
}

fn named(vm: &Value) -> String {
    name(vm).to_owned()
}

fn label(object: &Value) -> &str {
    let label = object.pointer("/metadata/labels").and_then(|labels| labels.get(REVISION));
    label.and_then(Value::as_str).unwrap_or_default()
}

/// The status of the pool.
pub(crate) fn status(pool: &Value, own: &[&Value], failure: Option<&str>, now: Timestamp) -> Value {
    let alive = own.iter().filter(|vm| !is_deleting(vm));
    let ready = alive.clone().filter(|vm| condition::is(vm, "Ready", "True")).count();
    let mut conditions = condition::of(pool);
    let paused = is_true(pool, "/spec/paused");
    for (kind, wanted) in [
        ("ReplicaPaused", paused.then_some(("SuccessfulPaused", "Pool is paused"))),
        ("ReplicaFailure", failure.map(|message| ("FailedScaleOut", message))),
    ] {
        match wanted {
            Some((reason, message)) => {
                let wanted = Condition::new(kind, "True").because(reason, message);
                condition::set(&mut conditions, &wanted, now);
            }
            None => condition::remove(&mut conditions, kind),
        }
    }
    json!({"status": {"replicas": alive.count(), "readyReplicas": ready,
        "labelSelector": selector_text(pool), "conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(changes: Value) -> Value {
        let template = json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}}}}});
        let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
            "virtualMachineTemplate": template});
        for (field, value) in changes.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})
    }

    fn vm(pool: &Value, index: usize) -> Value {
        let mut vm = machine(pool, index);
        vm["metadata"]["uid"] = json!(format!("vm{index}"));
        vm["metadata"]["creationTimestamp"] = json!(format!("2026-01-0{}T00:00:00Z", index + 1));
        vm
    }

    fn vmi(index: usize, revision: &str, ready: &str) -> Value {
        json!({"metadata": {"name": format!("p-{index}"), "labels": {REVISION: revision},
                "ownerReferences": [{"uid": format!("vm{index}"), "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn made(pool: &Value, machines: &[Value], vmis: &[Value]) -> Plan {
        let names: Vec<&str> = machines.iter().map(name).collect();
        plan(pool, &own(pool, machines), &names, vmis)
    }

    #[test]
    fn missing_machines_get_the_lowest_free_numbers() {
        let pool = pool(json!({"replicas": 3}));
        assert_eq!(made(&pool, &[], &[]).create, [0, 1, 2]);
        assert_eq!(made(&pool, &[vm(&pool, 1)], &[]).create, [0, 2]);
    }

    #[test]
    fn surplus_machines_are_chosen_by_policy() {
        let chosen = |policy: &str| {
            let strategy = json!({"proactive": {"selectionPolicy": {"sortPolicy": policy}}});
            let pool = pool(json!({"replicas": 1, "scaleInStrategy": strategy}));
            let machines: Vec<Value> = (0..3).map(|index| vm(&pool, index)).collect();
            made(&pool, &machines, &[]).delete
        };
        assert_eq!(chosen("AscendingOrder"), ["p-0", "p-1"]);
        assert_eq!(chosen("DescendingOrder"), ["p-2", "p-1"]);
        assert_eq!(chosen("Oldest"), ["p-0", "p-1"]);
        assert_eq!(chosen("Newest"), ["p-2", "p-1"]);
    }

    #[test]
    fn a_pool_that_is_left_alone_keeps_its_machines() {
        let pool = pool(json!({"replicas": 0, "scaleInStrategy": {"unmanaged": {}}}));
        assert!(made(&pool, &[vm(&pool, 0)], &[]).delete.is_empty());
    }

    #[test]
    fn a_new_template_reaches_machines_and_then_instances() {
        let old = pool(json!({}));
        let mut new = old.clone();
        new["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"] =
            json!({"domain": {"x": 1}});
        let machines: Vec<Value> = (0..2).map(|index| vm(&old, index)).collect();
        assert_eq!(made(&new, &machines, &[]).update, ["p-0", "p-1"]);
        let updated: Vec<Value> = (0..2).map(|index| vm(&new, index)).collect();
        let vmis: Vec<Value> = (0..2).map(|index| vmi(index, &revision(&old), "True")).collect();
        assert_eq!(made(&new, &updated, &vmis).restart, ["p-1", "p-0"]);
        let mut careful = new.clone();
        careful["spec"]["maxUnavailable"] = json!(1);
        let updated: Vec<Value> = (0..2).map(|index| vm(&careful, index)).collect();
        assert_eq!(made(&careful, &updated, &vmis).restart, ["p-1"], "one at a time");
        let half = [vmis[0].clone(), vmi(1, &revision(&new), "False")];
        assert!(made(&careful, &updated, &half).restart.is_empty(), "one is away already");
        let mut later = new.clone();
        later["spec"]["updateStrategy"] = json!({"opportunistic": {}});
        assert!(made(&later, &updated, &vmis).restart.is_empty());
    }

    #[test]
    fn how_many_may_be_away_is_a_number_or_a_share() {
        let most =
            |value: Value| max_unavailable(&pool(json!({"replicas": 5, "maxUnavailable": value})));
        assert_eq!((most(json!(2)), most(json!("50%")), most(json!("100%"))), (2, 3, 5));
        assert_eq!(max_unavailable(&pool(json!({"replicas": 5}))), 5);
    }
}
