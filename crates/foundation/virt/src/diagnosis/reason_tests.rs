//! Reasons of volumes, images and migrations, and a search for reasons that nobody explains.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::tests::{first, now, object, with_condition, with_disk};
use super::*;
use crate::reason::{
    FillFailure, ImageFailure, InstanceFailure, MachineFailure, NotMigratable, NotReady,
    NotRestarted, NotSynchronized, Pause, VolumeFailure, VolumesChange,
};

/// The first finding is not generic, and its command can be run.
#[track_caller]
fn explained(reason: &str, facts: &DiagnosisInput) {
    let found = diagnose(facts, now());
    let told = |own: &&DiagnosisFinding| own.why == "m";
    let finding = found.findings.iter().find(told);
    let finding = finding.unwrap_or_else(|| panic!("{reason} is not told: {found:#?}"));
    assert!(!finding.what.contains(reason), "{reason}: {finding:?}");
    let has_command = ["sheaf ", "kubectl "].iter().any(|own| finding.fix.starts_with(own));
    assert!(has_command, "{reason}: {finding:?}");
}

fn running(condition: Value) -> DiagnosisInput {
    with_condition("Running", "Running", condition)
}

/// A running machine with one bound claim, whose volume has a condition.
fn with_volume(condition: Value) -> DiagnosisInput {
    let mut one = running(json!({"type": "Ready", "status": "True"}));
    one.machine = with_disk("d").machine;
    one.claims = vec![object(json!({
        "metadata": {"name": "d", "annotations": {"harvesterhci.io/imageId": "pub/debian"}},
        "spec": {"volumeName": "pvc-1"}, "status": {"phase": "Bound"}}))];
    one.storage_volumes = vec![object(json!({"metadata": {"name": "pvc-1"},
        "status": {"conditions": [condition]}}))];
    one
}

fn image(condition: Value) -> Image {
    object(json!({
        "metadata": {"name": "debian", "namespace": "pub"},
        "spec": {"displayName": "Debian", "url": "http://x/i"},
        "status": {"progress": 7, "conditions": [condition]}}))
}

#[test]
fn reasons_of_volumes_images_and_migrations_are_explained() {
    for reason in VolumeFailure::ALL {
        let condition = json!({"type": "Scheduled", "status": "False",
            "reason": reason.as_str(), "message": "m"});
        explained(reason.as_str(), &with_volume(condition));
    }
    for reason in ImageFailure::ALL {
        let mut one = with_volume(json!({"type": "Scheduled", "status": "True"}));
        one.images = vec![image(json!({"type": "Imported", "status": "False",
            "reason": reason.as_str(), "message": "m"}))];
        explained(reason.as_str(), &one);
    }
    for reason in VolumesChange::ALL {
        let condition = json!({"type": "VolumesChange", "status": "True",
            "reason": reason.as_str(), "message": "m"});
        explained(reason.as_str(), &running(condition));
    }
    for reason in NotMigratable::ALL {
        let condition = json!({"type": "LiveMigratable", "status": "False",
            "reason": reason.as_str(), "message": "m"});
        let mut one = running(condition);
        explained(reason.as_str(), &one);
        assert!(diagnose(&one, now()).findings[0].severity == Severity::Info, "nothing is wrong");
        one.instance.as_mut().unwrap().spec.eviction_strategy = Some("LiveMigrate".into());
        let fix = match reason {
            NotMigratable::Disks => "sheaf vm move-disk",
            _ => "kubectl",
        };
        first(&one, Severity::Warning, "drain", "m", fix);
    }
}

#[test]
fn a_clone_that_waits_names_its_source() {
    let clone = |reason: FillFailure, kind: &str| {
        let mut one = with_disk("d");
        one.data_volumes = vec![object(json!({"metadata": {"name": "d"},
            "spec": {"source": {"pvc": {"namespace": "pub", "name": "base"}}},
            "status": {"phase": "Pending", "conditions": [
                {"type": kind, "status": "False", "reason": reason.as_str(), "message": "m"}]}}))];
        one
    };
    for (reason, severity, what, fix) in [
        (
            FillFailure::NoSource,
            Severity::Error,
            "source, claim pub/base, which does not exist",
            "kubectl describe dv,pvc base -n pub",
        ),
        (
            FillFailure::SourceNotReady,
            Severity::Info,
            "until its source, claim pub/base, is complete",
            "kubectl describe dv,pvc base -n pub",
        ),
        (
            FillFailure::NotAuthorized,
            Severity::Error,
            "may not be copied from claim pub/base",
            "datavolumes/source",
        ),
        (
            FillFailure::Claim,
            Severity::Error,
            "cannot use the claim of its name",
            "kubectl describe dv,pvc d",
        ),
    ] {
        first(&clone(reason, "Running"), severity, what, "m", fix);
    }
    let misbound = clone(FillFailure::Claim, "Bound");
    first(&misbound, Severity::Error, "cannot use the claim of its name", "m", "kubectl describe");
}

