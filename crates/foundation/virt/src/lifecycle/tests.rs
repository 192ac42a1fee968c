use serde_json::json;

use super::*;

fn machine(strategy: &str) -> Value {
    json!({
        "metadata": {"name": "m", "namespace": "n"},
        "spec": {"runStrategy": strategy},
        "status": {"printableStatus": "x"},
    })
}

fn instance(phase: &str) -> Value {
    json!({"metadata": {"name": "m", "namespace": "n", "uid": "u"}, "status": {"phase": phase}})
}

fn refused(why: &str) -> String {
    format!("409 Operation cannot be fulfilled on virtualmachine.kubevirt.io \"m\": {why}")
}

/// The outcome in a line: the refusal, or the patches and their targets.
fn text_of(outcome: Result<Vec<Patch>, Refusal>) -> String {
    match outcome {
        Err(refusal) => format!("{} {}", refusal.code, refusal.message),
        Ok(patches) => {
            let lines: Vec<String> = patches
                .iter()
                .map(|patch| {
                    let writes = patch.operations.iter().filter(|one| one["op"] != "test");
                    let writes: Vec<String> = writes
                        .map(|one| format!("{}={}", text(one, "/path"), one["value"]))
                        .collect();
                    format!("{:?} {}", patch.target, writes.join(" "))
                })
                .collect();
            lines.join("; ")
        }
    }
}

const REQUESTS: &str = "MachineStatus /status/stateChangeRequests=";

#[test]
fn starting_depends_on_the_strategy() {
    let asked = format!("{REQUESTS}[{{\"action\":\"Start\"}}]");
    let again =
        format!("{REQUESTS}[{{\"action\":\"Stop\",\"uid\":\"u\"}},{{\"action\":\"Start\"}}]");
    let table = [
        ("Halted", None, "Machine /spec/runStrategy=\"Always\"".to_owned()),
        ("Halted", Some("Succeeded"), "Machine /spec/runStrategy=\"Always\"".to_owned()),
        ("Manual", None, asked.clone()),
        ("Manual", Some("Failed"), again.clone()),
        ("Manual", Some("Running"), refused("VM is already running")),
        ("RerunOnFailure", None, asked),
        ("RerunOnFailure", Some("Succeeded"), again),
        (
            "RerunOnFailure",
            Some("Failed"),
            refused("RerunOnFailure does not support starting VM from failed state"),
        ),
        ("Always", None, refused("Always does not support manual start requests")),
        ("Once", None, refused("Once does not support manual start requests")),
        ("Always", Some("Scheduling"), refused("VM is already running")),
    ];
    for (strategy, phase, expected) in table {
        let vmi = phase.map(instance);
        let outcome = start(&machine(strategy), vmi.as_ref(), &StartOptions::default());
        assert_eq!(text_of(outcome), expected, "{strategy} {phase:?}");
    }
}

#[test]
fn a_paused_start_is_a_request_and_a_boolean_stays_one() {
    let paused = StartOptions { paused: Some(true), ..StartOptions::default() };
    assert_eq!(
        text_of(start(&machine("Halted"), None, &paused)),
        format!("{REQUESTS}[{{\"action\":\"Start\",\"data\":{{\"paused\":\"true\"}}}}]")
    );
    let old = json!({"metadata": {"name": "m"}, "spec": {"running": false}});
    assert_eq!(
        start(&old, None, &StartOptions::default()).unwrap()[0].operations,
        [
            json!({"op": "test", "path": "/spec/running", "value": false}),
            json!({"op": "add", "path": "/spec/running", "value": true}),
        ]
    );
    assert_eq!(
        text_of(start(&old, None, &paused)),
        "MachineStatus /status={\"stateChangeRequests\":[{\"action\":\"Start\",\"data\":{\"paused\":\"true\"}}]}"
    );
}

