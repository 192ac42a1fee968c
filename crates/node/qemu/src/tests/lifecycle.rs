//! Machines from their start to their end, in all the ways there are to end.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::{BOUND, Stage, boot, identity, is_root, read_until, run, say, spec, within};
use crate::isolation::host_thread;
use crate::machine::{Bus, Disk, DiskSource, FileImage, Machine, OnReboot, Start};
use crate::process::{
    AdoptError, Binary, Exit, LaunchError, Launcher, PinError, RunDirState, RunningMachine, cgroup,
};
use crate::qmp::{QmpError, RunState};
use crate::run_dir::{MACHINE, PROCESS};

async fn reaches(running: &RunningMachine, state: RunState) {
    let mut states = running.states();
    within(&format!("{state:?}"), states.wait_for(|now| now.as_ref() == Some(&state)))
        .await
        .unwrap();
}

fn signal(running: &RunningMachine, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(running.process().pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn a_guest_runs_pauses_resets_and_obeys_its_power_button() {
    let stage = Stage::new();
    let (running, mut console) = boot(&stage, "life").await;
    reaches(&running, RunState::Running).await;
    let qmp = running.qmp().await.unwrap();
    qmp.pause().await.unwrap();
    reaches(&running, RunState::Paused).await;
    qmp.resume().await.unwrap();
    reaches(&running, RunState::Running).await;
    say(&mut console, "x").await;
    read_until(&mut console, "x").await;
    qmp.reset().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    let exit = within("power-off", running.stop(BOUND)).await;
    assert_eq!(exit, Exit::GuestShutdown);
    assert!(!running.dir().is_locked().unwrap());
    let found = stage.launcher.adopt(running.dir()).await.unwrap();
    assert!(matches!(found, RunDirState::Ended { exit: Exit::GuestShutdown, .. }), "{found:?}");
    stage.launcher.clean_up(running.dir()).await.unwrap();
    assert!(!running.dir().path().exists());
}

#[tokio::test]
async fn virtual_processors_stay_where_they_are_put() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "pinned").await;
    running.pin(&[vec![0]]).await.unwrap();
    let thread = running.qmp().await.unwrap().vcpus().await.unwrap()[0].thread_id;
    let pid = running.process().pid;
    let thread = host_thread(pid, thread).unwrap().unwrap().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap();
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    let nowhere = running.pin(&[vec![]]).await;
    assert!(matches!(nowhere, Err(PinError::Refused { vcpu: 0, .. })), "{nowhere:?}");
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn a_guest_that_powers_off_by_itself_is_noticed() {
    let stage = Stage::new();
    let (running, mut console) = boot(&stage, "off").await;
    say(&mut console, "o").await;
    assert_eq!(within("exit", running.exited()).await, Exit::GuestShutdown);
}

#[tokio::test]
async fn a_reboot_ends_a_machine_whose_reboots_are_shutdowns() {
    let stage = Stage::new();
    let mut machine = stage.machine("reboot");
    machine.on_reboot = OnReboot::Shutdown;
    let dir = stage.run_dir("reboot");
    let running = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    let mut console = running.serial().await.unwrap();
    running.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    say(&mut console, "r").await;
    assert_eq!(within("exit", running.exited()).await, Exit::GuestReset);
}

#[tokio::test]
async fn a_killed_process_is_noticed_at_once_and_stays_dead() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "killed").await;
    signal(&running, rustix::process::Signal::KILL);
    let exit = within("exit", running.exited()).await;
    assert_eq!(exit, Exit::Died { status: None, signal: Some(9) });
    let found = stage.launcher.adopt(running.dir()).await.unwrap();
    assert!(matches!(found, RunDirState::Ended { exit: Exit::Died { signal: Some(9), .. }, .. }));
}

#[tokio::test]
async fn a_guest_that_ignores_the_button_is_ended_after_its_grace() {
    let stage = Stage::new();
    // Nothing to boot from, so no guest handles the button.
    let machine = Machine::new("deaf", super::UUID, 32 << 20);
    let dir = stage.run_dir("deaf");
    let running = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    running.begin().await.unwrap();
    reaches(&running, RunState::Running).await;
    assert_eq!(within("stop", running.stop(Duration::from_millis(300))).await, Exit::Killed);
}

