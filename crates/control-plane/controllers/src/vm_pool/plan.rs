//! Which machines a pool makes, changes and gives up: pure.

mod choice;
mod heal;
mod machine;
mod revision;
mod rules;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::choice::{ordered, selected};
use self::heal::{Health, health};
pub(crate) use self::machine::{disks, machine, relabelled, released, update};
use self::revision::{Difference, difference, label};
pub(crate) use self::revision::{own_revisions, revision};
use self::rules::PoolRules;
use crate::condition::{self, Condition};
use crate::object::{is_controlled_by, is_deleting, name};
use crate::vmi_replica_set::plan::{replicas, selector_text};

/// How many machines are made or deleted at a time.
const BURST: usize = 20;

/// The changes that bring a pool to its wanted state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PoolPlan {
    /// Indices of machines to make.
    pub(crate) create: Vec<usize>,
    /// Names of machines to give up: too many, or not to be brought up.
    pub(crate) delete: Vec<String>,
    /// Names of machines whose disks are those of an older template, to be made anew.
    pub(crate) replace: Vec<String>,
    /// Names of machines whose spec is that of an older template.
    pub(crate) update: Vec<String>,
    /// Names of instances that run from an older template and may be restarted now.
    pub(crate) restart: Vec<String>,
    /// Names of instances for which the newer template changes nothing, and the template's.
    pub(crate) relabel: Vec<(String, String)>,
    /// Whether something is made from a template that is not recorded yet.
    pub(crate) record: bool,
    /// Names of revisions that nothing was made from any more.
    pub(crate) prune: Vec<String>,
    /// When to reconcile again without an event.
    pub(crate) again: Option<Duration>,
}

/// All that a plan depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolInput<'a> {
    /// The machines of the pool.
    pub(crate) own: &'a [&'a Value],
    /// The names of all machines of the namespace.
    pub(crate) taken: &'a [&'a str],
    /// All instances of the namespace.
    pub(crate) vmis: &'a [Value],
    /// The revisions of the pool.
    pub(crate) revisions: &'a [&'a Value],
}

/// Those of `found` that belong to the pool.
pub(crate) fn own<'a>(pool: &Value, found: &'a [Value]) -> Vec<&'a Value> {
    found.iter().filter(|vm| is_controlled_by(vm, pool)).collect()
}

/// Whether the disks of a machine that is given up wait for the next one of its number.
pub(crate) fn keeps_disks(pool: &Value) -> bool {
    PoolRules::of(pool).keeps_disks()
}

pub(crate) fn plan(pool: &Value, seen: PoolInput<'_>, now: Timestamp) -> PoolPlan {
    let rules = PoolRules::of(pool);
    if is_deleting(pool) || rules.is_paused() {
        return PoolPlan::default();
    }
    let mut plan = PoolPlan::default();
    let alive: Vec<&Value> = seen.own.iter().filter(|vm| !is_deleting(vm)).copied().collect();
    let wanted = replicas(pool);
    if seen.own.len() < wanted {
        let free = (0..).filter(|index| !seen.taken.contains(&&*format!("{}-{index}", name(pool))));
        plan.create = free.take((wanted - seen.own.len()).min(BURST)).collect();
    }
    let mut kept = give_up(&rules, &alive, &mut plan, now);
    let surplus = alive.len().saturating_sub(wanted).saturating_sub(plan.delete.len());
    if surplus > 0 && rules.scales_in() {
        let chosen = ordered(rules.scale_in_policy(), &kept);
        plan.delete.extend(chosen.into_iter().take(surplus).map(named));
    }
    plan.delete.truncate(BURST);
    if rules.updates() {
        kept.retain(|vm| !plan.delete.iter().any(|own| own == name(vm)));
        let kept = selected(rules.update_policy(), kept);
        let (new, old): (Vec<&Value>, Vec<&Value>) =
            kept.into_iter().partition(|vm| revision::is_current(pool, vm, seen.revisions));
        plan.update = old.into_iter().map(named).collect();
        renew(&rules, wanted, &new, seen, &mut plan);
    }
    let makes_some = !plan.create.is_empty() || !plan.update.is_empty();
    plan.record = makes_some && !revision::is_recorded(pool, seen.revisions);
    if plan.is_settled() {
        plan.prune = revision::unused(seen).into_iter().map(named).collect();
    }
    plan
}

impl PoolPlan {
    /// Whether every machine and every instance is what it should be.
    fn is_settled(&self) -> bool {
        let names = [&self.delete, &self.replace, &self.update, &self.restart];
        self.create.is_empty()
            && self.relabel.is_empty()
            && names.iter().all(|names| names.is_empty())
    }
}

/// Finds the machines that do not come up; those that are left are answered.
fn give_up<'a>(
    rules: &PoolRules,
    alive: &[&'a Value],
    plan: &mut PoolPlan,
    now: Timestamp,
) -> Vec<&'a Value> {
    let mut kept = Vec::new();
    for vm in alive {
        match health(rules.autohealing.as_ref(), vm, now) {
            Health::Hopeless => plan.delete.push(named(vm)),
            Health::Failing(left) => {
                plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
                kept.push(*vm);
            }
            Health::Fine => kept.push(*vm),
        }
    }
    kept
}

/// Brings instances to the template that their machines have, as many as may be away.
fn renew(
    rules: &PoolRules,
    wanted: usize,
    machines: &[&Value],
    seen: PoolInput<'_>,
    plan: &mut PoolPlan,
) {
    let of = |vm: &Value| seen.vmis.iter().find(|vmi| is_controlled_by(vmi, vm));
    // One that was asked to end still reports that it is ready, until it is gone.
    let is_ready = |vmi: &Value| !is_deleting(vmi) && condition::is(vmi, "Ready", "True");
    let is_up = |vm: &Value| of(vm).is_some_and(is_ready);
    let away = machines.iter().filter(|vm| !is_up(vm)).count();
    let mut room = rules.max_unavailable(wanted).saturating_sub(away);
    for vm in ordered(rules.update_policy(), machines) {
        let Some(vmi) = of(vm).filter(|vmi| !is_deleting(vmi)) else { continue };
        let list = match difference(vmi, vm, seen.revisions) {
            Difference::Nothing => continue,
            Difference::Other => {
                plan.relabel.push((named(vmi), label(vm).to_owned()));
                continue;
            }
            Difference::Instance => &mut plan.restart,
            Difference::Disks => &mut plan.replace,
        };
        // One that is away anyway costs nothing.
        if rules.updates_lazily() || (is_up(vm) && room == 0) {
            continue;
        }
        room -= usize::from(is_up(vm));
        list.push(named(vm));
    }
}

fn named(vm: &Value) -> String {
    name(vm).to_owned()
}

/// The status of the pool.
pub(crate) fn status(pool: &Value, own: &[&Value], failure: Option<&str>, now: Timestamp) -> Value {
    let alive = own.iter().filter(|vm| !is_deleting(vm));
    let ready = alive.clone().filter(|vm| condition::is(vm, "Ready", "True")).count();
    let mut conditions = condition::of(pool);
    let paused = PoolRules::of(pool).is_paused();
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
mod tests;
