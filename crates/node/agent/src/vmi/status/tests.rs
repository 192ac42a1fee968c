use serde_json::json;

use super::*;
use crate::machine::fixture::vmi;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn guest() -> Guest {
    Guest {
        pause: None,
        readiness: Readiness::Ready,
        agent: AgentState::Absent,
        os: VirtualMachineInstanceGuestOSInfo::default(),
        frozen: false,
        credentials: CredentialsState::Unused,
        machine_type: "pc-q35-7.2".into(),
        topology: Topology { sockets: 1, cores: 2, threads: 1 },
        memory: GuestMemory {
            at_boot: 1 << 30,
            current: 1 << 30,
            requested: 1 << 30,
            overhead: 96 << 20,
        },
        user: 1000,
        volumes: Vec::new(),
        moves: Vec::new(),
        movable: Vec::new(),
        interfaces: Vec::new(),
    }
}

fn running(guest: Guest) -> View {
    View { phase: VmiPhase::Running, trouble: None, guest: Some(guest) }
}

/// Applies a merge patch as the server does.
fn apply(vmi: &mut Vmi, patch: &Value) {
    fn merge(into: &mut Value, patch: &Value) {
        let Some(fields) = patch.as_object() else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in fields {
            match value {
                Value::Null => {
                    into.as_object_mut().unwrap().remove(key);
                }
                value => merge(&mut into[key.as_str()], value),
            }
        }
    }
    merge(&mut vmi.status, &patch["status"]);
}

fn condition<'a>(vmi: &'a Vmi, kind: &str) -> Option<&'a Value> {
    vmi.status["conditions"].as_array()?.iter().find(|each| each["type"] == kind)
}

#[test]
fn a_status_that_is_right_is_not_written() {
    let mut vmi = vmi(json!({"domain": {}}));
    let patch = patch(&vmi, &running(guest()), at(0)).unwrap();
    apply(&mut vmi, &patch);
    assert_eq!(super::patch(&vmi, &running(guest()), at(99)), None);
}

#[test]
fn a_start_is_written_whole_and_carries_the_version_it_is_based_on() {
    let mut vmi = vmi(json!({"domain": {}}));
    let patch = patch(&vmi, &running(guest()), at(0)).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
    apply(&mut vmi, &patch);
    assert_eq!(vmi.status["phase"], "Running");
    assert_eq!(
        vmi.status["phaseTransitionTimestamps"],
        json!([{"phase": "Running", "phaseTransitionTimestamp": rfc3339(at(0))}])
    );
    assert_eq!(vmi.status["currentCPUTopology"], json!({"sockets": 1, "cores": 2, "threads": 1}));
    assert_eq!(vmi.status["memory"]["guestAtBoot"], "1Gi");
    let kinds: Vec<_> = vmi.status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["type"].clone())
        .collect();
    assert_eq!(kinds, ["Ready", "LiveMigratable", "StorageLiveMigratable"]);
}

#[test]
fn only_the_change_is_written() {
    let mut vmi = vmi(json!({"domain": {}}));
    let first = patch(&vmi, &running(guest()), at(0)).unwrap();
    apply(&mut vmi, &first);
    let paused = Guest { pause: Some(Pause::User), ..guest() };
    let change = patch(&vmi, &running(paused), at(5)).unwrap();
    assert_eq!(change["status"].as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"]);
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "Paused").unwrap()["reason"], "PausedByUser");
    assert_eq!(condition(&vmi, "Ready").unwrap()["status"], "False");
    assert_eq!(condition(&vmi, "LiveMigratable").unwrap()["lastTransitionTime"], rfc3339(at(0)));
    let change = patch(&vmi, &running(guest()), at(6)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "Paused"), None);
    assert_eq!(condition(&vmi, "Ready").unwrap()["status"], "True");
}

