use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(0).unwrap()
}

fn vmi(phase: &str) -> Value {
    json!({"metadata": {"name": "v", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "finalizers": [VM_FINALIZER, FINALIZER]},
        "status": {"phase": phase}})
}

/// The conditions of a patch as `Type=Status(Reason)`.
fn conditions(patch: &Value) -> Vec<String> {
    let show = |own: &Value| {
        format!("{}={}({})", text(own, "/type"), text(own, "/status"), text(own, "/reason"))
    };
    list(patch, "/status/conditions").iter().map(show).collect()
}

#[test]
fn stages_follow_phases() {
    for (phase, deleting, expected) in [
        ("", false, VmiStage::Unplaced),
        ("Pending", false, VmiStage::Unplaced),
        ("Scheduling", true, VmiStage::Abandoned),
        ("Scheduled", true, VmiStage::Placed),
        ("Running", false, VmiStage::Placed),
        ("Unknown", false, VmiStage::Placed),
        ("Failed", true, VmiStage::Over),
        ("Succeeded", false, VmiStage::Over),
    ] {
        let mut vmi = vmi(phase);
        if deleting {
            vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        assert_eq!(stage(&vmi), expected, "{phase}");
    }
}

#[test]
fn an_instance_says_what_it_waits_for() {
    let missing = waiting(&vmi("Pending"), &[], &Wait::Missing("c".into()), now());
    assert_eq!(
        conditions(&missing),
        [
            "Ready=False(PodNotExists)",
            "Synchronized=False(FailedPvcNotFound)",
            "PodScheduled=False(Unschedulable)"
        ]
    );
    let message = "PVC n/c does not exist, waiting for it to appear";
    assert_eq!(missing["status"]["conditions"][1]["message"], message);
    let mut again = vmi("Pending");
    again["status"] = missing["status"].clone();
    let binding = waiting(&again, &[], &Wait::Binding, now());
    assert_eq!(conditions(&binding), ["Ready=False(PodNotExists)", "Provisioning=True()"]);
    again["status"] = binding["status"].clone();
    let full = unschedulable(&again, "0/1 nodes are available: 1 Insufficient memory.", now());
    assert_eq!(
        conditions(&full),
        ["Ready=False(PodNotExists)", "PodScheduled=False(Unschedulable)"]
    );
    assert_eq!(full["status"]["phase"], "Scheduling");
}

#[test]
fn the_hand_over_is_a_step_of_its_own_in_the_record_of_phases() {
    let mut vmi = vmi("Pending");
    vmi["status"]["phaseTransitionTimestamps"] = json!([{"phase": "Pending"}]);
    let first = scheduling(&vmi, &[], now());
    assert_eq!(first["metadata"]["resourceVersion"], "7");
    assert_eq!(first["metadata"].get("finalizers"), None, "it has them already");
    vmi["status"] = first["status"].clone();
    let pod = json!({"metadata": {"uid": "p"}, "status": {"qosClass": "Burstable"}});
    let second = scheduled(&vmi, "one", &pod, now());
    let phases: Vec<&str> = list(&second, "/status/phaseTransitionTimestamps")
        .iter()
        .map(|own| text(own, "/phase"))
        .collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled"]);
    assert_eq!(second["status"]["activePods"], json!({"p": "one"}));
    assert_eq!(second["metadata"]["labels"], json!({NODE_LABEL: "one"}));
    assert_eq!(conditions(&second), ["Ready=False(GuestNotRunning)"]);
}

#[test]
fn an_instance_without_protection_gets_it_before_a_node_takes_over() {
    let mut vmi = vmi("Pending");
    vmi["metadata"]["finalizers"] = json!(["a/b"]);
    let patch = scheduling(&vmi, &[], now());
    assert_eq!(patch["metadata"]["finalizers"], json!(["a/b", FINALIZER]));
}

#[test]
fn an_instance_without_a_node_needs_no_cleanup() {
    let patch = failed(&vmi("Pending"), None, now());
    assert_eq!(patch["metadata"]["finalizers"], json!([VM_FINALIZER]));
    assert_eq!(patch["status"]["phase"], "Failed");
}

#[test]
fn finalizers_without_a_party_are_dropped() {
    let left = |node: &str, has_owner: bool, lost: bool| {
        let mut vmi = vmi("Failed");
        vmi["status"]["nodeName"] = json!(node);
        released(&vmi, has_owner, lost).map(|patch| patch["metadata"]["finalizers"].clone())
    };
    assert_eq!(left("one", true, false), None, "virtual machine and node will do it");
    assert_eq!(left("one", false, false), Some(json!([FINALIZER])));
    assert_eq!(left("one", true, true), Some(json!([VM_FINALIZER])));
    assert_eq!(left("", false, false), Some(json!([])));
}
