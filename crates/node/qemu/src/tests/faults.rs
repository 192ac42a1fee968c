//! Guarantees when we are killed, and when the host runs out of a resource.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Stage, boot, is_root, read_until, run, say, spec, within};
use crate::machine::{DiskSource, ErrorPolicy, FileImage};
use crate::process::{Exit, RunDirState};
use crate::qmp::RunState;

/// Not a test: the process that the next test starts, kills and cleans up after.
#[tokio::test]
#[ignore = "started by another test"]
async fn launch_until_killed() {
    let Some(place) = std::env::var_os("SHEAF_TEST_PLACE") else { return };
    let stage = Stage::at(place.into());
    let dir = stage.run_dir("victim");
    let running = stage.launcher.launch(&dir, spec(stage.machine("victim"))).await.unwrap();
    running.begin().await.unwrap();
    running.exited().await;
}

fn processes_of(place: &std::path::Path) -> usize {
    let all = run(Command::new("ps").args(["-eo", "args"]));
    let pid_file = place.join("victim/vm/qemu.pid").display().to_string();
    all.lines().filter(|line| line.contains(&pid_file)).count()
}

#[tokio::test]
async fn a_launcher_killed_at_any_moment_leaves_one_machine_or_none() {
    let myself = std::env::current_exe().unwrap();
    let mut found = [0; 3];
    // From before the first file is written to after the guest runs.
    for delay in (0..30).map(|step| Duration::from_micros(step * 1500)) {
        let stage = Stage::new();
        stage.guest_image("victim");
        let mut launcher = Command::new(&myself);
        launcher
            .args(["--exact", "tests::faults::launch_until_killed", "--ignored"])
            .env("SHEAF_TEST_PLACE", stage.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut launcher = launcher.spawn().unwrap();
        // The moment of the kill is what this test varies; it waits for nothing.
        tokio::time::sleep(delay).await;
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let dir = stage.run_dir("victim");
        match within("an answer", stage.launcher.adopt(&dir)).await.unwrap() {
            RunDirState::Running(running) => {
                found[0] += 1;
                assert_eq!(processes_of(stage.path()), 1);
                let mut console = running.serial().await.unwrap();
                running.begin().await.unwrap();
                read_until(&mut console, ".").await;
                assert_eq!(within("kill", running.kill()).await, Exit::Killed);
            }
            RunDirState::Unstarted { .. } | RunDirState::Nothing => found[1] += 1,
            RunDirState::Ended { .. } => found[2] += 1,
        }
        assert_eq!(processes_of(stage.path()), 0);
        assert!(!dir.is_locked().unwrap());
        stage.launcher.clean_up(&dir).await.unwrap();
    }
    println!("running, unstarted, ended: {found:?}");
    assert_eq!(found[2], 0, "no machine was lost");
}

/// A file system with little room, and its end.
struct Small(std::path::PathBuf);

impl Small {
    fn new(path: std::path::PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs"];
        run(Command::new("mount").args(mount).arg(&path));
        Self(path)
    }

    fn enlarge(&self) {
        run(Command::new("mount").args(["-o", "remount,size=8m"]).arg(&self.0));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_pauses_the_guest_until_there_is_room() {
    assert!(is_root(), "this test needs root to mount, as the tests of CI have");
    let stage = Stage::new();
    let small = Small::new(stage.path().join("small"));
    let mut machine = stage.machine("full");
    let image = small.0.join("disk.img");
    run(Command::new("cp").arg("--sparse=always").arg(stage.path().join("full.img")).arg(&image));
    let uid = super::identity().unwrap().uid;
    std::os::unix::fs::chown(&image, Some(uid), Some(uid)).unwrap();
    // Sector 1 lies in the page of sector 0, which exists: make that page a hole as well.
    let ballast = std::fs::File::create(small.0.join("ballast")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(1), &mut &ballast).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let source = FileImage { path: image, format: crate::machine::ImageFormat::Raw, backing: None };
    machine.disks[0].source = DiskSource::File(source);
    machine.disks[0].on_error = ErrorPolicy::Stop;
    let dir = stage.run_dir("full");
    let running = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    let mut console = running.serial().await.unwrap();
    running.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    // Sector 128 is in a page of its own that is not there yet.
    say(&mut console, "W").await;
    let mut states = running.states();
    within("the pause", states.wait_for(|state| *state == Some(RunState::IoError))).await.unwrap();
    small.enlarge();
    running.qmp().await.unwrap().resume().await.unwrap();
    read_until(&mut console, "K").await;
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn a_lost_console_reader_does_not_stop_the_guest() {
    let stage = Stage::new();
    let (running, mut console) = boot(&stage, "talk").await;
    let hub_tasks = base::Tasks::default();
    say(&mut console, "x").await;
    read_until(&mut console, "x").await;
    drop(console);
    let hub = crate::Console::open(running.dir().clone(), &hub_tasks).await;
    let mut ear = hub.listen().unwrap();
    hub.write("echo").await.unwrap();
    let mut output = String::new();
    within("the echo", async {
        while !output.replace('.', "").contains("ech") {
            output.push_str(&String::from_utf8_lossy(&ear.next().await.unwrap()));
        }
    })
    .await;
    within("kill", running.kill()).await;
}
