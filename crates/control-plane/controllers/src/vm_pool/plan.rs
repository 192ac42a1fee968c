//! Which machines a pool makes, changes and gives up: pure.

mod heal;
mod machine;
mod revision;

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::heal::{Health, health};
use self::machine::index_of;
pub(crate) use self::machine::{disks, machine, relabelled, released, update};
use self::revision::{Difference, difference, label};
pub(crate) use self::revision::{own_revisions, revision};
use crate::condition::{self, Condition};
use crate::object::{is_controlled_by, is_deleting, is_true, name, text};
use crate::selector;
use crate::vmi_replica_set::plan::{replicas, selector_text};

/// How many machines are made or deleted at a time.
const BURST: usize = 20;
/// Which machines follow the template, and in which order.
const UPDATE_POLICY: &str = "/spec/updateStrategy/proactive/selectionPolicy";

/// What would bring a pool nearer to what it should be.
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
    /// When to look again without news.
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
    matches!(
        text(pool, "/spec/scaleInStrategy/proactive/statePreservation"),
        // Memory is not kept by anybody yet, not upstream either.
        "Offline" | "Online"
    )
}

pub(crate) fn plan(pool: &Value, seen: PoolInput<'_>, now: Timestamp) -> PoolPlan {
    if is_deleting(pool) || is_true(pool, "/spec/paused") {
        return PoolPlan::default();
    }
    let mut plan = PoolPlan::default();
    let alive: Vec<&Value> = seen.own.iter().filter(|vm| !is_deleting(vm)).copied().collect();
    let wanted = replicas(pool);
    if seen.own.len() < wanted {
        let free = (0..).filter(|index| !seen.taken.contains(&&*format!("{}-{index}", name(pool))));
        plan.create = free.take((wanted - seen.own.len()).min(BURST)).collect();
    }
    let mut kept = give_up(pool, &alive, &mut plan, now);
    let surplus = alive.len().saturating_sub(wanted).saturating_sub(plan.delete.len());
    if surplus > 0 && scales_in(pool) {
        let policy = "/spec/scaleInStrategy/proactive/selectionPolicy";
        let chosen = choose(pool, &kept, policy);
        plan.delete.extend(chosen.into_iter().take(surplus).map(named));
    }
    plan.delete.truncate(BURST);
    if pool.pointer("/spec/updateStrategy/unmanaged").is_none() {
        kept.retain(|vm| !plan.delete.iter().any(|own| own == name(vm)));
        let kept = selected(pool, kept, UPDATE_POLICY);
        let (new, old): (Vec<&Value>, Vec<&Value>) =
            kept.into_iter().partition(|vm| revision::is_current(pool, vm, seen.revisions));
        plan.update = old.into_iter().map(named).collect();
        renew(pool, &new, seen, &mut plan);
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
    pool: &Value,
    alive: &[&'a Value],
    plan: &mut PoolPlan,
    now: Timestamp,
) -> Vec<&'a Value> {
    let mut kept = Vec::new();
    for vm in alive {
        match health(pool, vm, now) {
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
fn renew(pool: &Value, machines: &[&Value], seen: PoolInput<'_>, plan: &mut PoolPlan) {
    let of = |vm: &Value| seen.vmis.iter().find(|vmi| is_controlled_by(vmi, vm));
    // One that was told to end still says that it is ready, until it is gone.
    let is_ready = |vmi: &Value| !is_deleting(vmi) && condition::is(vmi, "Ready", "True");
    let is_up = |vm: &Value| of(vm).is_some_and(is_ready);
    let is_lazy = pool.pointer("/spec/updateStrategy/opportunistic").is_some();
    let away = machines.iter().filter(|vm| !is_up(vm)).count();
    let mut room = max_unavailable(pool).saturating_sub(away);
    for vm in choose(pool, machines, UPDATE_POLICY) {
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
        if is_lazy || (is_up(vm) && room == 0) {
            continue;
        }
        room -= usize::from(is_up(vm));
        list.push(named(vm));
    }
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

/// The machines that a policy is about.
fn selected<'a>(pool: &Value, mut chosen: Vec<&'a Value>, policy: &str) -> Vec<&'a Value> {
    let labels = pool.pointer(&format!("{policy}/selectors/labelSelector"));
    if let Some(labels) = labels {
        let none = Value::Null;
        chosen.retain(|vm| {
            let own = vm.pointer("/spec/template/metadata/labels").unwrap_or(&none);
            selector::matches(labels, own)
        });
    }
    let nodes = pool.pointer(&format!("{policy}/selectors/nodeSelectorRequirementMatcher"));
    if let Some(nodes) = nodes {
        let (none, wanted) = (Value::Null, json!({"matchExpressions": nodes}));
        chosen.retain(|vm| {
            let own = vm.pointer("/spec/template/spec/nodeSelector").unwrap_or(&none);
            selector::matches(&wanted, own)
        });
    }
    chosen
}

/// Machines in the order in which a policy takes them.
fn choose<'a>(pool: &Value, machines: &[&'a Value], policy: &str) -> Vec<&'a Value> {
    let mut chosen = selected(pool, machines.to_vec(), policy);
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
    use super::revision::REVISION;
    use super::*;

    fn pool(changes: Value) -> Value {
        let template = json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}}}}});
        let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
            "virtualMachineTemplate": template});
        for (field, value) in changes.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1},
            "spec": spec})
    }

    /// The pool with another template.
    fn changed(pool: &Value, field: &str, value: Value) -> Value {
        let mut new = pool.clone();
        new["spec"]["virtualMachineTemplate"]["spec"][field] = value;
        new["metadata"]["generation"] = json!(2);
        new
    }

    fn vm(pool: &Value, index: usize) -> Value {
        let mut vm = machine(pool, index);
        vm["metadata"]["uid"] = json!(format!("vm{index}"));
        vm["metadata"]["creationTimestamp"] = json!(format!("2026-01-0{}T00:00:00Z", index + 1));
        vm
    }

    fn vmi(index: usize, pool: &Value, ready: &str) -> Value {
        let revision = name(&revision(pool)).to_owned();
        json!({"metadata": {"name": format!("p-{index}"), "labels": {REVISION: revision},
                "ownerReferences": [{"uid": format!("vm{index}"), "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn made(pool: &Value, machines: &[Value], vmis: &[Value]) -> PoolPlan {
        made_from(&[pool], pool, machines, vmis)
    }

    /// The plan of a pool that has recorded some of its templates.
    fn made_from(
        recorded: &[&Value],
        pool: &Value,
        machines: &[Value],
        vmis: &[Value],
    ) -> PoolPlan {
        let revisions: Vec<Value> = recorded.iter().map(|pool| revision(pool)).collect();
        let taken: Vec<&str> = machines.iter().map(name).collect();
        let own = own(pool, machines);
        let now = "2026-02-01T00:00:00Z".parse().unwrap();
        let revisions = own_revisions(pool, &revisions);
        plan(pool, PoolInput { own: &own, taken: &taken, vmis, revisions: &revisions }, now)
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
    fn surplus_machines_are_chosen_by_what_their_instances_are_labelled_and_where_they_run() {
        let chosen = |selectors: Value| {
            let strategy = json!({"proactive": {"selectionPolicy": {"selectors": selectors}}});
            let pool = pool(json!({"replicas": 0, "scaleInStrategy": strategy}));
            let mut machines: Vec<Value> = (0..3).map(|index| vm(&pool, index)).collect();
            machines[1]["spec"]["template"]["metadata"]["labels"]["role"] = json!("idle");
            machines[2]["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "z"});
            made(&pool, &machines, &[]).delete
        };
        assert_eq!(chosen(json!({"labelSelector": {"matchLabels": {"role": "idle"}}})), ["p-1"]);
        let zone = json!([{"key": "zone", "operator": "In", "values": ["z"]}]);
        assert_eq!(chosen(json!({"nodeSelectorRequirementMatcher": zone})), ["p-2"]);
        assert_eq!(chosen(json!({})), ["p-2", "p-1", "p-0"]);
    }

    #[test]
    fn a_machine_that_does_not_come_up_is_replaced() {
        let pool = pool(json!({"replicas": 1, "autohealing": {}}));
        let mut machines: Vec<Value> = (0..2).map(|index| vm(&pool, index)).collect();
        machines[0]["status"] = json!({"startFailure": {"consecutiveFailCount": 3}});
        let plan = made(&pool, &machines, &[]);
        assert_eq!(plan.delete, ["p-0"], "it is also the one too many");
        machines[0]["status"] = json!({"printableStatus": "CrashLoopBackOff", "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-31T23:59:00Z"}]});
        let plan = made(&pool, &machines[..1], &[]);
        assert_eq!((plan.delete, plan.again), (vec![], Some(Duration::from_secs(240))));
    }

    #[test]
    fn a_pool_that_is_left_alone_keeps_its_machines() {
        let pool = pool(json!({"replicas": 0, "scaleInStrategy": {"unmanaged": {}}}));
        assert!(made(&pool, &[vm(&pool, 0)], &[]).delete.is_empty());
    }

    #[test]
    fn a_new_template_reaches_machines_and_then_instances() {
        let old = pool(json!({}));
        let new = changed(&old, "template", json!({"spec": {"domain": {"x": 1}}}));
        let machines: Vec<Value> = (0..2).map(|index| vm(&old, index)).collect();
        assert_eq!(made_from(&[&old], &new, &machines, &[]).update, ["p-0", "p-1"]);
        let updated: Vec<Value> = (0..2).map(|index| vm(&new, index)).collect();
        let vmis: Vec<Value> = (0..2).map(|index| vmi(index, &old, "True")).collect();
        let both = [&old, &new];
        assert_eq!(made_from(&both, &new, &updated, &vmis).restart, ["p-1", "p-0"]);
        let mut careful = new.clone();
        careful["spec"]["maxUnavailable"] = json!(1);
        assert_eq!(made_from(&both, &careful, &updated, &vmis).restart, ["p-1"], "one at a time");
        let half = [vmis[0].clone(), vmi(1, &new, "False")];
        let plan = made_from(&both, &careful, &updated, &half);
        assert!(plan.restart.is_empty(), "one is away already");
        let mut ending = vmis.clone();
        ending[1]["metadata"]["deletionTimestamp"] = json!("2026-01-31T00:00:00Z");
        let plan = made_from(&both, &careful, &updated, &ending);
        assert!(plan.restart.is_empty(), "one was told to end, and is ready until it did");
        let mut later = new.clone();
        later["spec"]["updateStrategy"] = json!({"opportunistic": {}});
        assert!(made_from(&both, &later, &updated, &vmis).restart.is_empty());
    }

    #[test]
    fn a_new_template_reaches_selected_machines_only() {
        let policy = json!({"selectors": {"labelSelector": {"matchLabels": {"app": "test"}}}});
        let strategy = json!({"proactive": {"selectionPolicy": policy}});
        let old = pool(json!({"replicas": 2, "updateStrategy": strategy}));
        let new = changed(&old, "template", json!({"spec": {"domain": {"x": 1}}}));
        let mut machines: Vec<Value> = (0..2).map(|index| vm(&old, index)).collect();
        assert!(made_from(&[&old], &new, &machines, &[]).update.is_empty());
        machines[1]["spec"]["template"]["metadata"]["labels"]["app"] = json!("test");
        assert_eq!(made_from(&[&old], &new, &machines, &[]).update, ["p-1"]);
    }

    #[test]
    fn a_pool_of_another_size_has_the_same_machines() {
        let old = pool(json!({}));
        let mut new = pool(json!({"replicas": 3}));
        new["metadata"]["generation"] = json!(2);
        let machines: Vec<Value> = (0..2).map(|index| vm(&old, index)).collect();
        let plan = made_from(&[&old], &new, &machines, &[]);
        assert_eq!((plan.create, plan.update), (vec![2], vec![]));
        let plan = made_from(&[], &old, &machines, &[]);
        assert_eq!(plan.update, ["p-0", "p-1"], "nobody knows what they were made from");
    }

    #[test]
    fn new_disks_need_a_new_machine_and_a_new_strategy_nothing() {
        let old = pool(json!({"replicas": 1}));
        let vmis = [vmi(0, &old, "True")];
        let with = |field: &str, value: Value| {
            let new = changed(&old, field, value);
            made_from(&[&old, &new], &new, &[vm(&new, 0)], &vmis)
        };
        let disks = with("dataVolumeTemplates", json!([{"metadata": {"name": "d"}}]));
        assert_eq!((disks.replace, disks.restart), (vec!["p-0".to_owned()], vec![]));
        let strategy = with("runStrategy", json!("Manual"));
        let relabelled = ("p-0".to_owned(), "p-2".to_owned());
        assert_eq!((strategy.relabel, strategy.restart), (vec![relabelled], vec![]));
    }

    #[test]
    fn templates_that_nothing_is_made_from_are_forgotten_when_all_is_done() {
        let old = pool(json!({"replicas": 1}));
        let new = changed(&old, "template", json!({"spec": {"domain": {"x": 1}}}));
        let both = [&old, &new];
        let (before, after) = ([vmi(0, &old, "True")], [vmi(0, &new, "True")]);
        assert!(made_from(&both, &new, &[vm(&new, 0)], &before).prune.is_empty(), "it runs");
        assert_eq!(made_from(&both, &new, &[vm(&new, 0)], &after).prune, ["p-1"]);
    }

    #[test]
    fn disks_are_kept_if_the_strategy_says_so() {
        let keeps = |strategy: Value| keeps_disks(&pool(json!({"scaleInStrategy": strategy})));
        assert!(keeps(json!({"proactive": {"statePreservation": "Offline"}})));
        assert!(!keeps(json!({"proactive": {"statePreservation": "Disabled"}})));
        assert!(!keeps(json!({})));
    }

    #[test]
    fn how_many_may_be_away_is_a_number_or_a_share() {
        let most =
            |value: Value| max_unavailable(&pool(json!({"replicas": 5, "maxUnavailable": value})));
        assert_eq!((most(json!(2)), most(json!("50%")), most(json!("100%"))), (2, 3, 5));
        assert_eq!(max_unavailable(&pool(json!({"replicas": 5}))), 5);
    }
}
