use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::reason::{
    FillFailure, InstanceFailure, MachineFailure, NotReady, NotRestarted, NotSynchronized, Pause,
    Unfit,
};

pub(super) fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

pub(super) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, ready: &str) -> Node {
    object(json!({
        "metadata": {"name": name},
        "status": {
            "allocatable": {"memory": "4Gi"},
            "conditions": [{"type": "Ready", "status": ready, "message": "QEMU is not installed"}],
        },
    }))
}

fn facts() -> DiagnosisInput {
    DiagnosisInput {
        name: "web".into(),
        namespace: "default".into(),
        nodes: vec![node("one", "True")],
        ..DiagnosisInput::default()
    }
}

/// A machine in a state, with an instance in a phase and one condition.
pub(super) fn with_condition(state: &str, phase: &str, condition: Value) -> DiagnosisInput {
    let mut conditions = vec![condition];
    if conditions[0]["type"] != "Ready" {
        conditions.push(json!({"type": "Ready", "status": "True"}));
    }
    DiagnosisInput {
        machine: Some(object(json!({
            "spec": {"runStrategy": "Always", "template": {}},
            "status": {"printableStatus": state},
        }))),
        instance: Some(object(json!({
            "spec": {"nodeSelector": {"zone": "b"}},
            "status": {"phase": phase, "nodeName": "one", "conditions": conditions},
        }))),
        ..facts()
    }
}

fn machine(state: &str, spec: Value, status: Value) -> DiagnosisInput {
    let mut all = json!({"printableStatus": state});
    all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    DiagnosisInput { machine: Some(object(json!({"spec": spec, "status": all}))), ..facts() }
}

pub(super) fn with_disk(claim: &str) -> DiagnosisInput {
    machine(
        "Provisioning",
        json!({"runStrategy": "Always", "template": {"spec": {"volumes": [
            {"name": "disk", "dataVolume": {"name": claim}},
        ]}}}),
        json!({}),
    )
}

/// All texts of the first finding are there, and it is as severe as expected.
#[track_caller]
pub(super) fn first(facts: &DiagnosisInput, severity: Severity, what: &str, why: &str, fix: &str) {
    let found = diagnose(facts, now());
    let finding = found.findings.first().unwrap_or_else(|| panic!("no finding: {found:?}"));
    assert_eq!(finding.severity, severity, "{found:#?}");
    assert!(finding.what.contains(what), "{what:?} in {found:#?}");
    assert!(finding.why.contains(why), "{why:?} in {found:#?}");
    assert!(finding.fix.contains(fix), "{fix:?} in {found:#?}");
    assert!(!found.is_healthy() || severity == Severity::Info, "{found:#?}");
}

#[test]
fn network_policies_that_select_a_machine_are_named() {
    let ready = json!({"type": "Ready", "status": "True"});
    let facts = DiagnosisInput {
        policies: vec!["NetworkPolicy a".into(), "MultiNetworkPolicy b".into()],
        ..with_condition("Running", "Running", ready)
    };
    let (why, fix) = ("NetworkPolicy a, MultiNetworkPolicy b", "sheaf network trace web --to");
    first(&facts, Severity::Info, "restrict its connections", why, fix);
}

