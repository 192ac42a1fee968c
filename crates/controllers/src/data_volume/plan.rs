//! The claim behind a data volume, and what the claim's state means for it: pure.
//!
//! How far the filling of a claim has come is written on the claim by the agent that fills
//! it, in CDI's annotations; the data volume only repeats that.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::object::{annotation, is_controlled_by, list, name, namespace, text};

pub(super) const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const PROGRESS: &str = "sheaf.io/import-progress";
const TROUBLE: &str = "cdi.kubevirt.io/storage.condition.running.message";
const TROUBLE_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
const RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
const IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Where the content of a data volume comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Http {
        url: String,
        secret: String,
        certificates: String,
        checksum: String,
    },
    Registry {
        url: String,
        secret: String,
        certificates: String,
    },
    Clone {
        namespace: String,
        name: String,
    },
    /// A snapshot of a claim, in the data volume's own namespace.
    Snapshot {
        name: String,
    },
    Upload,
    Blank,
    /// Named in the spec, but not something that can be fetched here.
    Unsupported(String),
}

/// What a data volume asks for; `data_source` is the one that `sourceRef` names, if it does.
pub(super) fn source(dv: &Value, data_source: Option<&Value>) -> Source {
    let own = &dv["spec"]["source"];
    let named = data_source.map(|found| &found["spec"]["source"]);
    let source = if own.is_object() { own } else { named.unwrap_or(&Value::Null) };
    let word = |kind: &str, key: &str| text(&source[kind], key).to_owned();
    if source["http"].is_object() {
        return Source::Http {
            url: word("http", "/url"),
            secret: word("http", "/secretRef"),
            certificates: word("http", "/certConfigMap"),
            checksum: word("http", "/checksum"),
        };
    }
    if source["registry"].is_object() {
        return Source::Registry {
            url: word("registry", "/url"),
            secret: word("registry", "/secretRef"),
            certificates: word("registry", "/certConfigMap"),
        };
    }
    if source["pvc"].is_object() {
        let from = word("pvc", "/namespace");
        let from = if from.is_empty() { namespace(dv).to_owned() } else { from };
        return Source::Clone { namespace: from, name: word("pvc", "/name") };
    }
    if source["snapshot"].is_object() {
        let from = word("snapshot", "/namespace");
        if from.is_empty() || from == namespace(dv) {
            return Source::Snapshot { name: word("snapshot", "/name") };
        }
    }
    if source["upload"].is_object() {
        return Source::Upload;
    }
    if source["blank"].is_object() || (source.is_null() && dv["spec"]["sourceRef"].is_null()) {
        return Source::Blank;
    }
    let kinds = source.as_object().map(|kinds| kinds.keys().cloned().collect::<Vec<_>>());
    Source::Unsupported(kinds.unwrap_or_default().join(", "))
}

/// The claim of a data volume, with what the agent has to know.
pub(super) fn claim(dv: &Value, source: &Source) -> Value {
    let mut annotations: Map<String, Value> =
        dv.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    let content = match text(dv, "/spec/contentType") {
        "" => "kubevirt",
        kind => kind,
    };
    let mut note = |key: &str, value: &str| {
        if !value.is_empty() {
            annotations.insert(format!("cdi.kubevirt.io/storage.{key}"), value.into());
        }
    };
    note("contentType", content);
    match source {
        Source::Http { url, secret, certificates, checksum } => {
            note("import.source", "http");
            note("import.endpoint", url);
            note("import.secretName", secret);
            note("import.certConfigMap", certificates);
            note("import.checksum", checksum);
        }
        Source::Registry { url, secret, certificates } => {
            note("import.source", "registry");
            note("import.endpoint", url);
            note("import.secretName", secret);
            note("import.certConfigMap", certificates);
        }
        Source::Clone { namespace, name } => {
            annotations.insert("k8s.io/CloneRequest".into(), format!("{namespace}/{name}").into());
        }
        Source::Upload => {
            annotations.insert("cdi.kubevirt.io/storage.upload.target".into(), "".into());
        }
        Source::Snapshot { .. } => {}
        Source::Blank | Source::Unsupported(_) => note("import.source", "none"),
    }
    let mut labels = dv.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    labels["app"] = "containerized-data-importer".into();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(dv), "namespace": namespace(dv),
            "labels": labels, "annotations": annotations,
            "ownerReferences": [
                crate::object::controlled_by(dv, "cdi.kubevirt.io/v1beta1", "DataVolume"),
            ],
        },
        "spec": claim_spec(dv),
    })
}