#[test]
fn a_machine_that_must_be_repaired_is_not_started() {
    let mut vm = machine("Manual");
    vm["status"]["conditions"] = json!([{"type": "ManualRecoveryRequired", "status": "True"}]);
    assert_eq!(text_of(start(&vm, None, &StartOptions::default())), refused(RECOVERY));
}

#[test]
fn stopping_depends_on_the_strategy() {
    let asked = format!("{REQUESTS}[{{\"action\":\"Stop\",\"uid\":\"u\"}}]");
    let halt = "Machine /spec/runStrategy=\"Halted\"".to_owned();
    let none = refused("VM is not running");
    let table = [
        ("Halted", None, none.clone()),
        ("Halted", Some("Failed"), none.clone()),
        (
            "Halted",
            Some("Running"),
            refused("Halted only supports manual stop requests with a shorter graceperiod"),
        ),
        ("Manual", Some("Running"), asked.clone()),
        ("Manual", None, none.clone()),
        ("RerunOnFailure", Some("Running"), asked),
        ("RerunOnFailure", Some("Succeeded"), none),
        ("Always", Some("Running"), halt.clone()),
        ("Always", None, halt.clone()),
        ("Once", Some("Running"), halt),
    ];
    for (strategy, phase, expected) in table {
        let vmi = phase.map(instance);
        let outcome = stop(&machine(strategy), vmi.as_ref(), &StopOptions::default());
        assert_eq!(text_of(outcome), expected, "{strategy} {phase:?}");
    }
}

#[test]
fn a_grace_period_reaches_the_instance_first() {
    let now = StopOptions { grace_period: Some(0), ..StopOptions::default() };
    let mut vmi = instance("Running");
    assert_eq!(
        text_of(stop(&machine("Always"), Some(&vmi), &now)),
        "Instance /spec/terminationGracePeriodSeconds=0; Machine /spec/runStrategy=\"Halted\""
    );
    vmi["spec"]["terminationGracePeriodSeconds"] = json!(30);
    assert_eq!(
        text_of(stop(&machine("Halted"), Some(&vmi), &now)),
        format!(
            "Instance /spec/terminationGracePeriodSeconds=0; {REQUESTS}[{{\"action\":\"Stop\",\"uid\":\"u\"}}]"
        )
    );
    let later = StopOptions { grace_period: Some(30), ..StopOptions::default() };
    assert!(text_of(stop(&machine("Halted"), Some(&vmi), &later)).contains("shorter graceperiod"));
}

#[test]
fn a_stop_replaces_what_waits_and_a_start_does_not() {
    let mut vm = machine("Manual");
    let pending = json!([{"action": "Start"}]);
    vm["status"]["stateChangeRequests"] = pending.clone();
    vm["status"]["startFailure"] = json!({"consecutiveFailCount": 1});
    let vmi = instance("Running");
    assert_eq!(
        stop(&vm, Some(&vmi), &StopOptions::default()).unwrap()[0].operations,
        [
            json!({"op": "test", "path": "/status/stateChangeRequests", "value": pending}),
            json!({"op": "add", "path": "/status/stateChangeRequests", "value": [{"action": "Stop", "uid": "u"}]}),
            json!({"op": "remove", "path": "/status/startFailure"}),
        ]
    );
    assert_eq!(
        text_of(start(&vm, None, &StartOptions::default())),
        "500 Internal error occurred: unable to complete request: stop/start already underway"
    );
}