#[tokio::test]
async fn a_machine_is_found_again_by_a_new_process() {
    let stage = Stage::new();
    let (running, console) = boot(&stage, "orphan").await;
    let (dir, process) = (running.dir().clone(), running.process());
    stage.tasks.stop(BOUND).await;
    drop((running, console));
    // As if we had been killed between the start and the note of it.
    std::fs::remove_file(dir.path().join(PROCESS)).unwrap();

    let again = Stage::new();
    let refused = again.launcher.launch(&dir, spec(stage.machine("again"))).await;
    assert!(matches!(refused, Err(LaunchError::AlreadyRunning { .. })), "{refused:?}");
    let RunDirState::Running(running) = again.launcher.adopt(&dir).await.unwrap() else {
        panic!("the machine runs");
    };
    assert_eq!(running.process(), process);
    reaches(&running, RunState::Running).await;
    let mut console = running.serial().await.unwrap();
    read_until(&mut console, ".").await;
    // Actions of the guest while nothing watches it are seen by the next watcher.
    let dir = running.dir().clone();
    again.tasks.stop(BOUND).await;
    drop(running);
    say(&mut console, "o").await;
    let third = Stage::new();
    let RunDirState::Running(running) = third.launcher.adopt(&dir).await.unwrap() else {
        panic!("the process waits");
    };
    assert_eq!(within("exit", running.exited()).await, Exit::GuestShutdown);
}

#[tokio::test]
async fn a_machine_that_was_never_let_go_is_begun_by_who_finds_it() {
    let stage = Stage::new();
    let dir = stage.run_dir("early");
    let machine = stage.machine("early");
    drop(stage.launcher.launch(&dir, spec(machine)).await.unwrap());
    let RunDirState::Running(running) = stage.launcher.adopt(&dir).await.unwrap() else {
        panic!("the machine exists");
    };
    reaches(&running, RunState::Prelaunch).await;
    let mut console = running.serial().await.unwrap();
    running.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn a_paused_start_waits_to_be_resumed() {
    let stage = Stage::new();
    let mut machine = stage.machine("paused");
    machine.start = Start::Paused;
    let dir = stage.run_dir("paused");
    let running = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    running.begin().await.unwrap();
    assert_eq!(running.qmp().await.unwrap().run_state().await.unwrap(), RunState::Prelaunch);
    assert_eq!(within("stop", running.stop(BOUND)).await, Exit::Killed);
}

#[tokio::test]
async fn folders_without_a_process_say_what_they_are() {
    let stage = Stage::new();
    let dir = stage.run_dir("half");
    assert!(matches!(stage.launcher.adopt(&dir).await.unwrap(), RunDirState::Nothing));
    dir.create(None).unwrap();
    assert!(matches!(stage.launcher.adopt(&dir).await.unwrap(), RunDirState::Nothing));
    dir.store(MACHINE, &spec(stage.machine("half"))).unwrap();
    assert!(matches!(stage.launcher.adopt(&dir).await.unwrap(), RunDirState::Unstarted { .. }));
    let lock = dir.try_lock().unwrap();
    let hasty =
        Launcher::new(stage.tasks.clone(), Binary::default()).with_limit(Duration::from_millis(50));
    let hidden = hasty.adopt(&dir).await;
    assert!(matches!(hidden, Err(AdoptError::Hidden { .. })), "{hidden:?}");
    let kept = hasty.clean_up(&dir).await;
    assert!(matches!(kept, Err(AdoptError::Hidden { .. })), "{kept:?}");
    drop(lock);
    hasty.clean_up(&dir).await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_reported_in_the_words_of_qemu() {
    let stage = Stage::new();
    let mut machine = stage.machine("bad");
    machine.disks[0].source = DiskSource::File(FileImage::raw(stage.path().join("missing.img")));
    let dir = stage.run_dir("bad");
    let error = stage.launcher.launch(&dir, spec(machine)).await.unwrap_err();
    let LaunchError::EndedEarly { said } = &error else { panic!("{error:?}") };
    assert!(said.contains("missing.img"), "{said}");
    assert!(dir.lock_patiently().unwrap().is_some(), "no process holds the lock");

    let nowhere = Launcher::new(stage.tasks.clone(), Binary("/nowhere/qemu".into()));
    let error = nowhere.launch(&dir, spec(stage.machine("none"))).await.unwrap_err();
    assert!(matches!(error, LaunchError::Spawn { .. }), "{error:?}");
    assert!(dir.lock_patiently().unwrap().is_some(), "no process holds the lock");
}

#[tokio::test]
async fn a_stopped_process_is_a_timeout_and_not_a_hang() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "frozen").await;
    let qmp = running.qmp().await.unwrap().with_limit(Duration::from_millis(200));
    signal(&running, rustix::process::Signal::STOP);
    let result = within("an answer", qmp.run_state()).await;
    assert!(matches!(result, Err(QmpError::TimedOut { .. })), "{result:?}");
    signal(&running, rustix::process::Signal::CONT);
    let qmp = qmp.with_limit(BOUND);
    assert_eq!(qmp.run_state().await.unwrap(), RunState::Running);
    signal(&running, rustix::process::Signal::STOP);
    let exit = within("stop", running.stop(Duration::from_millis(100))).await;
    assert_eq!(exit, Exit::Killed);
}