/// Whether a claim may be made by the driver of its class as a copy that shares its source's
/// space: both are the driver's, in one namespace.
pub(super) fn is_linked(
    source: &Source,
    dv: &Value,
    class: &Value,
    volume: Option<&Value>,
) -> bool {
    if text(class, "/provisioner") != hci::DRIVER {
        return false;
    }
    match source {
        Source::Snapshot { .. } => true,
        Source::Clone { namespace: from, .. } => {
            from == namespace(dv)
                && volume.is_some_and(|own| crate::longhorn::handle(own).is_some())
        }
        _ => false,
    }
}

/// The class that a claim will have: the one it names, or the default.
pub(super) fn class<'a>(claim: &Value, classes: &'a [Value]) -> Option<&'a Value> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    match text(claim, "/spec/storageClassName") {
        "" => classes.iter().find(|own| annotation(own, DEFAULT) == Some("true")),
        wanted => classes.iter().find(|own| name(own) == wanted),
    }
}

/// Has the driver copy the source, so that nobody has to fill the claim. `size` is that of the
/// source, for a claim that asks for nothing.
pub(super) fn link(claim: &mut Value, source: &Source, size: &Value) {
    let origin = match source {
        Source::Clone { name, .. } => json!({"kind": "PersistentVolumeClaim", "name": name}),
        Source::Snapshot { name } => {
            json!({"apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot", "name": name})
        }
        _ => return,
    };
    claim["spec"]["dataSource"] = origin;
    if claim.pointer("/spec/resources/requests/storage").is_none() && !size.is_null() {
        claim["spec"]["resources"] = json!({"requests": {"storage": size}});
    }
    if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
        annotations.remove("k8s.io/CloneRequest");
        annotations.insert(POD_PHASE.into(), "Succeeded".into());
    }
}

/// `spec.pvc` as it is, or `spec.storage` with what its users leave out.
fn claim_spec(dv: &Value) -> Value {
    let exact = &dv["spec"]["pvc"];
    if exact.is_object() {
        return exact.clone();
    }
    let mut spec = dv["spec"]["storage"].clone();
    if !spec.is_object() {
        spec = json!({});
    }
    if list(&spec, "/accessModes").is_empty() {
        spec["accessModes"] = json!(["ReadWriteOnce"]);
    }
    spec
}

/// Everything that a data volume's status follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) dv: &'a Value,
    pub(super) source: &'a Source,
    pub(super) claim: Option<&'a Value>,
    pub(super) waits_for_consumer: bool,
}