#[test]
fn migrations_are_told_while_they_wait_run_and_fail() {
    let state = |state: Value| {
        let mut one = running(json!({"type": "Ready", "status": "True"}));
        one.instance.as_mut().unwrap().status.as_mut().unwrap().migration_state =
            Some(object(state));
        one
    };
    let nodes = json!({"migrationUid": "u", "sourceNode": "a", "targetNode": "b"});
    let with = |more: Value| {
        let mut all = nodes.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let mut migrating = state(with(json!({"startTimestamp": "2026-01-02T03:04:00Z"})));
    let status = migrating.machine.as_mut().unwrap().status.as_mut().unwrap();
    status.printable_status = Some("Migrating".into());
    first(&migrating, Severity::Info, "from node a to node b", "03:04:00", "--cancel");
    assert!(diagnose(&migrating, now()).is_healthy());
    let failed = state(with(json!({"failed": true, "failureReason": "too slow"})));
    first(&failed, Severity::Warning, "stays on a", "too slow", "sheaf vm migrate web");
    let done = state(with(json!({"completed": true})));
    assert!(diagnose(&done, now()).findings.is_empty());

    let mut waiting = running(json!({"type": "Ready", "status": "True"}));
    waiting.migrations = vec![
        object(json!({"metadata": {"name": "m"}, "spec": {"vmiName": "web"},
            "status": {"phase": "Pending"}})),
        object(json!({"metadata": {"name": "o", "creationTimestamp": "2026-01-02T00:00:00Z"},
            "spec": {"vmiName": "other"}, "status": {"phase": "Failed"}})),
    ];
    first(&waiting, Severity::Info, "waits for its turn", "limited", "kubectl get vmim");
    waiting.events = vec![object(json!({"reason": "FailedScheduling", "message": "0/1 nodes",
        "involvedObject": {"kind": "VirtualMachineInstanceMigration", "name": "m"}}))];
    first(&waiting, Severity::Warning, "no node to go to", "0/1 nodes", "--cancel");
}

#[test]
fn an_image_that_is_imported_or_tried_again_is_told() {
    let mut one = with_volume(json!({"type": "Scheduled", "status": "True"}));
    one.images = vec![image(json!({"type": "Imported", "status": "Unknown"}))];
    first(&one, Severity::Info, "Debian is being imported: 7%", "claim d", "--watch");
    one.images = vec![image(json!({"type": "RetryLimitExceeded", "status": "False",
        "message": "404 Not Found"}))];
    first(
        &one,
        Severity::Warning,
        "from http://x/i yet",
        "404",
        "virtualmachineimage debian -n pub",
    );
    one.images = vec![image(json!({"type": "Imported", "status": "True"}))];
    let found = diagnose(&one, now());
    assert!(!found.findings.iter().any(|own| own.what.contains("Debian")), "{found:?}");
}

/// The files that write conditions of what `diagnose` reads.
const WRITERS: &[&str] = &[
    "control-plane/controllers/src/vm",
    "control-plane/controllers/src/vmi",
    "control-plane/controllers/src/data_volume",
    "control-plane/controllers/src/image",
    "control-plane/controllers/src/longhorn/volume",
    "node/agent/src/vmi/status",
    "node/agent/src/storage/status",
];

/// Literals that report no failure: a state that is as it should be, or another condition's cause.
const NORMAL: &[&str] = &[
    "",
    "AllDVsReady",
    "NotAllDVsReady",
    "Bound",
    "Pending",
    "NotFound",
    "Pod is running",
    "Completed",
    "Imported",
    "Importing",
    "Unschedulable",
    // First arguments of the agent's helper, which are types.
    "Paused",
    "AgentVersionNotSupported",
];

fn sources(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        Some(path.with_extension("rs")).filter(|own| own.exists()).into_iter().collect();
    let entries = std::fs::read_dir(path).into_iter().flatten().map(|own| own.unwrap().path());
    for entry in entries {
        if entry.is_dir() {
            all.extend(sources(&entry));
        } else if !entry.ends_with("tests.rs") {
            all.push(entry);
        }
    }
    all
}

/// A reason is written as a member of an enum of `reason`, not as a text of its own.
#[test]
fn no_writer_uses_a_reason_that_is_not_in_the_list() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for writer in WRITERS {
        let files = sources(&crates.join(writer));
        assert!(!files.is_empty(), "{writer} has moved");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (at, _) in code.match_indices("because(") {
                let argument = code[at + "because(".len()..].trim_start();
                let Some(literal) = argument.strip_prefix('"') else { continue };
                let literal = literal.split('"').next().unwrap_or_default();
                seen += 1;
                assert!(NORMAL.contains(&literal), "{}: {literal:?}", file.display());
            }
        }
    }
    assert!(seen > 5, "the search finds nothing any more");
    for normal in NORMAL {
        assert!(!is_failure(normal), "{normal} is a failure");
    }
}

fn is_failure(text: &str) -> bool {
    NotSynchronized::parse(text).is_some()
        || NotReady::parse(text).is_some()
        || NotRestarted::parse(text).is_some()
        || MachineFailure::parse(text).is_some()
        || InstanceFailure::parse(text).is_some()
        || Pause::parse(text).is_some()
        || FillFailure::parse(text).is_some()
        || VolumeFailure::parse(text).is_some()
        || ImageFailure::parse(text).is_some()
        || NotMigratable::parse(text).is_some()
}