#[tokio::test]
async fn a_lost_monitor_connection_is_made_again() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "again").await;
    let first = running.qmp().await.unwrap();
    // Garbage from us makes QEMU complain without an id; a reply that we cannot read, on
    // the other hand, ends the connection. Ending it from our side does the same.
    drop(first.run("no-such-command", json!({})).await.unwrap_err());
    first.disconnect();
    within("the end", first.closed()).await;
    within("a new connection", async {
        loop {
            if let Ok(qmp) = running.qmp().await
                && qmp.run_state().await.is_ok()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn disks_come_and_go_while_the_guest_runs() {
    let stage = Stage::new();
    let (running, _console) = boot(&stage, "plug").await;
    let qmp = running.qmp().await.unwrap();
    for bus in [Bus::Scsi, Bus::Virtio] {
        let image = stage.guest_image(&format!("data-{bus:?}"));
        let long = format!("data-with-a-rather-long-name-{bus:?}").to_lowercase();
        let disk = Disk::new(long, bus, DiskSource::File(FileImage::raw(image)));
        qmp.plug_disk(&disk).await.unwrap();
        qmp.plug_disk(&disk).await.unwrap();
        assert!(qmp.device_ids().await.unwrap().contains(&disk.id()));
        let stats = qmp.block_stats().await.unwrap();
        assert!(stats.iter().any(|stats| stats.device == disk.id()), "{stats:?}");
        qmp.resize_block(&disk.node(), 2 << 20).await.unwrap();
        // SCSI disks can be pulled without the guest; this guest has no PCI hot-plug driver.
        if bus == Bus::Scsi {
            qmp.unplug_disk(&disk, BOUND).await.unwrap();
            qmp.unplug_disk(&disk, BOUND).await.unwrap();
            assert!(!qmp.device_ids().await.unwrap().contains(&disk.id()));
        } else {
            let kept = qmp.unplug_disk(&disk, Duration::from_millis(200)).await;
            assert!(matches!(kept, Err(crate::qmp::UnplugError::TimedOut { .. })), "{kept:?}");
        }
    }
    let missing = Disk::new(
        "missing",
        Bus::Scsi,
        DiskSource::File(FileImage::raw(stage.path().join("missing.img"))),
    );
    let refused = qmp.plug_disk(&missing).await;
    assert!(matches!(refused, Err(QmpError::Refused { .. })), "{refused:?}");
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn the_process_has_no_rights_and_its_own_session() {
    assert!(is_root(), "this test needs root, as the tests of CI have");
    let stage = Stage::new();
    let mut plan = spec(stage.machine("meek"));
    plan.confinement.cgroup = cgroup::detect().unwrap();
    let limits =
        cgroup::Limits { cpu_weight: Some(50), cpu_quota: Some(1500), ..cgroup::Limits::default() };
    plan.confinement.limits = Some(limits);
    let dir = stage.run_dir(&format!("meek-{}", std::process::id()));
    let running = stage.launcher.launch(&dir, plan).await.unwrap();
    let pid = running.process().pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len() + 1..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let uid = identity().unwrap().uid.to_string();
    assert_eq!(field("Uid"), [uid.as_str(); 4]);
    assert_eq!(field("Gid"), [uid.as_str(); 4]);
    assert_eq!(field("Groups"), [""; 0]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    assert_eq!(field("Seccomp"), ["2"]);
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let processes = limits.lines().find(|line| line.starts_with("Max processes")).unwrap();
    assert!(processes.contains(" 4096 "), "{processes}");
    let session = run(Command::new("ps").args(["-o", "sid=", "-p", &pid.to_string()]));
    assert_eq!(session.trim(), pid.to_string());
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = format!("/sheaf/vm-{}", dir.path().file_name().unwrap().to_string_lossy());
    assert!(groups.contains(&group), "{groups}");
    within("kill", running.kill()).await;
    stage.launcher.clean_up(&dir).await.unwrap();
    let left = run(Command::new("find").args(["/sys/fs/cgroup", "-path", &format!("*{group}")]));
    assert_eq!(left, "");
}
