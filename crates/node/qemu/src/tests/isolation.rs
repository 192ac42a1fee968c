//! Attacks from a QEMU that its guest has taken over: from its namespaces, the host, other guests and
//! their disks are out of reach.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Stage, boot, is_root, run, spec, within};
use crate::image::{self, ImageKind, Tool};
use crate::machine::{Bus, Disk, DiskSource, FileImage, ImageFormat};
use crate::process::{RunDirState, RunningMachine};

/// Lists a directory as root in the mount namespace of QEMU.
fn names(running: &RunningMachine, dir: &Path) -> BTreeSet<String> {
    let root = PathBuf::from(format!("/proc/{}/root", running.process().pid));
    let entries = std::fs::read_dir(root.join(dir.strip_prefix("/").unwrap())).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn namespace(pid: &str, kind: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap()
}

fn disk(stage: &Stage, name: &str) -> Disk {
    let path = stage.path().join(format!("{name}.img"));
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let owner = super::identity().unwrap();
    std::os::unix::fs::chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
    Disk::new(name, Bus::Virtio, DiskSource::File(FileImage::raw(path)))
}

#[tokio::test]
async fn qemu_sees_its_own_files_and_nothing_of_other_guests() {
    assert!(is_root(), "this test makes namespaces: run it as root");
    let stage = Stage::new();
    let (other, _other_console) = boot(&stage, "other").await;
    let (running, _console) = boot(&stage, "apart").await;
    let pid = running.process().pid.to_string();
    for kind in ["mnt", "pid", "net", "ipc", "uts"] {
        assert_ne!(namespace(&pid, kind), namespace("self", kind), "{kind}");
        let others = namespace(&other.process().pid.to_string(), kind);
        assert_ne!(namespace(&pid, kind), others, "{kind}");
    }
    let place = stage.path();
    assert_eq!(names(&running, place), ["apart", "apart.img"].map(str::to_owned).into());
    for secret in ["root", "home", "var", "run", "srv", "mnt", "boot"] {
        // The directory of the run may lie below one of them.
        let top = Path::new("/").join(secret);
        if !place.starts_with(&top) {
            assert!(!names(&running, Path::new("/")).contains(secret), "{secret}");
        }
    }
    assert!(!names(&running, Path::new("/etc")).contains("shadow"));
    assert!(!names(&running, Path::new("/dev")).contains("mem"));
    // It is alone among processes and interfaces.
    let enter = ["--target", &pid, "--mount", "--pid", "--net", "--uts"];
    let inside = |words: &[&str]| run(Command::new("nsenter").args(enter).args(words));
    let processes = inside(&["sh", "-c", "echo /proc/[0-9]*"]);
    assert!(!processes.contains(&format!("/proc/{pid}")), "{processes}");
    let interfaces = inside(&["cat", "/proc/net/dev"]);
    assert_eq!(interfaces.lines().skip(2).count(), 1, "{interfaces}");
    assert_eq!(inside(&["uname", "-n"]), "guest\n");
    within("kill", running.kill()).await;
    within("kill", other.kill()).await;
}

#[tokio::test]
async fn a_disk_is_visible_for_qemu_as_long_as_it_is_plugged() {
    assert!(is_root(), "this test makes namespaces: run it as root");
    let stage = Stage::new();
    let mut machine = stage.machine("plugged");
    machine.devices.spare_ports = 2;
    let dir = stage.run_dir("plugged");
    let running = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    running.begin().await.unwrap();
    let qmp = running.qmp().await.unwrap();
    let data = disk(&stage, "data");
    disk(&stage, "foreign");
    let before = names(&running, stage.path());
    qmp.plug_disk(&data).await.unwrap();
    let DiskSource::File(image) = &data.source else { unreachable!("it is a file") };
    let inside = PathBuf::from(format!("/proc/{}/root", running.process().pid))
        .join(image.path.strip_prefix("/").unwrap());
    let id = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).unwrap();
    assert_eq!(id(&inside), id(&image.path));
    assert_eq!(names(&running, stage.path()).difference(&before).collect::<Vec<_>>(), ["data.img"]);
    // This guest does not answer: the device is taken from a machine that is reset.
    let unplugged = qmp.unplug_disk(&data, std::time::Duration::from_millis(100)).await;
    if unplugged.is_err() {
        qmp.reset().await.unwrap();
        within("unplug", async { while qmp.unplug_disk(&data, super::BOUND).await.is_err() {} })
            .await;
    }
    assert_eq!(names(&running, stage.path()), before);
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn a_qemu_in_namespaces_is_adopted_and_plugged() {
    assert!(is_root(), "this test makes namespaces: run it as root");
    let stage = Stage::new();
    let mut machine = stage.machine("adopted");
    machine.devices.spare_ports = 1;
    let dir = stage.run_dir("adopted");
    let first = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    let id = first.process();
    drop(first);
    let found = stage.launcher.adopt(&dir).await.unwrap();
    let RunDirState::Running(running) = found else { panic!("it runs: {found:?}") };
    assert_eq!(running.process(), id);
    running.qmp().await.unwrap().plug_disk(&disk(&stage, "later")).await.unwrap();
    assert!(names(&running, stage.path()).contains("later.img"));
    within("kill", running.kill()).await;
}

#[tokio::test]
async fn a_converter_sees_the_two_files_at_hand() {
    assert!(is_root(), "this test makes namespaces: run it as root");
    let stage = Stage::new();
    let identity = super::identity();
    let tool = Tool { identity: identity.clone(), is_isolated: true, ..Tool::default() };
    let at = |name: &str| stage.path().join(name);
    for name in ["from", "to", "foreign"] {
        std::fs::write(at(name), [7; 4096]).unwrap();
        let owner = identity.as_ref().unwrap();
        std::os::unix::fs::chown(at(name), Some(owner.uid), Some(owner.gid)).unwrap();
    }
    let (from, to) = (at("from"), at("to"));
    let target = (to.as_path(), ImageFormat::Raw);
    image::convert(&tool, (&from, ImageKind::Raw), target, |_| {}).await.unwrap();
    assert_eq!(std::fs::read(&to).unwrap(), [7; 4096]);
    // A path in an image that the converter was not given leads nowhere, whoever owns it.
    let arguments = ["info".into(), at("foreign").into_os_string()];
    let refused = tool.run(&arguments, &[&from]).await.unwrap_err().to_string();
    assert!(refused.contains("No such file"), "{refused}");
    assert!(tool.run(&arguments, &[&at("foreign")]).await.is_ok());
}

#[tokio::test]
async fn a_converter_that_was_taken_over_makes_no_process_and_no_namespace() {
    assert!(is_root(), "this test makes namespaces: run it as root");
    let stage = Stage::new();
    let file = stage.path().join("file");
    std::fs::write(&file, "").unwrap();
    let identity = super::identity();
    for is_isolated in [true, false] {
        let with = |program: &str| {
            let program = PathBuf::from(program);
            Tool { program, identity: identity.clone(), is_isolated, ..Tool::default() }
        };
        let status = with("/bin/cat").run(&["/proc/self/status".into()], &[&file]).await.unwrap();
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
        let child = ["-c", "true & wait"].map(OsString::from);
        let refused = with("/bin/sh").run(&child, &[&file]).await.unwrap_err().to_string();
        assert!(refused.contains("annot fork"), "{refused}");
        let own = ["--user", "true"].map(OsString::from);
        let refused = with("/usr/bin/unshare").run(&own, &[&file]).await.unwrap_err().to_string();
        assert!(refused.contains("Function not implemented"), "{refused}");
    }
}