#[test]
fn restarting_depends_on_the_strategy_and_the_instance() {
    let again =
        format!("{REQUESTS}[{{\"action\":\"Stop\",\"uid\":\"u\"}},{{\"action\":\"Start\"}}]");
    let force = format!("Instance /spec/terminationGracePeriodSeconds=1; {again}");
    let never = "400 For force restart, only gracePeriod=0 is supported for now".to_owned();
    let negative = "400 gracePeriod has to be greater or equal to 0".to_owned();
    let table = [
        ("Always", Some("Running"), None, again.clone()),
        ("Manual", Some("Running"), None, again.clone()),
        ("RerunOnFailure", Some("Failed"), None, again),
        ("Always", Some("Running"), Some(0), force),
        ("Always", Some("Running"), Some(5), never),
        ("Always", Some("Running"), Some(-1), negative),
        ("Always", None, None, refused("VM is not running: Halted")),
        (
            "Halted",
            Some("Running"),
            None,
            refused("RunStategy Halted does not support manual restart requests"),
        ),
        ("Once", None, None, refused("RunStategy Once does not support manual restart requests")),
    ];
    for (strategy, phase, grace_period_seconds, expected) in table {
        let vmi = phase.map(instance);
        let options = RestartOptions { grace_period_seconds, ..RestartOptions::default() };
        let outcome = restart(&machine(strategy), vmi.as_ref(), &options);
        assert_eq!(text_of(outcome), expected, "{strategy} {phase:?}");
    }
}

#[test]
fn a_forced_restart_can_be_taken_back() {
    let options = RestartOptions { grace_period_seconds: Some(0), ..RestartOptions::default() };
    let path = "/spec/terminationGracePeriodSeconds";
    let patches = restart(&machine("Always"), Some(&instance("Running")), &options).unwrap();
    assert_eq!(
        patches[0].undo,
        [json!({"op": "test", "path": path, "value": 1}), json!({"op": "remove", "path": path})]
    );
}

#[test]
fn only_a_running_guest_is_moved() {
    let options = MigrateOptions {
        added_node_selector: [("a".to_owned(), "b".to_owned())].into(),
        ..MigrateOptions::default()
    };
    let made = migrate(&machine("Always"), &instance("Running"), &options).unwrap();
    assert_eq!(made["metadata"], json!({"generateName": "kubevirt-migrate-vm-", "namespace": "n"}));
    assert_eq!(made["spec"], json!({"vmiName": "m", "addedNodeSelector": {"a": "b"}}));
    let refusal = migrate(&machine("Always"), &instance("Scheduled"), &options).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "Conflict"));
}

#[test]
fn guests_are_paused_and_woken_in_their_turn() {
    let running = instance("Running");
    let mut paused = running.clone();
    paused["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    let mut probed = running.clone();
    probed["spec"]["livenessProbe"] = json!({"tcpSocket": {"port": 22}});
    let said = |outcome: Result<(), Refusal>| {
        outcome.map_or_else(
            |refusal| format!("{} {}", refusal.code, refusal.message),
            |()| "ok".into(),
        )
    };
    let conflict = |why: &str| {
        format!(
            "409 Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"m\": {why}"
        )
    };
    assert_eq!(said(check_pause(&running)), "ok");
    assert_eq!(said(check_pause(&instance("Scheduled"))), conflict("VM is not running"));
    assert_eq!(said(check_pause(&paused)), conflict("VMI is already paused"));
    assert_eq!(
        said(check_pause(&probed)),
        "403 virtualmachineinstance.kubevirt.io \"m\" is forbidden: Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"
    );
    probed["spec"]["livenessProbe"] = json!({"guestAgentPing": {}});
    assert_eq!(said(check_pause(&probed)), "ok");
    assert_eq!(said(check_unpause(None, &paused)), "ok");
    assert_eq!(said(check_unpause(None, &running)), conflict("VMI is not paused"));
    let mut vm = machine("Always");
    vm["status"]["snapshotInProgress"] = json!("s");
    assert_eq!(said(check_unpause(Some(&vm), &paused)), refused("VM snapshot is in progress"));
    assert_eq!(said(check_freeze(&running)), "ok");
    assert_eq!(said(check_unfreeze(&instance("Failed"))), conflict("VMI is not running"));
    assert_eq!(said(check_soft_reboot(&paused)), conflict("VMI is paused"));
    let mut deaf = running.clone();
    deaf["spec"]["domain"]["features"]["acpi"]["enabled"] = json!(false);
    assert_eq!(
        said(check_soft_reboot(&deaf)),
        conflict("VMI neither have the agent connected nor the ACPI feature enabled")
    );
    assert_eq!(said(check_soft_reboot(&running)), "ok");
}

fn with_volumes() -> Value {
    let mut vm = machine("Always");
    vm["spec"]["template"]["spec"] = json!({
        "domain": {"devices": {"disks": [{"name": "root"}]}},
        "volumes": [
            {"name": "root", "containerDisk": {"image": "i"}},
            {"name": "hot", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}},
        ],
    });
    vm
}

