use super::*;

fn disks(count: usize) -> Vec<SnapshotDisk> {
    let claim = |index: usize| Some(json!({"metadata": {"name": format!("c{index}")}}));
    (0..count)
        .map(|index| SnapshotDisk { volume: format!("d{index}"), claim: claim(index) })
        .collect()
}

#[test]
fn only_disks_that_can_be_captured_are() {
    let own = |claim, behind| FoundClaim { claim, behind, ..FoundClaim::default() };
    let claim = || Some(json!({"status": {"phase": "Bound"}}));
    let ours = json!({"spec": {"csi": {"driver": hci::DRIVER, "volumeHandle": "v"}}});
    let local = json!({"spec": {"local": {}}});
    assert!(disk(own(claim(), Some(ours))).claim.is_some());
    assert!(disk(own(claim(), Some(local))).claim.is_none());
    assert!(disk(own(None, None)).claim.is_none());
    let vm = json!({"spec": {"template": {"spec": {"volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "b", "dataVolume": {"name": "d"}},
        {"name": "c", "ephemeral": {"persistentVolumeClaim": {"claimName": "e"}}},
        {"name": "d", "containerDisk": {"image": "x"}}]}}}});
    assert_eq!(claims(&vm), [("a", "c"), ("b", "d")]);
}

#[test]
fn a_content_names_machine_and_disks() {
    let uid = "6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01";
    let snapshot = json!({"metadata": {"name": "s", "namespace": "n", "uid": uid}});
    let vm = json!({"metadata": {"name": "m", "resourceVersion": "5"}, "spec": {"x": 1}});
    let vmi = json!({"status": {"phase": "Running"}});
    let made = content(&snapshot, &vm, Some(&vmi), &disks(2));
    let names = [0, 1].map(|disk| format!("vmsnapshot-{uid}-volume-d{disk}"));
    assert_eq!(snapshot_names(&made), names);
    let together = SnapshotGroup::parse(annotation(&made, TOGETHER).unwrap()).unwrap();
    assert_eq!((together.count, together.machine.as_str()), (2, "m"));
    assert_eq!(annotation(&content(&snapshot, &vm, None, &disks(2)), TOGETHER), None);
    let machine = &made["spec"]["source"]["virtualMachine"];
    assert_eq!(machine["metadata"], json!({"name": "m"}));
    let wanted = snapshots(&made, &[]);
    assert_eq!(annotation(&wanted[0], TOGETHER), annotation(&made, TOGETHER));
    assert_eq!(text(&wanted[1], "/spec/source/persistentVolumeClaimName"), "c1");
}

#[test]
fn a_machine_is_captured_when_all_its_disks_are() {
    let own = |status: Value| json!({"metadata": {"name": "d"}, "status": status});
    let taken = || own(json!({"creationTime": "t", "readyToUse": true}));
    let early = own(json!({"creationTime": "t", "readyToUse": false}));
    let failed = own(json!({"error": {"message": "no room"}}));
    assert_eq!(progress(&[taken(), own(json!({}))]), DiskProgress::Waiting);
    assert_eq!(progress(&[taken(), early]), DiskProgress::Taken { ready: false });
    assert_eq!(progress(&[taken()]), DiskProgress::Taken { ready: true });
    assert_eq!(
        progress(&[taken(), failed]),
        DiskProgress::Failed("VolumeSnapshot d: no room".into())
    );
}

#[test]
fn a_snapshot_has_five_minutes_unless_it_says_otherwise() {
    let own = |deadline: &str| {
        json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"failureDeadline": deadline},
        })
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    for (deadline, second, late) in [
        ("", 299, false),
        ("", 301, true),
        ("10s", 11, true),
        ("0s", 9999, false),
        ("1h0m0s", 301, false),
    ] {
        assert_eq!(is_late(&own(deadline), at(second)), late, "{deadline} at {second}");
    }
}
