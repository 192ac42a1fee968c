//! A guest moves from one QEMU to another, with what was plugged into it since its start.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::net::UnixStream;

use super::{BOUND, Stage, boot, identity, read_until, say, spec, within};
use crate::firmware;
use crate::machine::{
    Bus, Disk, DiskSource, Efi, FileImage, Firmware, Machine, Nic, NicBackend, Start, Tpm,
    TpmInterface,
};
use crate::process::{Confinement, RunningMachine, Spec};
use crate::qmp::{MigrationLimits, MigrationStatus, MirrorJob, MirrorOptions, Qmp};

const LIMITS: MigrationLimits = MigrationLimits {
    bandwidth: None,
    downtime_millis: 300,
    auto_converge: false,
    post_copy: false,
};

async fn reaches(qmp: &Qmp, status: MigrationStatus) {
    let mut events = qmp.events();
    within(&format!("{status:?}"), async {
        loop {
            let now = qmp.migration_progress().await.unwrap();
            if now.status == status {
                return;
            }
            let is_over =
                matches!(now.status, MigrationStatus::Failed | MigrationStatus::Completed);
            assert!(!is_over, "{now:?} instead of {status:?}");
            let _ = events.recv().await;
        }
    })
    .await;
}

/// Another QEMU for the machine of `running`, which waits for its stream.
async fn target(stage: &Stage, running: &RunningMachine, name: &str) -> RunningMachine {
    let qmp = running.qmp().await.unwrap();
    let mut machine = running.spec().machine;
    machine.layout = Some(qmp.layout(&machine).await.unwrap());
    machine.start = Start::Incoming;
    if let Some(tpm) = &mut machine.tpm {
        tpm.state = stage.path().join(format!("{name}-tpm"));
    }
    stage.launcher.launch(&stage.run_dir(name), spec(machine)).await.unwrap()
}

/// Moves the guest; returns the console that it goes on with.
async fn migrate(from: &RunningMachine, to: &RunningMachine) -> UnixStream {
    let (source, target) = (from.qmp().await.unwrap(), to.qmp().await.unwrap());
    source.set_migration_capabilities().await.unwrap();
    target.set_migration_capabilities().await.unwrap();
    let (one, other) = StdStream::pair().unwrap();
    target.take_in(OwnedFd::from(other)).await.unwrap();
    source.migrate(OwnedFd::from(one), LIMITS).await.unwrap();
    reaches(&source, MigrationStatus::PreSwitchover).await;
    source.continue_migration().await.unwrap();
    reaches(&source, MigrationStatus::Completed).await;
    within("kill", from.kill()).await;
    let console = to.serial().await.unwrap();
    target.resume().await.unwrap();
    console
}

/// A stream from one process to the other, and what breaks it when it is dropped.
fn stream() -> (OwnedFd, OwnedFd, StdStream) {
    let (one, other) = StdStream::pair().unwrap();
    let handle = one.try_clone().unwrap();
    (one.into(), other.into(), handle)
}

