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
fn made_from(recorded: &[&Value], pool: &Value, machines: &[Value], vmis: &[Value]) -> PoolPlan {
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
    assert!(plan.restart.is_empty(), "one was asked to end, and is ready until it did");
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
    assert_eq!(plan.update, ["p-0", "p-1"], "their revision is unknown");
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
