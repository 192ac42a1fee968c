use super::*;

fn node(name: &str, role: &str, ready: bool, extra: Value) -> Value {
    let mut labels = json!({"zone": name});
    match role {
        "management" => labels[CONTROL_PLANE] = "true".into(),
        "witness" => labels[crate::cluster::WITNESS_ROLE] = "true".into(),
        _ => {}
    }
    let status = if ready { "True" } else { "Unknown" };
    json!({"metadata": {"name": name, "labels": labels, "annotations": extra},
        "spec": {}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn manager(name: &str, ready: bool) -> Value {
    node(name, "management", ready, json!({}))
}

fn worker(name: &str, ready: bool) -> Value {
    node(name, "worker", ready, json!({}))
}

#[test]
fn a_witness_votes_and_takes_no_machines() {
    use MaintenanceRefusal::{LastNode, OtherControlPlane, Witness};
    let witness = |is_ready| node("x", "witness", is_ready, json!({}));
    let (a, b) = (manager("a", true), manager("b", true));
    let maintained = node("b", "management", true, json!({MAINTAIN_STATUS: RUNNING}));
    for (nodes, name, expected) in [
        (vec![a.clone(), b.clone(), witness(true)], "a", Ok(())),
        (vec![a.clone(), b.clone(), witness(false)], "a", Err(OtherControlPlane)),
        (vec![a.clone(), maintained, witness(true)], "a", Err(OtherControlPlane)),
        (vec![a.clone(), b, witness(true)], "x", Err(Witness)),
        // No machine can go to the witness.
        (vec![worker("w", true), witness(true)], "w", Err(LastNode)),
    ] {
        assert_eq!(check_node(name, &nodes), expected, "{name} of {nodes:?}");
    }
    assert!(!is_available(&witness(true)));
}

#[test]
fn a_node_that_the_cluster_needs_is_not_spared() {
    use MaintenanceRefusal::{LastNode, OtherControlPlane, SingleControlPlane};
    let maintained = |name: &str| node(name, "management", true, json!({MAINTAIN_STATUS: RUNNING}));
    let mut cordoned = worker("w", true);
    cordoned["spec"]["unschedulable"] = true.into();
    let cases = [
        (vec![manager("m", true)], "m", Err(SingleControlPlane)),
        (vec![manager("m", true), worker("w", true)], "m", Err(SingleControlPlane)),
        (vec![manager("m", true), worker("w", true)], "w", Ok(())),
        (vec![manager("m", true), cordoned.clone()], "w", Ok(())),
        (vec![manager("a", true), manager("b", true), manager("c", true)], "a", Ok(())),
        (
            vec![manager("a", true), maintained("b"), manager("c", true)],
            "a",
            Err(OtherControlPlane),
        ),
        (
            vec![manager("a", true), manager("b", false), manager("c", true)],
            "a",
            Err(OtherControlPlane),
        ),
        (vec![manager("a", true), manager("b", true)], "a", Err(OtherControlPlane)),
        (vec![manager("m", false), worker("w", true)], "w", Err(LastNode)),
        (vec![maintained("m"), worker("w", true), cordoned], "w", Err(LastNode)),
    ];
    for (nodes, name, expected) in cases {
        assert_eq!(check_node(name, &nodes), expected, "{name} of {nodes:?}");
    }
}

fn vmi(name: &str, node: &str, condition: Value) -> Value {
    json!({"metadata": {"namespace": "n", "name": name},
        "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": name}}]},
        "status": {"phase": "Running", "nodeName": node, "conditions": [condition]}})
}

fn migratable() -> Value {
    json!({"type": "LiveMigratable", "status": "True"})
}

const HERE: &str = "00000000-0000-0000-0000-000000000001";
const THERE: &str = "00000000-0000-0000-0000-000000000002";

/// The volume of a claim, with copies on these nodes, of which some are up to date.
fn volume(claim: &str, in_sync: &[&str]) -> (Value, Value, [Value; 2]) {
    let record = json!({"record": {"isr": in_sync}}).to_string();
    let handle = format!("pvc-{claim}");
    let replica = |uid: &str, node: &str| {
        json!({"metadata": {"uid": uid, "labels": {crate::longhorn::VOLUME_LABEL: handle}},
            "spec": {"nodeID": node}})
    };
    let volume = json!({"spec": {"csi": {"driver": crate::DRIVER, "volumeHandle": handle},
        "claimRef": {"namespace": "n", "name": claim}}});
    let engine = json!({"metadata": {"annotations": {crate::longhorn::RECORD: record}},
        "spec": {"volumeName": handle}});
    let replicas = [replica(HERE, "a"), replica(THERE, "b")];
    (volume, engine, replicas)
}