pub(super) fn phase(seen: Seen<'_>) -> &'static str {
    if matches!(seen.source, Source::Unsupported(_)) {
        return "Failed";
    }
    let Some(claim) = seen.claim else { return "Pending" };
    if !is_controlled_by(claim, seen.dv) {
        return "Pending";
    }
    if text(claim, "/status/phase") != "Bound" {
        let told = annotation(claim, IMMEDIATE).is_some()
            || annotation(claim, SELECTED_NODE).is_some_and(|node| !node.is_empty());
        return if seen.waits_for_consumer && !told { "WaitForFirstConsumer" } else { "Pending" };
    }
    let (scheduled, running) = match seen.source {
        Source::Clone { .. } | Source::Snapshot { .. } => ("CloneScheduled", "CloneInProgress"),
        Source::Upload if annotation(claim, POD_READY) == Some("true") => {
            ("UploadReady", "UploadReady")
        }
        Source::Upload => ("UploadScheduled", "UploadScheduled"),
        _ => ("ImportScheduled", "ImportInProgress"),
    };
    match annotation(claim, POD_PHASE) {
        Some("Succeeded") => "Succeeded",
        Some("Failed") => "Failed",
        Some("Running") => running,
        _ => scheduled,
    }
}

/// The status that a data volume should have.
pub(super) fn status(seen: Seen<'_>, now: Timestamp) -> Value {
    let phase = phase(seen);
    let note = |key: &str| seen.claim.and_then(|claim| annotation(claim, key)).unwrap_or("");
    let progress = match (phase, note(PROGRESS)) {
        ("Succeeded", _) => "100.0%",
        (_, "") => "N/A",
        (_, progress) => progress,
    };
    let mut conditions = condition::of(seen.dv);
    for wanted in conditions_for(seen, phase, note(TROUBLE), note(TROUBLE_REASON)) {
        condition::set(&mut conditions, &wanted, now);
    }
    let mut status = json!({"phase": phase, "progress": progress, "conditions": conditions});
    if seen.claim.is_some() {
        status["claimName"] = name(seen.dv).into();
    }
    if let Ok(restarts) = note(RESTARTS).parse::<u64>() {
        status["restartCount"] = restarts.into();
    }
    json!({"status": status})
}

fn conditions_for(seen: Seen<'_>, phase: &str, trouble: &str, reason: &str) -> [Condition; 3] {
    let own = name(seen.dv);
    let bound = match seen.claim {
        Some(claim) if !is_controlled_by(claim, seen.dv) => Condition::new("Bound", "False")
            .because(
                "ErrClaimNotValid",
                format!("claim {own} exists and belongs to somebody else"),
            ),
        Some(claim) if text(claim, "/status/phase") == "Bound" => {
            Condition::new("Bound", "True").because("Bound", format!("PVC {own} Bound"))
        }
        Some(_) => {
            Condition::new("Bound", "False").because("Pending", format!("PVC {own} Pending"))
        }
        None => Condition::new("Bound", "Unknown").because("NotFound", "No PVC found"),
    };
    let running = match (phase, seen.source) {
        (_, Source::Unsupported(kind)) => Condition::new("Running", "False")
            .because("Error", format!("cannot fill a volume from source: {kind}")),
        ("ImportInProgress" | "CloneInProgress" | "UploadReady", _) if trouble.is_empty() => {
            Condition::new("Running", "True").because("Pod is running", "")
        }
        ("Succeeded", _) => Condition::new("Running", "False").because("Completed", ""),
        _ => Condition::new("Running", "False").because(reason, trouble),
    };
    let ready = match phase {
        "Succeeded" => Condition::new("Ready", "True"),
        "Failed" => Condition::new("Ready", "False").because("Error", trouble),
        _ => Condition::new("Ready", "False"),
    };
    [ready, bound, running]
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let ours = json!({"metadata": {"name": "l"}, "provisioner": hci::DRIVER});
        let local = json!({"metadata": {"name": "local"}, "provisioner": "sheaf.io/local"});
        let volume = json!({"spec": {"csi": {"driver": hci::DRIVER, "volumeHandle": "v"}}});
        assert!(is_linked(&from, &dv, &ours, Some(&volume)));
        assert!(!is_linked(&from, &dv, &local, Some(&volume)));
        assert!(!is_linked(&from, &dv, &ours, Some(&json!({"spec": {"local": {}}}))));
        let mut wanted = claim(&dv, &from);
        link(&mut wanted, &from, &json!("3Gi"));
        assert_eq!(wanted["spec"]["dataSource"]["name"], "from");
        assert_eq!(wanted["spec"]["resources"]["requests"]["storage"], "3Gi");
        assert_eq!(annotation(&wanted, POD_PHASE), Some("Succeeded"));
        assert_eq!(annotation(&wanted, "k8s.io/CloneRequest"), None);
        let taken = json!({"metadata": {"namespace": "n"},
            "spec": {"source": {"snapshot": {"name": "s", "namespace": "n"}}}});
        assert_eq!(source(&taken, None), Source::Snapshot { name: "s".into() });
        let elsewhere = json!({"metadata": {"namespace": "n"},
            "spec": {"source": {"snapshot": {"name": "s", "namespace": "m"}}}});
        assert!(matches!(source(&elsewhere, None), Source::Unsupported(_)));
    }

    #[test]
    fn sources_are_told_apart() {
        let http = dv(json!({"source": {"http": {"url": "http://x"}}}));
        assert!(matches!(source(&http, None), Source::Http { url, .. } if url == "http://x"));
        let clone = dv(json!({"source": {"pvc": {"name": "p"}}}));
        let from_here = Source::Clone { namespace: "n".into(), name: "p".into() };
        assert_eq!(source(&clone, None), from_here);
        let by_name = dv(json!({"sourceRef": {"kind": "DataSource", "name": "s"}}));
        let found = json!({"spec": {"source": {"pvc": {"name": "p", "namespace": "m"}}}});
        let from_there = Source::Clone { namespace: "m".into(), name: "p".into() };
        assert_eq!(source(&by_name, Some(&found)), from_there);
        assert_eq!(source(&dv(json!({"source": {"blank": {}}})), None), Source::Blank);
        let strange = dv(json!({"source": {"vddk": {}}}));
        assert_eq!(source(&strange, None), Source::Unsupported("vddk".into()));
    }

    #[test]
    fn a_claim_carries_what_the_agent_needs() {
        let dv = dv(json!({
            "source": {"http": {"url": "http://x/i.qcow2", "secretRef": "s"}},
            "storage": {"resources": {"requests": {"storage": "5Gi"}}},
        }));
        let claim = claim(&dv, &source(&dv, None));
        let note = |key: &str| annotation(&claim, &format!("cdi.kubevirt.io/storage.{key}"));
        assert_eq!(note("import.source"), Some("http"));
        assert_eq!(note("import.endpoint"), Some("http://x/i.qcow2"));
        assert_eq!(note("import.secretName"), Some("s"));
        assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
        assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume");
    }

    #[test]
    fn the_phase_follows_the_claim() {
        let dv = dv(json!({}));
        let http = Source::Http {
            url: "u".into(),
            secret: String::new(),
            certificates: String::new(),
            checksum: String::new(),
        };
        let clone = Source::Clone { namespace: "n".into(), name: "p".into() };
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
            (&Source::Upload, Some(claim_with("Bound", json!({}))), false, "UploadScheduled"),
            (
                &Source::Upload,
                Some(claim_with("Bound", json!({POD_READY: "true"}))),
                false,
                "UploadReady",
            ),
            (&http, Some(claim_with("Bound", pod("Succeeded"))), false, "Succeeded"),
            (&http, Some(claim_with("Bound", pod("Failed"))), false, "Failed"),
            (&http, Some(foreign), false, "Pending"),
        ] {
            let seen = Seen { dv: &dv, source, claim: claim.as_ref(), waits_for_consumer: waits };
            assert_eq!(phase(seen), expected, "{source:?} {claim:?}");
        }
    }

    #[test]
    fn progress_and_trouble_are_repeated() {
        let dv = dv(json!({}));
        let notes = json!({POD_PHASE: "Running", PROGRESS: "42.0%", TROUBLE: "404 Not Found",
            TROUBLE_REASON: "Error", RESTARTS: "2"});
        let claim = claim_with("Bound", notes);
        let source = Source::Registry {
            url: "u".into(),
            secret: String::new(),
            certificates: String::new(),
        };
        let seen =
            Seen { dv: &dv, source: &source, claim: Some(&claim), waits_for_consumer: false };
        let status = status(seen, Timestamp::UNIX_EPOCH);
        assert_eq!(status["status"]["progress"], "42.0%");
        assert_eq!(status["status"]["restartCount"], 2);
        let running = condition::find(list(&status, "/status/conditions"), "Running").unwrap();
        assert_eq!(
            (text(running, "/status"), text(running, "/message")),
            ("False", "404 Not Found")
        );
    }
}
