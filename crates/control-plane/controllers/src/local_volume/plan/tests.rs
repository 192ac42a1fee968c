mod interleavings;

use super::*;

fn moves() -> LocalVolumeMove {
    LocalVolumeMove {
        migration: "m".into(),
        namespace: "n".into(),
        instance: "web".into(),
        uid: "u".into(),
        source: "a".into(),
        target: "b".into(),
    }
}

/// An instance that migrates from `a` to `b`, on `node`.
fn instance(node: &'static str) -> InstanceEvidence<'static> {
    let migration = MigrationStateFields {
        migration_uid: "m",
        source_node: "a",
        target_node: "b",
        ..MigrationStateFields::default()
    };
    let copied = CopiedVolumes { migration: "m".into(), volumes: vec!["v".into()] };
    InstanceEvidence { namespace: "n", name: "web", uid: "u", node, migration, copied }
}

fn failed() -> InstanceEvidence<'static> {
    let mut own = instance("a");
    own.migration.failed = true;
    own
}

fn arrived() -> InstanceEvidence<'static> {
    let mut own = instance("b");
    own.migration.completed = true;
    own
}

/// The next migration, which copies nothing yet.
fn migrates_again(node: &'static str, target: &'static str) -> InstanceEvidence<'static> {
    let mut own = instance(node);
    own.migration = MigrationStateFields {
        migration_uid: "m2",
        source_node: node,
        target_node: target,
        ..MigrationStateFields::default()
    };
    own
}

#[test]
fn each_situation_has_one_step() {
    let settled = |node: &str| VolumePlacement::Settled { node: node.into() };
    let moving = || VolumePlacement::Moving(moves());
    let wait = || VolumeMoveStep::Wait;
    let commit = || VolumeMoveStep::Commit(moves());
    let other = InstanceEvidence { uid: "u2", ..instance("a") };
    let other_volume = {
        let mut own = instance("a");
        own.copied.volumes = vec!["w".into()];
        own
    };
    let not_copied = InstanceEvidence { copied: CopiedVolumes::default(), ..arrived() };
    for (what, placement, instance, step) in [
        ("its node copies it", settled("a"), Some(instance("a")), VolumeMoveStep::Begin(moves())),
        ("it is elsewhere", settled("c"), Some(instance("a")), wait()),
        ("another volume is copied", settled("a"), Some(other_volume), wait()),
        ("of the migration before", settled("a"), Some(migrates_again("a", "b")), wait()),
        ("it has failed", settled("a"), Some(failed()), wait()),
        ("nobody has it", settled("a"), None, wait()),
        ("it has moved", settled("b"), Some(arrived()), wait()),
        ("it is copied", moving(), Some(instance("a")), wait()),
        ("handed over", moving(), Some(arrived()), commit()),
        ("handed over in post-copy", moving(), Some(instance("b")), commit()),
        ("migrates further", moving(), Some(migrates_again("b", "c")), commit()),
        ("handed over without the copy", moving(), Some(not_copied), VolumeMoveStep::Abort),
        ("failed", moving(), Some(failed()), VolumeMoveStep::Abort),
        ("failed, and again", moving(), Some(migrates_again("a", "b")), VolumeMoveStep::Abort),
        ("its machine is gone", moving(), None, VolumeMoveStep::Abort),
        ("another machine of its name", moving(), Some(other), VolumeMoveStep::Abort),
        (
            "an annotation that nobody understands",
            VolumePlacement::Moving(LocalVolumeMove::default()),
            Some(InstanceEvidence::default()),
            VolumeMoveStep::Abort,
        ),
    ] {
        assert_eq!(next("v", &placement, instance.as_ref()), step, "{what}");
    }
}

#[test]
fn a_commit_names_the_new_node_and_the_nodes_with_old_files() {
    let node = |name: &str| json!({"key": HOSTNAME, "operator": "In", "values": [name]});
    let terms = |name: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [node(name)]}]});
    let mut volume = json!({
        "metadata": {"name": "v", "uid": "x", "resourceVersion": "7",
            "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {"local": {"path": "/v"}, "nodeAffinity": {"required": terms("a")}},
    });
    let settled = |node: &str| Some(VolumePlacement::Settled { node: node.into() });
    assert_eq!(VolumePlacement::of(&volume), settled("a"));
    let begun = patch(&volume, &VolumeMoveStep::Begin(moves())).unwrap();
    assert_eq!(begun["metadata"]["resourceVersion"], "7", "refused if it has changed");
    volume["metadata"]["annotations"][VOLUME_MOVE] =
        begun["metadata"]["annotations"][VOLUME_MOVE].clone();
    assert_eq!(VolumePlacement::of(&volume), Some(VolumePlacement::Moving(moves())));

    for (known, left) in [(Value::Null, "a"), (json!("b,c"), "a,c"), (json!("a"), "a")] {
        volume["metadata"]["annotations"][PREVIOUS_NODES] = known;
        let done = patch(&volume, &VolumeMoveStep::Commit(moves())).unwrap();
        assert_eq!(done["spec"]["nodeAffinity"]["required"], terms("b"));
        let notes = &done["metadata"]["annotations"];
        assert_eq!((&notes[PREVIOUS_NODES], &notes[VOLUME_MOVE]), (&json!(left), &Value::Null));
        assert_eq!(done["metadata"]["resourceVersion"], "7");
    }
    let aborted = patch(&volume, &VolumeMoveStep::Abort).unwrap();
    assert_eq!(aborted["metadata"]["annotations"], json!({VOLUME_MOVE: null}));
    assert!(aborted["spec"].is_null());
    assert_eq!(patch(&volume, &VolumeMoveStep::Wait), None);
    volume["metadata"]["annotations"] = json!({});
    assert_eq!(VolumePlacement::of(&volume), None, "another provisioner has made it");
}

#[test]
fn evidence_is_read_from_the_instance() {
    let copied = CopiedVolumes { migration: "m".into(), volumes: vec!["v".into()] };
    let object = json!({
        "metadata": {"namespace": "n", "name": "web", "uid": "u",
            "annotations": {COPIED_VOLUMES: copied.encode()}},
        "status": {"nodeName": "a", "migrationState": {
            "migrationUid": "m", "sourceNode": "a", "targetNode": "b"}},
    });
    assert_eq!(InstanceEvidence::of(&object), instance("a"));
}