#[test]
fn machines_of_the_node_and_of_its_last_copies_are_concerned() {
    let refused = json!({"type": "LiveMigratable", "status": "False", "reason": "HostDevice"});
    let mut pinned = vmi("pinned", "a", migratable());
    pinned["spec"]["nodeSelector"] = json!({"zone": "a"});
    let mut over = vmi("over", "a", migratable());
    over["status"]["phase"] = "Succeeded".into();
    let instances = [
        vmi("moves", "a", migratable()),
        vmi("fixed", "a", refused),
        pinned,
        over,
        vmi("far", "b", migratable()),
        vmi("remote", "b", migratable()),
    ];
    let machines = [json!({"metadata": {"namespace": "n", "name": "moves",
        "labels": {STRATEGY: "ShutdownAndRestartAfterDisable"}}})];
    let stored = [volume("far", &[HERE, THERE]), volume("remote", &[HERE])];
    let volumes: Vec<Value> = stored.iter().map(|own| own.0.clone()).collect();
    let engines: Vec<Value> = stored.iter().map(|own| own.1.clone()).collect();
    let replicas: Vec<Value> = stored.iter().flat_map(|own| own.2.clone()).collect();
    let nodes = [worker("a", true), manager("b", true)];
    let objects = ClusterObjects {
        nodes: &nodes,
        instances: &instances,
        machines: &machines,
        volumes: &volumes,
        engines: &engines,
        replicas: &replicas,
    };
    let found = survey("a", &objects);
    let seen: Vec<_> = found
        .iter()
        .map(|own| {
            (own.name.as_str(), own.is_here, own.obstacle.as_ref().map(MigrationBlocker::reason))
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("moves", true, None),
            ("fixed", true, Some("HostDevice")),
            ("pinned", true, Some(NO_NODE)),
            ("remote", false, Some(LAST_COPY)),
        ]
    );
    assert_eq!(found[0].fate(false), MaintenanceAction::ShutDown, "its label says so");
    assert_eq!(found[1].fate(true), MaintenanceAction::ShutDown);
    let refusal = check_machines(&found).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "enabling maintenance mode is impossible. Non-migratable VMs found: n/fixed cannot be \
         migrated due to HostDevice; n/pinned cannot be migrated due to \
         NodeSchedulingRequirementsNotMet; n/remote cannot be migrated due to LastHealthyReplica. \
         Use 'force drain' to perform a collective shutdown"
    );
    let listed = unhealthy(&found);
    assert_eq!(listed.len(), 3);
    assert_eq!(
        listed[0].message,
        "The following VMs cannot be migrated due to HostDevice condition"
    );
    assert_eq!(listed[0].vms, ["n/fixed"]);
    let shown = preview("a", &objects);
    assert_eq!(shown.refusal, None);
    let shown: Vec<_> = shown
        .machines
        .iter()
        .map(|own| (own.name.as_str(), own.action, own.forced, own.reason.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("moves", "ShutDown", "ShutDown", Some("Label")),
            ("fixed", "Blocked", "ShutDown", Some("HostDevice")),
            ("pinned", "Blocked", "ShutDown", Some(NO_NODE)),
            ("remote", "Blocked", "ShutDown", Some(LAST_COPY)),
        ]
    );
    let refusal = preview("b", &objects).refusal;
    assert_eq!(refusal, Some(MaintenanceRefusal::SingleControlPlane.to_string()));
}

#[test]
fn machines_without_an_obstacle_are_evicted() {
    let machine = |strategy, is_here, obstacle| AffectedMachine {
        namespace: "n".into(),
        name: "m".into(),
        is_here,
        strategy,
        obstacle,
    };
    use MaintainStrategy::{Migrate, Shutdown};
    let last = || Some(MigrationBlocker::LastHealthyReplica);
    assert_eq!(machine(Migrate, true, None).fate(false), MaintenanceAction::Evict);
    assert_eq!(machine(Shutdown, true, last()).fate(false), MaintenanceAction::ShutDown);
    let blocked = MaintenanceAction::Blocked(MigrationBlocker::LastHealthyReplica);
    assert_eq!(machine(Migrate, true, last()).fate(false), blocked);
    // Its label concerns maintenance of the node that it runs on.
    assert_eq!(machine(Shutdown, false, last()).fate(false), blocked);
    assert_eq!(machine(Shutdown, false, last()).fate(true), MaintenanceAction::ShutDown);
}