#[test]
fn volumes_are_attached_to_the_template() {
    let vm = with_volumes();
    let options = json!({
        "name": "data",
        "disk": {"disk": {"bus": "scsi"}, "serial": "data"},
        "volumeSource": {"dataVolume": {"name": "d"}},
    });
    let patch = add_volume(Volumes::OfMachine(&vm), &options).unwrap();
    assert_eq!(patch.target, PatchTarget::Machine);
    let [test_volumes, test_disks, volumes, disks] = patch.operations.as_slice() else {
        panic!("{:?}", patch.operations)
    };
    assert_eq!(test_volumes["value"], vm["spec"]["template"]["spec"]["volumes"]);
    assert_eq!(test_disks["path"], "/spec/template/spec/domain/devices/disks");
    assert_eq!(
        volumes["value"][2],
        json!({"name": "data", "dataVolume": {"name": "d", "hotpluggable": true}})
    );
    assert_eq!(
        disks["value"][1],
        json!({"name": "data", "disk": {"bus": "scsi"}, "serial": "data"})
    );
}

#[test]
fn volumes_that_cannot_come_or_go_are_named() {
    let vm = with_volumes();
    let add = |options: Value| {
        let refusal = add_volume(Volumes::OfMachine(&vm), &options).unwrap_err();
        format!("{} {}", refusal.code, refusal.message)
    };
    let source = json!({"dataVolume": {"name": "d"}});
    assert_eq!(add(json!({})), "400 AddVolumeOptions requires name to be set");
    assert_eq!(add(json!({"name": "x"})), "400 AddVolumeOptions requires disk to not be nil");
    assert_eq!(
        add(json!({"name": "x", "disk": {}})),
        "400 AddVolumeOptions requires VolumeSource to not be nil"
    );
    assert_eq!(
        add(json!({"name": "root", "disk": {}, "volumeSource": source})),
        refused("Unable to add volume [root] because volume with that name already exists")
    );
    let used = json!({"persistentVolumeClaim": {"claimName": "c"}});
    assert_eq!(
        add(json!({"name": "x", "disk": {}, "volumeSource": used})),
        refused("Unable to add volume source [c] because it already exists")
    );
    let remove = |name: &str| {
        let outcome = remove_volume(Volumes::OfMachine(&vm), &json!({"name": name}));
        outcome.map(|patch| patch.operations).map_err(|refusal| refusal.message)
    };
    assert!(
        remove("x").unwrap_err().ends_with("Unable to remove volume [x] because it does not exist")
    );
    assert!(remove("root").unwrap_err().ends_with("[root] because it is not hotpluggable"));
    for name in ["hot", "c"] {
        let operations = remove(name).unwrap();
        assert_eq!(
            operations[2]["value"],
            json!([{"name": "root", "containerDisk": {"image": "i"}}])
        );
    }
    assert_eq!(remove("").unwrap_err(), "RemoveVolumeOptions requires name to be set");
}

#[test]
fn the_instance_of_a_machine_is_changed_through_the_machine() {
    let mut vmi = instance("Running");
    vmi["metadata"]["ownerReferences"] = json!([{"kind": "VirtualMachine", "controller": true}]);
    let refusal = remove_volume(Volumes::OfInstance(&vmi), &json!({"name": "x"})).unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (400, "VMI n/m is owned by a VM"));
}