/// Every reason that our code writes has an explanation of its own, with a command.
#[test]
fn every_reason_is_explained() {
    let mut all = Vec::new();
    for reason in NotSynchronized::ALL {
        let condition = json!({"type": "Synchronized", "status": "False",
            "reason": reason.as_str(), "message": "m"});
        all.push((reason.as_str(), with_condition("Starting", "Scheduled", condition)));
    }
    for reason in NotReady::ALL.iter().filter(|reason| **reason != NotReady::Paused) {
        let condition = json!({"type": "Ready", "status": "False", "reason": reason.as_str(),
            "message": "m"});
        all.push((reason.as_str(), with_condition("Running", "Running", condition)));
    }
    for reason in Pause::ALL {
        let condition = json!({"type": "Paused", "status": "True", "reason": reason.as_str()});
        all.push((reason.as_str(), with_condition("Paused", "Running", condition)));
    }
    for reason in NotRestarted::ALL {
        let condition = json!({"type": "RestartElsewhere", "status": "False",
            "reason": reason.as_str(), "message": "m"});
        all.push((reason.as_str(), with_condition("Running", "Running", condition)));
    }
    for reason in Unfit::ALL {
        let message = match reason {
            Unfit::NoNodes => reason.as_str().to_owned(),
            reason => format!("0/1 nodes are available: 1 {}.", reason.as_str()),
        };
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": message});
        all.push((reason.as_str(), with_condition("ErrorUnschedulable", "Scheduling", condition)));
    }
    for reason in MachineFailure::ALL {
        let condition = json!({"type": "Failure", "status": "True", "reason": reason.as_str(),
            "message": "m"});
        let spec = json!({"runStrategy": "Always", "template": {}});
        all.push((reason.as_str(), machine("Starting", spec, json!({"conditions": [condition]}))));
    }
    for reason in InstanceFailure::ALL {
        let mut one = with_condition("Stopped", "Failed", json!({"type": "x", "status": "True"}));
        let status = one.instance.as_mut().unwrap().status.as_mut().unwrap();
        status.reason = Some(reason.as_str().to_owned());
        all.push((reason.as_str(), one));
    }
    for reason in FillFailure::ALL {
        let mut one = with_disk("d");
        one.data_volumes = vec![object(json!({"metadata": {"name": "d"}, "spec": {},
            "status": {"phase": "ImportInProgress", "conditions": [{"type": "Running",
                "status": "False", "reason": reason.as_str(), "message": "m"}]}}))];
        all.push((reason.as_str(), one));
    }
    for (reason, facts) in all {
        let found = diagnose(&facts, now());
        let finding = found.findings.first().unwrap_or_else(|| panic!("{reason} has no finding"));
        assert!(
            !finding.what.is_empty() && !finding.what.contains(reason),
            "{reason}: {finding:?}"
        );
        assert!(
            ["sheaf ", "kubectl ", "df ", "virtctl "]
                .iter()
                .any(|own| finding.fix.starts_with(own)),
            "{reason}: {finding:?}"
        );
        assert!(!found.is_healthy() || finding.severity == Severity::Info, "{reason}: {found:?}");
    }
}

#[test]
fn a_machine_that_is_not_ready_is_not_healthy() {
    let probe = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady",
        "message": "connection refused"});
    first(
        &with_condition("Running", "Running", probe),
        Severity::Error,
        "readiness probe fails",
        "connection refused",
        "sheaf vm console web",
    );
    let stopped = json!({"type": "Ready", "status": "False", "reason": "GuestNotResponding",
        "message": "QEMU does not answer its monitor"});
    first(
        &with_condition("Running", "Running", stopped),
        Severity::Error,
        "QEMU does not respond",
        "monitor",
        "sheaf vm stop web --force",
    );
    // An unknown reason is reported as well.
    let unknown = json!({"type": "Ready", "status": "False", "reason": "New", "message": "m"});
    let unknown = with_condition("Running", "Running", unknown);
    first(&unknown, Severity::Error, "New", "m", "kubectl describe vmi web");
    let ready = with_condition("Running", "Running", json!({"type": "Ready", "status": "True"}));
    let found = diagnose(&ready, now());
    assert!(found.is_healthy() && found.findings.is_empty(), "{found:?}");
}

#[test]
fn a_failing_import_reports_its_source_and_cause() {
    let mut one = with_disk("web-disk");
    one.data_volumes = vec![object(json!({
        "metadata": {"name": "web-disk"},
        "spec": {"source": {"http": {"url": "http://x/i.img"}}},
        "status": {"phase": "ImportInProgress", "progress": "N/A", "conditions": [
            {"type": "Running", "status": "False", "reason": "Error",
                "message": "the server answered 404 Not Found"},
        ]},
    }))];
    first(
        &one,
        Severity::Error,
        "web-disk cannot be filled from http://x/i.img",
        "404 Not Found",
        "kubectl delete dv web-disk",
    );
}

