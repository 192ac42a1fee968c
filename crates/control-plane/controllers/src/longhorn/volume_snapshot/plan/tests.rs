use super::*;
use crate::object::text;

fn classes() -> Vec<Value> {
    let class = |name: &str, driver: &str, default: &str| {
        json!({"metadata": {"name": name, "annotations": {DEFAULT: default}},
            "driver": driver, "deletionPolicy": "Delete", "parameters": {"type": "snap"}})
    };
    vec![class("own", hci::DRIVER, "true"), class("other", "example.org", "false")]
}

fn snapshot(class: &str) -> Value {
    json!({"metadata": {"name": "s", "namespace": "n", "uid": "u"},
        "spec": {"volumeSnapshotClassName": class,
            "source": {"persistentVolumeClaimName": "c"}}})
}

#[test]
fn a_snapshot_gets_content_by_its_class() {
    let claim = json!({"status": {"phase": "Bound"}});
    let volume = json!({"spec": {"volumeMode": "Block",
        "csi": {"driver": hci::DRIVER, "volumeHandle": "v"}}});
    let local = json!({"spec": {"local": {}}});
    let make = |class: &str, claim: Option<&Value>, volume: Option<&Value>| {
        content(&snapshot(class), claim, volume, &classes())
            .map_err(|own| own.to_string())
            .map(|own| own.map(|own| own["spec"]["source"]["volumeHandle"].clone()))
    };
    let made = Ok(Some(json!("v")));
    assert_eq!(make("own", Some(&claim), Some(&volume)), made);
    assert_eq!(make("", Some(&claim), Some(&volume)), made, "the default of the driver");
    assert_eq!(make("other", Some(&claim), Some(&volume)), Ok(None));
    assert_eq!(make("", Some(&claim), Some(&local)), Ok(None));
    for (class, claim, volume, expected) in [
        ("none", Some(&claim), Some(&volume), "snapshot class none is not found"),
        ("own", None, None, "failed to get PVC c: it is not found"),
        (
            "own",
            Some(&json!({})),
            None,
            "the PVC c is not yet bound to a PV, will not attempt to take a snapshot",
        ),
        (
            "own",
            Some(&claim),
            Some(&local),
            "snapshot class own is for driver driver.longhorn.io, and the volume of PVC c is \
             not",
        ),
    ] {
        assert_eq!(make(class, claim, volume), Err(expected.to_owned()));
    }
}

#[test]
fn the_status_of_longhorn_reaches_the_snapshot() {
    let now = Timestamp::UNIX_EPOCH;
    let mut own = json!({"metadata": {"name": "snapcontent-u"},
        "spec": {"volumeSnapshotRef": {"uid": "u"}}});
    assert_eq!(own_name(&own), "snapshot-u");
    assert_eq!(content_of("snapshot-u").as_deref(), Some("snapcontent-u"));
    let taken = json!({"metadata": {"name": "snapshot-u"}, "spec": {"volume": "v"},
        "status": {"readyToUse": true, "creationTime": "2026-01-02T03:04:05Z",
            "restoreSize": 1_i64 << 30}});
    own["status"] = content_status(&own, "snapshot-u", Some(&taken), now)["status"].clone();
    assert_eq!(own["status"]["snapshotHandle"], "snap://v/snapshot-u");
    let reported = status(&snapshot("own"), &own)["status"].clone();
    assert_eq!(reported["creationTime"], "2026-01-02T03:04:05Z");
    assert_eq!((&reported["restoreSize"], &reported["readyToUse"]), (&json!("1Gi"), &json!(true)));
    let failed = json!({"status": {"error": "no room"}});
    let failure = content_status(&own, "snapshot-u", Some(&failed), now);
    assert_eq!(text(&failure, "/status/error/message"), "no room");
    let gone = content_status(&own, "snapshot-u", None, now);
    assert_eq!(text(&gone, "/status/error/message"), "snapshot snapshot-u is not found");
}

#[test]
fn a_content_of_a_backup_is_ready_when_that_is_complete() {
    let now = Timestamp::UNIX_EPOCH;
    let content = json!({"spec": {"source": {"snapshotHandle": "bak://v/b"}}});
    assert_eq!(backup_of(&content), Some("b"));
    let backup = |state: &str, volume: &str| json!({"status": {"state": state, "volumeName": volume, "volumeSize": "7"}});
    let reported = backup_status(&content, "b", Some(&backup("Completed", "v")), now);
    assert_eq!(reported["status"]["readyToUse"], true);
    assert_eq!(reported["status"]["restoreSize"], 7);
    for other in [None, Some(backup("Completed", "w")), Some(backup("InProgress", "v"))] {
        let reported = backup_status(&content, "b", other.as_ref(), now);
        assert_eq!(reported["status"]["readyToUse"], false, "{other:?}");
    }
}

#[test]
fn only_snapshots_are_taken_and_the_parameter_is_named() {
    let class = |kind: &str| json!({"parameters": {"type": kind}});
    assert_eq!(check_class(Some(&class("snap"))), Ok(()));
    let refused = check_class(Some(&class("bak"))).unwrap_err().to_string();
    assert!(refused.starts_with("parameter type \"bak\""), "{refused}");
}

#[test]
fn a_prepared_content_is_bound_to_the_snapshot_it_names() {
    let content = |uid: &str, name: &str| json!({"spec": {"volumeSnapshotRef": {"namespace": "n", "name": name, "uid": uid}}});
    let own = snapshot("own");
    assert!(binding(&own, &content("", "s")).is_some());
    assert!(binding(&own, &content("u", "s")).is_none());
    assert!(binding(&own, &content("", "t")).is_none());
    assert!(belongs(&content("u", "s"), &own) && !belongs(&content("x", "s"), &own));
}

#[test]
fn a_snapshot_stays_while_a_claim_is_made_from_it() {
    let claim = |phase: &str| {
        json!({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}},
            "status": {"phase": phase}})
    };
    assert!(is_source(&snapshot("own"), &[claim("Pending")]));
    assert!(!is_source(&snapshot("own"), &[claim("Bound")]));
}