/// The stream of a target that has noticed that its first one broke.
async fn recovered(target: &RunningMachine) -> UnixStream {
    loop {
        match target.recover_post_copy().await {
            Ok(stream) => return stream,
            Err(failure) => {
                let said = || std::fs::read_to_string(target.dir().log()).unwrap_or_default();
                assert!(target.exit().is_none(), "the target ended: {failure}: {}", said());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[tokio::test]
async fn a_post_copy_goes_on_after_its_stream_broke() {
    let stage = Stage::new();
    // Userfaultfd is for root, unless the host is set up for it.
    let whole = |machine: Machine| Spec { confinement: Confinement::default(), machine };
    let machine = stage.machine("late");
    let dir = stage.run_dir("late");
    let source = stage.launcher.launch(&dir, whole(machine)).await.unwrap();
    let mut console = source.serial().await.unwrap();
    source.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    let from = source.qmp().await.unwrap();
    let mut machine = source.spec().machine;
    machine.layout = Some(from.layout(&machine).await.unwrap());
    machine.start = Start::Incoming;
    let target = stage.launcher.launch(&stage.run_dir("early"), whole(machine)).await.unwrap();
    let to = target.qmp().await.unwrap();
    from.set_migration_capabilities().await.unwrap();
    to.set_migration_capabilities().await.unwrap();
    to.allow_post_copy().await.unwrap();
    let (one, other, broken) = stream();
    to.take_in(other).await.unwrap();
    // Far too slow to end by itself; pages that the guest needs are sent at once.
    let limits = MigrationLimits { bandwidth: Some(4 << 10), post_copy: true, ..LIMITS };
    from.migrate(one, limits).await.unwrap();
    reaches(&from, MigrationStatus::Active).await;
    from.start_post_copy().await.unwrap();
    reaches(&from, MigrationStatus::PreSwitchover).await;
    from.continue_migration().await.unwrap();
    reaches(&from, MigrationStatus::PostCopy).await;
    let mut console = target.serial().await.unwrap();
    to.resume().await.unwrap();
    // The source is in post-copy before it has sent the devices. A target that has not all of them
    // when its stream breaks ends, as it must: only one whose guest runs can go on.
    read_until(&mut console, ".").await;
    broken.shutdown(std::net::Shutdown::Both).unwrap();
    reaches(&from, MigrationStatus::PostCopyPaused).await;
    // The target may be asked for nothing else: its main loop can wait for memory.
    let mut there = within("recovery", recovered(&target)).await;
    let (one, other) = StdStream::pair().unwrap();
    other.set_nonblocking(true).unwrap();
    let mut other = UnixStream::from_std(other).unwrap();
    stage.tasks.spawn("stream", async move {
        let _ = tokio::io::copy_bidirectional(&mut other, &mut there).await;
    });
    let fast = json!({"max-postcopy-bandwidth": 0});
    from.run("migrate-set-parameters", fast).await.unwrap();
    from.resume_post_copy(one.into()).await.unwrap();
    reaches(&from, MigrationStatus::Completed).await;
    reaches(&to, MigrationStatus::Completed).await;
    within("kill", source.kill()).await;
    read_until(&mut console, "..").await;
    within("kill", target.kill()).await;
}

fn disk(stage: &Stage, name: &str, bus: Bus) -> Disk {
    let mut disk = Disk::new(name, bus, DiskSource::File(FileImage::raw(stage.guest_image(name))));
    disk.serial = Some(format!("serial-{name}"));
    disk
}

#[tokio::test]
async fn hot_plugged_devices_keep_their_places_after_a_migration() {
    let stage = Stage::new();
    let mut machine = stage.machine("moved");
    let first = disk(&stage, "first", Bus::Scsi);
    machine.disks.extend([first.clone(), disk(&stage, "second", Bus::Scsi)]);
    let source = stage.launcher.launch(&stage.run_dir("moved"), spec(machine)).await.unwrap();
    let mut console = source.serial().await.unwrap();
    source.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    let qmp = source.qmp().await.unwrap();
    qmp.unplug_disk(&first, BOUND).await.unwrap();
    let user = NicBackend::User { network: None, hostname: None, forwards: vec![] };
    let nic = Nic::new("late", "52:54:00:00:00:07", user);
    qmp.plug_nic(&nic, Vec::new(), Vec::new()).await.unwrap();
    let late = [
        disk(&stage, "virtio", Bus::Virtio),
        // The unit of the one that is gone.
        disk(&stage, "third", Bus::Scsi),
        disk(&stage, "fourth", Bus::Scsi),
    ];
    for disk in &late {
        qmp.plug_disk(disk).await.unwrap();
    }
    let recorded = source.update_spec(|spec| {
        spec.machine.disks.retain(|disk| disk.name != "first");
        spec.machine.disks.extend(late);
        spec.machine.nics.push(nic);
    });
    recorded.unwrap();
    let before = qmp.layout(&source.spec().machine).await.unwrap();
    let port = |device: &str| before.devices.get(device).map(String::as_str);
    assert_eq!((port("ua-late"), port("ua-virtio")), (Some("hot0"), Some("hot1")), "{before:?}");
    let luns: Vec<(&str, u32)> = before.luns.iter().map(|(id, lun)| (id.as_str(), *lun)).collect();
    assert_eq!(luns, [("ua-fourth", 2), ("ua-second", 1), ("ua-third", 0)]);

    let target = target(&stage, &source, "there").await;
    let mut console = migrate(&source, &target).await;
    read_until(&mut console, "..").await;
    say(&mut console, "x").await;
    read_until(&mut console, "x").await;
    let qmp = target.qmp().await.unwrap();
    assert_eq!(qmp.layout(&target.spec().machine).await.unwrap(), before);
    // And from there it can be plugged out, and in again.
    let third = target.spec().machine.disks.into_iter().find(|disk| disk.name == "third").unwrap();
    qmp.unplug_disk(&third, BOUND).await.unwrap();
    qmp.plug_disk(&third).await.unwrap();
    within("kill", target.kill()).await;
}

#[tokio::test]
async fn processors_that_were_plugged_in_are_there_after_a_migration() {
    let stage = Stage::new();
    let mut machine = stage.machine("grown");
    machine.cpu.max_sockets = 3;
    machine.memory.max = 64 << 20;
    machine.disks.push(disk(&stage, "unit", Bus::Scsi));
    let source = stage.launcher.launch(&stage.run_dir("grown"), spec(machine)).await.unwrap();
    let mut console = source.serial().await.unwrap();
    source.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    let qmp = source.qmp().await.unwrap();
    assert_eq!(qmp.fill_sockets(2).await.unwrap(), 1);
    qmp.request_growth(16 << 20).await.unwrap();
    let mut machine = source.spec().machine.with_filled_sockets(2);
    assert_eq!((machine.disks[0].queues, machine.devices.scsi_queues), (1, 1));
    machine.layout = Some(qmp.layout(&machine).await.unwrap());
    machine.start = Start::Incoming;
    let dir = stage.run_dir("grown-there");
    let target = stage.launcher.launch(&dir, spec(machine)).await.unwrap();
    let mut console = migrate(&source, &target).await;
    read_until(&mut console, "..").await;
    say(&mut console, "wx").await;
    read_until(&mut console, "Kx").await;
    let qmp = target.qmp().await.unwrap();
    assert_eq!(qmp.vcpus().await.unwrap().len(), 2);
    // And one more.
    assert_eq!(qmp.fill_sockets(3).await.unwrap(), 1);
    within("kill", target.kill()).await;
}

#[tokio::test]
async fn the_state_of_a_tpm_moves_with_the_guest() {
    let stage = Stage::new();
    let machine = |name: &str| -> Machine {
        let state = stage.path().join(format!("{name}-tpm"));
        let tpm = Some(Tpm { interface: TpmInterface::Tis, state });
        Machine { tpm, ..stage.machine(name) }
    };
    let dir = stage.run_dir("sealed");
    let source = stage.launcher.launch(&dir, spec(machine("sealed"))).await.unwrap();
    let mut console = source.serial().await.unwrap();
    source.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    let state = |name: &str| {
        std::fs::read(stage.path().join(format!("{name}-tpm/tpm2-00.permall"))).unwrap()
    };
    let before = state("sealed");
    let target = target(&stage, &source, "unsealed").await;
    let mut console = migrate(&source, &target).await;
    read_until(&mut console, "..").await;
    assert!(state("unsealed") == before, "the target's TPM has the seeds of the source's");
    within("kill", target.kill()).await;
}

#[tokio::test]
async fn variables_of_the_firmware_are_written_where_the_guest_goes_on() {
    let template = firmware::find(firmware::Boot::Plain).expect("scripts/setup installs OVMF");
    let stage = Stage::new();
    let vars = |name: &str| stage.path().join(format!("{name}.fd"));
    for name in ["here", "there"] {
        firmware::provide_vars(&template.vars, &vars(name), identity().as_ref()).unwrap();
    }
    let efi = |name: &str| {
        Firmware::Efi(Efi { secure_boot: false, code: template.code.clone(), vars: vars(name) })
    };
    let mut machine = stage.machine("here");
    machine.memory.guest = 128 << 20;
    machine.firmware = efi("here");
    let source = stage.launcher.launch(&stage.run_dir("here"), spec(machine)).await.unwrap();
    source.begin().await.unwrap();
    let fresh = std::fs::read(&template.vars).unwrap();
    let read = |name: &str| std::fs::read(vars(name)).unwrap();
    within("the firmware writes its variables", async {
        while read("here") == fresh {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let qmp = source.qmp().await.unwrap();
    let mut machine = source.spec().machine;
    machine.layout = Some(qmp.layout(&machine).await.unwrap());
    machine.start = Start::Incoming;
    machine.firmware = efi("there");
    let target = stage.launcher.launch(&stage.run_dir("there"), spec(machine)).await.unwrap();
    assert!(read("there") == fresh, "the target has variables of its own before");
    let _console = migrate(&source, &target).await;
    within("the variables are written", async {
        while read("there") == fresh {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    within("kill", target.kill()).await;
}

/// The same disk on an empty image of the target.
fn elsewhere(disk: &Disk, path: &Path) -> Disk {
    std::fs::File::create(path).unwrap().set_len(1 << 20).unwrap();
    if let Some(user) = identity() {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
    Disk { source: DiskSource::File(FileImage::raw(path)), ..disk.clone() }
}

#[tokio::test]
async fn a_disk_is_copied_along_with_its_guest() {
    let stage = Stage::new();
    let (source, mut console) = boot(&stage, "local").await;
    let (from, to_image) = (source.qmp().await.unwrap(), stage.path().join("remote.img"));
    let mut machine = source.spec().machine;
    machine.layout = Some(from.layout(&machine).await.unwrap());
    machine.start = Start::Incoming;
    let disk = machine.disks[0].clone();
    machine.disks[0] = elsewhere(&disk, &to_image);
    let exported = machine.disks.clone();
    let target = stage.launcher.launch(&stage.run_dir("remote"), spec(machine)).await.unwrap();
    let to = target.qmp().await.unwrap();
    to.set_migration_capabilities().await.unwrap();
    let socket = stage.path().join("disks.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    if let Some(user) = identity() {
        std::os::unix::fs::chown(&socket, Some(user.uid), Some(user.gid)).unwrap();
    }
    to.export_disks(listener.into(), &exported).await.unwrap();

    let server = DiskSource::Nbd { socket, export: disk.name.clone(), reconnect_delay: 0 };
    let next = Disk { source: server, moves: disk.moves + 1, ..disk.clone() };
    from.start_mirror(&disk, &next, MirrorOptions::default()).await.unwrap();
    let job = async |wanted: fn(&MirrorJob) -> bool| {
        let mut events = from.events();
        within("the mirror", async {
            while !wanted(&from.observe_mirror(&disk, &next).await.unwrap().job) {
                events.recv().await.unwrap();
            }
        })
        .await;
    };
    job(|job| *job == MirrorJob::Ready).await;
    say(&mut console, "w").await;
    read_until(&mut console, "K").await;
    from.set_migration_capabilities().await.unwrap();
    let (one, other) = StdStream::pair().unwrap();
    to.take_in(OwnedFd::from(other)).await.unwrap();
    from.migrate(OwnedFd::from(one), LIMITS).await.unwrap();
    say(&mut console, "W").await;
    reaches(&from, MigrationStatus::PreSwitchover).await;
    from.end_mirror(&next).await.unwrap();
    job(|job| *job == MirrorJob::Ended { error: None }).await;
    from.discard_mirror(&next).await.unwrap();
    to.stop_disk_exports().await.unwrap();
    to.stop_disk_exports().await.expect("it can be repeated");
    from.continue_migration().await.unwrap();
    reaches(&from, MigrationStatus::Completed).await;
    within("kill", source.kill()).await;
    let mut console = target.serial().await.unwrap();
    to.resume().await.unwrap();
    read_until(&mut console, "..").await;
    // The second write may have been made by either side; both leave the same bytes.
    // One after the other: two answers can come in one read.
    for letter in ["w", "W"] {
        say(&mut console, letter).await;
        read_until(&mut console, "K").await;
    }
    within("kill", target.kill()).await;
    let read = |path: &Path| std::fs::read(path).unwrap();
    let (old, new) = (read(&stage.path().join("local.img")), read(&to_image));
    assert_eq!(old[..512], new[..512], "the boot sector was copied");
    assert_eq!(old[512..1024], new[512..1024], "so was the write during the mirror");
    assert_ne!(new[512..1024], [0; 512]);
}