#[test]
fn placement_names_what_to_change() {
    let unfit = |text: &str| {
        let message = format!("0/1 nodes are available: 1 {text}.");
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": message});
        with_condition("ErrorUnschedulable", "Scheduling", condition)
    };
    let mut cordoned = unfit(Unfit::Cordoned.as_str());
    cordoned.nodes[0].spec.unschedulable = Some(true);
    first(&cordoned, Severity::Error, "cordoned", "", "kubectl uncordon one");
    let selected = unfit(Unfit::NotSelected.as_str());
    first(&selected, Severity::Error, "zone=b", "", "kubectl get nodes --show-labels");
    let memory = unfit("Insufficient memory");
    first(&memory, Severity::Error, "free memory", "one has 4Gi", "kubectl edit vm web");
    let mut large = unfit("Insufficient memory");
    large.instance.as_mut().unwrap().spec.domain = object(json!({"memory": {"guest": "8Gi"}}));
    first(&large, Severity::Error, "requests 8Gi of memory", "one has 4Gi", "kubectl edit vm web");
    let absent = unfit("Insufficient nvidia.com/x");
    first(&absent, Severity::Error, "No node offers nvidia.com/x", "", "kubectl edit vm web");
    // A claim that is missing is no question of capacity.
    let mut missing = with_disk("gone");
    missing.instance = Some(object(json!({"status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "PVC default/gone does not exist, waiting for it to appear"},
        {"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound",
            "message": "PVC default/gone does not exist, waiting for it to appear"},
    ]}})));
    first(&missing, Severity::Error, "claim gone does not exist", "", "sheaf volume create gone");
    assert_eq!(diagnose(&missing, now()).findings.len(), 1);
}

#[test]
fn a_retry_is_announced_only_where_there_is_one() {
    let failed = |strategy: &str, retry: &str| {
        let spec = json!({"runStrategy": strategy, "template": {}});
        let failure = json!({"consecutiveFailCount": 3, "retryAfterTimestamp": retry});
        machine("CrashLoopBackOff", spec, json!({"startFailure": failure}))
    };
    let later = "2026-01-02T03:05:00Z";
    for (strategy, retry, expected) in [
        ("Always", later, "next attempt is at 2026-01-02T03:05:00Z"),
        ("RerunOnFailure", "2026-01-02T03:04:00Z", "due now"),
        ("Once", later, "No further attempt"),
        ("Manual", later, "No further attempt"),
    ] {
        let found = diagnose(&failed(strategy, retry), now());
        let retries = found.findings.iter().find(|own| own.what.contains("3 times in a row"));
        assert!(retries.is_some_and(|own| own.why.contains(expected)), "{strategy}: {found:#?}");
    }
}

#[test]
fn a_stopped_machine_gets_the_command_to_start() {
    let spec = json!({"runStrategy": "Halted", "template": {}});
    let mut halted = machine("Stopped", spec, json!({}));
    first(&halted, Severity::Info, "is stopped", "Halted", "sheaf vm start web");
    halted.namespace = "dev".into();
    first(&halted, Severity::Info, "is stopped", "Halted", "sheaf vm start web -n dev");
}

#[test]
fn volumes_that_lost_copies_are_reported_though_the_guest_runs() {
    let mut one = with_condition("Running", "Running", json!({"type": "Ready", "status": "True"}));
    one.machine = with_disk("web-disk").machine;
    one.machine.as_mut().unwrap().status.as_mut().unwrap().printable_status =
        Some("Running".into());
    one.claims = vec![object(json!({"metadata": {"name": "web-disk"},
        "spec": {"volumeName": "pvc-1"}, "status": {"phase": "Bound"}}))];
    one.storage_volumes = vec![object(json!({"metadata": {"name": "pvc-1"},
        "status": {"robustness": "degraded", "conditions": []}}))];
    first(&one, Severity::Warning, "fewer healthy copies", "pvc-1", "sheaf volume status web-disk");
}

#[test]
fn a_claim_without_a_volume_reports_what_the_provisioner_said() {
    let mut one = with_disk("web-disk");
    one.claims = vec![object(json!({"metadata": {"name": "web-disk"},
        "spec": {"storageClassName": "longhorn"}, "status": {"phase": "Pending"}}))];
    one.data_volumes = vec![object(json!({"metadata": {"name": "web-disk"}, "spec": {},
        "status": {"phase": "Pending"}}))];
    one.events = vec![object(json!({"involvedObject": {"kind": "PersistentVolumeClaim",
        "name": "web-disk"}, "type": "Warning", "reason": "ProvisioningFailed",
        "message": "no disk has 900Ti"}))];
    first(&one, Severity::Error, "gets no volume", "no disk has 900Ti", "kubectl describe pvc");
}

#[test]
fn a_lack_of_ready_nodes_is_reported() {
    let mut one = with_disk("d");
    one.nodes = vec![node("one", "False")];
    first(&one, Severity::Error, "does not exist", "", "");
    let found = diagnose(&one, now());
    assert!(found.findings.iter().any(|own| own.why == "one: QEMU is not installed"), "{found:?}");
    one.nodes.clear();
    let found = diagnose(&one, now());
    assert!(found.findings.iter().any(|own| own.what.contains("no node")), "{found:?}");
}

