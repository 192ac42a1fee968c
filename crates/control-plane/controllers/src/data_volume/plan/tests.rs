use super::super::source::source;
use super::*;
use crate::object::{list, text};

fn dv(spec: Value) -> Value {
    json!({"metadata": {"name": "d", "namespace": "n", "uid": "u"}, "spec": spec})
}

fn claim_with(phase: &str, annotations: Value) -> Value {
    json!({
        "metadata": {
            "annotations": annotations,
            "ownerReferences": [{"uid": "u", "controller": true}],
        },
        "status": {"phase": phase},
    })
}

#[test]
fn a_copy_on_the_same_driver_is_left_to_it() {
    let dv = json!({"metadata": {"name": "d", "namespace": "n"},
        "spec": {"source": {"pvc": {"name": "from"}}, "storage": {}}});
    let from = source(&dv, None);
    let mut wanted = claim(&dv, &from);
    default_size(&mut wanted, &from, &json!({"status": {"capacity": {"storage": "3Gi"}}}));
    link(&mut wanted, &from);
    assert_eq!(wanted["spec"]["dataSource"]["name"], "from");
    assert_eq!(wanted["spec"]["resources"]["requests"]["storage"], "3Gi");
    assert_eq!(annotation(&wanted, POD_PHASE), Some("Succeeded"));
    assert_eq!(annotation(&wanted, CLONE_REQUEST), None);
    assert_eq!(annotation(&wanted, DRIVER_CLONE), None);
    let elsewhere = DataVolumeSource::Clone { namespace: "m".into(), name: "from".into() };
    let mut wanted = claim(&dv, &elsewhere);
    link(&mut wanted, &elsewhere);
    assert_eq!(annotation(&wanted, DRIVER_CLONE), Some("pvc/m/from"));
    assert_eq!(wanted["spec"].get("dataSource"), None);
}

#[test]
fn a_missing_source_is_reported_in_a_condition() {
    let dv = dv(json!({}));
    let source = DataVolumeSource::Clone { namespace: "m".into(), name: "p".into() };
    let hold = CloneHold::Missing { kind: "pvc", name: "p".into() };
    let seen = DataVolumeInput {
        dv: &dv,
        source: &source,
        claim: None,
        hold: Some(&hold),
        waits_for_consumer: false,
    };
    let status = status(seen, Timestamp::UNIX_EPOCH);
    assert_eq!(text(&status, "/status/phase"), "Pending");
    let running = condition::find(list(&status, "/status/conditions"), "Running").unwrap();
    assert_eq!(text(running, "/reason"), "CloneWithoutSource");
    assert_eq!(text(running, "/message"), "The source pvc p doesn't exist");
}

#[test]
fn a_claim_carries_what_the_agent_needs() {
    let dv = dv(json!({
        "source": {"http": {"url": "http://x/i.qcow2", "secretRef": "s",
            "extraHeaders": ["A: b"], "secretExtraHeaders": ["h"]}},
        "storage": {"resources": {"requests": {"storage": "5Gi"}}},
    }));
    let claim = claim(&dv, &source(&dv, None));
    let note = |key: &str| annotation(&claim, &format!("cdi.kubevirt.io/storage.{key}"));
    assert_eq!(note("import.source"), Some("http"));
    assert_eq!(note("import.endpoint"), Some("http://x/i.qcow2"));
    assert_eq!(note("import.secretName"), Some("s"));
    assert_eq!(note("import.extraHeaders.0"), Some("A: b"));
    assert_eq!(note("import.secretExtraHeaders.0"), Some("h"));
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume");
}