#[test]
fn waiting_says_for_what_and_stops_saying_it() {
    let mut vmi = vmi(json!({"domain": {}}));
    let trouble =
        MachineProblem::new(virt::reason::NotSynchronized::Mount, "secret s does not exist");
    let waiting = View { phase: VmiPhase::Scheduled, trouble: Some(trouble), guest: None };
    let change = patch(&vmi, &waiting, at(0)).unwrap();
    apply(&mut vmi, &change);
    let reported = condition(&vmi, "Synchronized").unwrap();
    assert_eq!(
        (&reported["status"], &reported["message"]),
        (&json!("False"), &json!("secret s does not exist"))
    );
    let change = patch(&vmi, &running(guest()), at(1)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "Synchronized"), None);
}

#[test]
fn conditions_of_others_stay() {
    let mut vmi = vmi(json!({"domain": {}}));
    let theirs = json!({"type": "DataVolumesReady", "status": "True", "reason": "AllDVsReady"});
    vmi.status["conditions"] = json!([theirs]);
    let change = patch(&vmi, &running(guest()), at(0)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "DataVolumesReady"), Some(&theirs));
}

#[test]
fn hot_plugged_volumes_report_their_progress() {
    let mut vmi = vmi(json!({"domain": {}}));
    let volume = |name: &str, target: &str, hotplug| VolumeReport {
        name: name.into(),
        target: target.into(),
        size: None,
        hotplug,
        claim: None,
    };
    let volumes = vec![
        volume("z", "vda", None),
        volume("a", "sda", Some(Hotplug::Attached)),
        volume("b", "", Some(Hotplug::Pending("PVC b is not bound".into()))),
    ];
    let change = patch(&vmi, &running(Guest { volumes, ..guest() }), at(0)).unwrap();
    apply(&mut vmi, &change);
    let status = vmi.status["volumeStatus"].as_array().unwrap();
    assert_eq!(status[0]["name"], "a");
    assert_eq!((&status[0]["phase"], &status[0]["hotplugVolume"]), (&json!("Ready"), &json!({})));
    assert_eq!(status[1]["message"], "PVC b is not bound");
    assert_eq!(status[2], json!({"name": "z", "target": "vda"}));
}

#[test]
fn disks_that_are_not_shared_cannot_move() {
    let spec = json!({
        "domain": {},
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root-pvc"}}],
    });
    let mut vmi = vmi(spec);
    let change = patch(&vmi, &running(guest()), at(0)).unwrap();
    apply(&mut vmi, &change);
    let reported = condition(&vmi, "LiveMigratable").unwrap();
    assert_eq!(reported["reason"], "DisksNotLiveMigratable");
    assert!(reported["message"].as_str().unwrap().contains("PVC root-pvc is not shared"));
    assert_eq!(vmi.status["migrationMethod"], "BlockMigration");
    // A volume of the class `local` is copied.
    let movable = vec!["root".to_owned()];
    let change = patch(&vmi, &running(Guest { movable, ..guest() }), at(1)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "LiveMigratable").unwrap()["status"], "True");
    assert_eq!(vmi.status["migrationMethod"], "BlockMigration");
}

#[test]
fn an_end_takes_back_what_was_only_true_of_a_running_guest() {
    let mut vmi = vmi(json!({"domain": {}}));
    let connected = Guest { agent: AgentState::Connected, ..guest() };
    let change = patch(&vmi, &running(connected), at(0)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(condition(&vmi, "AgentConnected").unwrap()["lastProbeTime"], rfc3339(at(0)));
    let ended = View { phase: VmiPhase::Succeeded, trouble: None, guest: None };
    let change = patch(&vmi, &ended, at(9)).unwrap();
    apply(&mut vmi, &change);
    assert_eq!(vmi.status["phase"], "Succeeded");
    assert_eq!(condition(&vmi, "AgentConnected"), None);
    assert_eq!(condition(&vmi, "Ready").unwrap()["reason"], "GuestNotRunning");
}

#[test]
fn sizes_are_written_in_the_largest_whole_unit() {
    for (bytes, text) in [(0, "0"), (1, "1"), (1 << 30, "1Gi"), (96 << 20, "96Mi"), (1536, "1536")]
    {
        assert_eq!(quantity(bytes), text);
    }
}
