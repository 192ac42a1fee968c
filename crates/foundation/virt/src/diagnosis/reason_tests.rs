//! Reasons of volumes, images and migrations, and a search for reasons without an explanation.

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
    let is_reported = |own: &&DiagnosisFinding| own.why == "m";
    let finding = found.findings.iter().find(is_reported);
    let finding = finding.unwrap_or_else(|| panic!("{reason} is not reported: {found:#?}"));
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
fn migrations_are_reported_while_they_wait_run_and_fail() {
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
fn an_image_that_is_imported_or_tried_again_is_reported() {
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

/// The files that write conditions of what `diagnose` reads. Others of machines, such as `vm_restore`,
/// write conditions of their own kinds only.
const WRITERS: &[&str] = &[
    "control-plane/controllers/src/data_volume",
    "control-plane/controllers/src/image",
    "control-plane/controllers/src/longhorn/volume",
    "control-plane/controllers/src/node/plan",
    "control-plane/controllers/src/vm",
    "control-plane/controllers/src/vm_claims",
    "control-plane/controllers/src/vm_history",
    "control-plane/controllers/src/vm_memory_dump",
    "control-plane/controllers/src/vmi",
    "control-plane/controllers/src/vmi_migration",
    "foundation/virt/src/condition",
    "foundation/virt/src/restart_required",
    "node/agent/src/storage/status",
    "node/agent/src/vmi",
    "node/agent/src/volume",
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
];

/// Types of conditions that the diagnosis does not name, and why.
const NOT_EXAMINED: &[(&str, &str)] = &[
    ("Attachable", "conditions of a volume that are False are examined whatever their type is"),
    ("AgentConnected", "a guest without an agent is as it should be"),
    ("BackingImageMissing", "Initialized and Imported of the image say what is missing"),
    ("DataVolumesReady", "the data volumes are examined themselves"),
    ("Initialized", "conditions of an image that are False are examined whatever their type is"),
    ("MetadataIntact", "as Attachable"),
    ("Provisioning", "the data volumes are examined themselves"),
    ("Satisfied", "of a ticket of a volume, whose machine says that it waits"),
    ("Scheduled", "as Attachable"),
    ("SnapshotsIntact", "as Attachable"),
    ("StorageLiveMigratable", "a guest that can be migrated only with its disks can be migrated"),
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

/// The code of a file without its tests.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

fn writers() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for writer in WRITERS {
        let files = sources(&crates.join(writer));
        assert!(!files.is_empty(), "{writer} has moved");
        all.extend(files.into_iter().map(|file| (file.clone(), code(&file))));
    }
    all
}

/// The literals at this place among the arguments of a function; a variable is left out.
fn literals<'a>(code: &'a str, call: &str, place: usize) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(call) {
        let mut rest = code[at + call.len()..].trim_start();
        for _ in 0..place {
            // Only simple arguments come before: names, paths and literals.
            rest = rest.split_once(',').map_or("", |(_, rest)| rest).trim_start();
        }
        found.extend(rest.strip_prefix('"').and_then(|rest| rest.split('"').next()));
    }
    found
}

/// Whether the helper of the agent is meant, whose first argument is the type.
fn is_agent(file: &Path) -> bool {
    file.components().any(|own| own.as_os_str() == "agent")
}

/// A reason is written as a member of an enum of `reason`, not as a text of its own.
#[test]
fn no_writer_uses_a_reason_that_is_not_in_the_list() {
    let mut seen = 0;
    for (file, code) in writers() {
        let mut reasons = literals(&code, ".because(", usize::from(is_agent(&file)));
        reasons.extend(literals(&code, ".no(", 1));
        for reason in reasons {
            seen += 1;
            assert!(NORMAL.contains(&reason), "{}: {reason:?}", file.display());
        }
    }
    assert!(seen > 5, "the search finds nothing any more");
    for normal in NORMAL {
        assert!(!is_failure(normal), "{normal} is a failure");
    }
}

/// The types of conditions that code writes.
fn types(code: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for call in ["Condition::new(", ".yes(", ".because(", ".no(", ".probed("] {
        all.extend(literals(code, call, 0));
    }
    for (at, _) in code.match_indices("\"type\": \"") {
        let rest = &code[at + "\"type\": \"".len()..];
        // Patches and secrets have types as well.
        let object = rest.split('}').next().unwrap_or_default();
        if object.contains("\"status\"") {
            all.extend(rest.split('"').next());
        }
    }
    for name in ["CONDITION: &str = \"", "KIND: &str = \"", "let kind = \"", "INTACT: &str = \""] {
        let after = code.match_indices(name).map(|(at, name)| &code[at + name.len()..]);
        all.extend(after.filter_map(|rest| rest.split('"').next()));
    }
    all.retain(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic()));
    all
}

/// A condition that is written is examined, or there is a reason why not.
#[test]
fn every_condition_that_is_written_is_examined() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis");
    let examined: String = sources(&own)
        .iter()
        .filter(|file| !file.to_string_lossy().ends_with("tests.rs"))
        .map(|file| code(file))
        .collect();
    let is_examined = |kind: &str| examined.contains(&format!("\"{kind}\""));
    let is_listed = |kind: &str| NOT_EXAMINED.iter().any(|(own, _)| *own == kind);
    let mut written = std::collections::BTreeSet::new();
    for (file, code) in writers() {
        for kind in types(&code) {
            // Arguments of `because` in controllers are reasons.
            if !NORMAL.contains(&kind) || is_agent(&file) {
                assert!(
                    is_examined(kind) || is_listed(kind),
                    "{}: condition {kind} is not examined",
                    file.display()
                );
                written.insert(kind.to_owned());
            }
        }
    }
    assert!(written.len() > 15, "the search finds nothing any more: {written:?}");
    for (kind, _) in NOT_EXAMINED {
        assert!(written.contains(*kind), "{kind} is not written any more");
        assert!(!is_examined(kind), "{kind} is examined");
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