#[test]
fn an_event_is_reported_once() {
    let event = |reason: &str, second: u32, name: &str| {
        object::<Event>(json!({
            "involvedObject": {"kind": "VirtualMachineInstance", "name": name},
            "reason": reason, "message": "m", "count": 1,
            "lastTimestamp": format!("2026-01-02T03:04:{second:02}Z"),
        }))
    };
    let mut one = facts();
    one.events = vec![
        event("SyncFailed", 1, "web"),
        event("SyncFailed", 5, "web"),
        event("Started", 3, "web"),
        event("SyncFailed", 4, "web"),
        event("Other", 9, "db"),
    ];
    let events = diagnose(&one, now()).events;
    let events: Vec<(&str, i64, &str)> =
        events.iter().map(|own| (own.reason.as_str(), own.count, own.last.as_str())).collect();
    assert_eq!(
        events,
        [("Started", 1, "2026-01-02T03:04:03Z"), ("SyncFailed", 3, "2026-01-02T03:04:05Z")]
    );
}

#[test]
fn requests_that_were_left_over_are_reported() {
    let ready = json!({"type": "Ready", "status": "True"});
    let running = || with_condition("Running", "Running", ready.clone());
    let mut one = running();
    let status = one.machine.as_mut().unwrap().status.as_mut().unwrap();
    status.memory_dump_request =
        Some(object(json!({"claimName": "dump", "phase": "Failed", "message": "no space left"})));
    first(&one, Severity::Warning, "claim dump", "no space left", "virtctl memory-dump remove web");
    let status = one.machine.as_mut().unwrap().status.as_mut().unwrap();
    status.memory_dump_request.as_mut().unwrap().phase = "Completed".into();
    assert!(diagnose(&one, now()).findings.is_empty());

    let mut one = running();
    one.instance.as_mut().unwrap().status.as_mut().unwrap().fs_freeze_status =
        Some("frozen".into());
    first(&one, Severity::Warning, "frozen", "no snapshot", "instances/web/unfreeze");
    one.machine.as_mut().unwrap().status.as_mut().unwrap().snapshot_in_progress =
        Some("daily".into());
    first(&one, Severity::Info, "frozen", "daily", "kubectl describe vmsnapshot daily");

    let mut one = running();
    one.instance.as_mut().unwrap().status.as_mut().unwrap().evacuation_node_name =
        Some("one".into());
    first(&one, Severity::Warning, "leave node one", "drained", "evacuate-cancel vmi web");
    let migration = |phase: &str| {
        object(json!({"metadata": {"name": "m"}, "spec": {"vmiName": "web"},
            "status": {"phase": phase}}))
    };
    one.migrations = vec![migration("Scheduling")];
    assert!(diagnose(&one, now()).findings.is_empty(), "it is on its way");
    one.migrations = vec![migration("Succeeded")];
    first(&one, Severity::Warning, "leave node one", "drained", "evacuate-cancel vmi web");
}

#[test]
fn user_data_that_the_guest_ignores_is_reported_for_the_instance_that_has_it() {
    let ready = json!({"type": "Ready", "status": "True"});
    let mut one = with_condition("Running", "Running", ready);
    one.events = vec![object(json!({"reason": "InvalidUserData", "message": "no #cloud-config",
        "lastTimestamp": "2026-01-02T03:00:00Z",
        "involvedObject": {"kind": "VirtualMachineInstance", "name": "web"}}))];
    first(&one, Severity::Warning, "user data", "no #cloud-config", "kubectl edit vm web");
    let instance = one.instance.as_mut().unwrap();
    instance.metadata.creation_timestamp = Some(object(json!("2026-01-02T03:01:00Z")));
    assert!(diagnose(&one, now()).findings.is_empty(), "it was another instance");
}

#[test]
fn a_guest_with_a_known_problem_is_not_called_starting() {
    let mut one = with_condition(
        "ErrorUnschedulable",
        "Scheduling",
        json!({"type": "Ready", "status": "False", "reason": "PodNotExists", "message": "m"}),
    );
    let starting = diagnose(&one, now());
    assert_eq!(starting.findings[0].what, "The guest is starting.");
    let status = one.instance.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.push(object(json!({"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Too many pods."})));
    let found = diagnose(&one, now());
    assert_eq!(found.findings.len(), 1, "{found:#?}");
    assert_eq!(found.findings[0].severity, Severity::Error);
}