#[test]
fn the_phase_follows_the_claim() {
    let dv = dv(json!({}));
    let http = DataVolumeSource::Http {
        url: "u".into(),
        secret: String::new(),
        certificates: String::new(),
        checksum: String::new(),
        headers: Vec::new(),
        secret_headers: Vec::new(),
    };
    let clone = DataVolumeSource::Clone { namespace: "n".into(), name: "p".into() };
    let pod = |phase: &str| json!({POD_PHASE: phase});
    let foreign = json!({"metadata": {}, "status": {"phase": "Bound"}});
    for (source, claim, waits, expected) in [
        (&http, None, true, "Pending"),
        (&http, Some(claim_with("Pending", json!({}))), true, "WaitForFirstConsumer"),
        (&http, Some(claim_with("Pending", json!({IMMEDIATE: ""}))), true, "Pending"),
        (&http, Some(claim_with("Pending", json!({SELECTED_NODE: "n"}))), true, "Pending"),
        (&http, Some(claim_with("Bound", json!({}))), true, "ImportScheduled"),
        (&http, Some(claim_with("Bound", pod("Running"))), true, "ImportInProgress"),
        (&clone, Some(claim_with("Bound", pod("Running"))), false, "CloneInProgress"),
        (&DataVolumeSource::Upload, Some(claim_with("Bound", json!({}))), false, "UploadScheduled"),
        (
            &DataVolumeSource::Upload,
            Some(claim_with("Bound", json!({POD_READY: "true"}))),
            false,
            "UploadReady",
        ),
        (&http, Some(claim_with("Bound", pod("Succeeded"))), false, "Succeeded"),
        (&http, Some(claim_with("Bound", pod("Failed"))), false, "Failed"),
        (&http, Some(foreign), false, "Pending"),
    ] {
        let claim = claim.as_ref();
        let seen =
            DataVolumeInput { dv: &dv, source, claim, hold: None, waits_for_consumer: waits };
        assert_eq!(phase(seen), expected, "{source:?} {claim:?}");
    }
}

#[test]
fn progress_and_trouble_are_repeated() {
    let dv = dv(json!({}));
    let notes = json!({POD_PHASE: "Running", PROGRESS: "42.0%", TROUBLE: "404 Not Found",
        TROUBLE_REASON: "Error", RESTARTS: "2"});
    let claim = claim_with("Bound", notes);
    let source = DataVolumeSource::Registry {
        url: "u".into(),
        secret: String::new(),
        certificates: String::new(),
    };
    let seen = DataVolumeInput {
        dv: &dv,
        source: &source,
        claim: Some(&claim),
        hold: None,
        waits_for_consumer: false,
    };
    let status = status(seen, Timestamp::UNIX_EPOCH);
    assert_eq!(status["status"]["progress"], "42.0%");
    assert_eq!(status["status"]["restartCount"], 2);
    let running = condition::find(list(&status, "/status/conditions"), "Running").unwrap();
    assert_eq!((text(running, "/status"), text(running, "/message")), ("False", "404 Not Found"));
}

#[test]
fn modes_come_from_the_profile_of_the_class() {
    let set = |access: &str, mode: &str| Set {
        access_modes: vec![access.to_owned()],
        volume_mode: mode.to_owned(),
    };
    let sets = [set("ReadWriteMany", "Block"), set("ReadWriteOnce", "Block")];
    for (storage, sets, access, mode) in [
        (json!({}), &sets[..], "ReadWriteMany", json!("Block")),
        (json!({"accessModes": ["ReadWriteOnce"]}), &sets[..], "ReadWriteOnce", json!("Block")),
        (json!({"volumeMode": "Filesystem"}), &sets[..], "ReadWriteOnce", json!("Filesystem")),
        (json!({}), &[][..], "ReadWriteOnce", json!(null)),
    ] {
        let dv = dv(json!({"source": {"blank": {}}, "storage": storage}));
        let mut claim = claim(&dv, &DataVolumeSource::Blank);
        default_modes(&mut claim, &dv, sets);
        assert_eq!(claim["spec"]["accessModes"], json!([access]), "{storage}");
        assert_eq!(claim["spec"].get("volumeMode").cloned().unwrap_or_default(), mode, "{storage}");
    }
    let exact = dv(json!({"source": {"blank": {}}, "pvc": {"accessModes": ["ReadOnlyMany"]}}));
    let mut own = claim(&exact, &DataVolumeSource::Blank);
    default_modes(&mut own, &exact, &sets);
    assert_eq!(own["spec"], json!({"accessModes": ["ReadOnlyMany"]}));
}
