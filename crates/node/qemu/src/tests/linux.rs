//! A real Linux inside: the effects of our operations as its kernel and its agent see them.
//!
//! The guest is not part of this crate. `SHEAF_TEST_KERNEL` and `SHEAF_TEST_INITRD` name one
//! that loads drivers for virtio and SCSI, prints the `user-data` of a `cidata` medium, starts
//! qemu-ga, and says GUEST-READY.

use std::path::PathBuf;
use std::time::Duration;

use super::{BOUND, Stage, identity, read_until, spec, within};
use crate::guest_agent::GuestAgent;
use crate::machine::{
    Balloon, Bus, Disk, DiskDevice, DiskSource, FileImage, Kernel, Machine, Nic, NicBackend,
};
use crate::process::{Exit, RunningMachine};
use crate::seed;

fn guest(stage: &Stage) -> Machine {
    let from = |name: &str| {
        let path = std::env::var_os(name).unwrap_or_else(|| panic!("{name} names no file"));
        PathBuf::from(path)
    };
    let mut machine = Machine::new("linux", super::UUID, 256 << 20);
    machine.memory.max = 1 << 30;
    machine.cpu.max_sockets = 2;
    machine.kernel = Some(Kernel {
        image: from("SHEAF_TEST_KERNEL"),
        initrd: Some(from("SHEAF_TEST_INITRD")),
        arguments: "console=ttyS0 quiet cryptomgr.notests mitigations=off panic=-1".to_owned(),
    });
    let seed = seed::no_cloud(b"#cloud-config hello\n", b"{}", None).unwrap();
    let mut disk = Disk::new("seed", Bus::Scsi, own(stage, "seed.iso", &seed));
    disk.device = DiskDevice::Cdrom;
    disk.read_only = true;
    machine.disks.push(disk);
    machine.devices.balloon = Some(Balloon::default());
    machine
}

fn own(stage: &Stage, name: &str, content: &[u8]) -> DiskSource {
    let path = stage.path().join(name);
    std::fs::write(&path, content).unwrap();
    if let Some(identity) = identity() {
        std::os::unix::fs::chown(&path, Some(identity.uid), Some(identity.gid)).unwrap();
    }
    DiskSource::File(FileImage::raw(path))
}

async fn shell(agent: &GuestAgent, script: &str) -> String {
    let arguments = ["-c".to_owned(), script.to_owned()];
    let result = agent.run("/bin/sh", &arguments, BOUND).await.unwrap();
    String::from_utf8_lossy(&result.stdout).trim().to_owned()
}

/// Waits until a script in the guest says `wanted`.
async fn sees(agent: &GuestAgent, script: &str, wanted: &str) {
    within(&format!("{script} says {wanted}"), async {
        while shell(agent, script).await != wanted {}
    })
    .await;
}

async fn disks(running: &RunningMachine, agent: &GuestAgent, stage: &Stage) {
    let qmp = running.qmp().await.unwrap();
    let mut fast = Disk::new("fast", Bus::Virtio, own(stage, "fast.img", &[0; 1 << 20]));
    fast.serial = Some("FAST1".to_owned());
    qmp.plug_disk(&fast).await.unwrap();
    sees(agent, "cat /sys/block/vda/serial", "FAST1").await;
    qmp.resize_block(&fast.node(), 4 << 20).await.unwrap();
    sees(agent, "cat /sys/block/vda/size", "8192").await;
    qmp.unplug_disk(&fast, BOUND).await.unwrap();
    sees(agent, "ls /sys/block | grep -c vda", "0").await;
    let data = Disk::new("data", Bus::Scsi, own(stage, "data.img", &[0; 1 << 20]));
    qmp.plug_disk(&data).await.unwrap();
    // Udev derives scsi-0QEMU_QEMU_HARDDISK_drive-ua-data from this page.
    let page = "cat /sys/block/sda/device/vpd_pg83 | tr -dc 'a-z-'";
    sees(agent, page, "drive-ua-data").await;
    sees(agent, "cat /sys/block/sda/device/model", "QEMU HARDDISK").await;
    qmp.unplug_disk(&data, BOUND).await.unwrap();
}

async fn media(running: &RunningMachine, agent: &GuestAgent, stage: &Stage) {
    let qmp = running.qmp().await.unwrap();
    let other = seed::medium("other", &[seed::SeedFile::new("a-rather-long-name.txt", "text")]);
    let mut drive = running.spec().machine.disks[0].clone();
    shell(agent, "umount /mnt").await;
    drive.source = own(stage, "other.iso", &other.unwrap());
    qmp.change_medium(&drive).await.unwrap();
    let script = "mount -t iso9660 -o ro /dev/sr0 /mnt 2>/dev/null; ls /mnt";
    sees(agent, script, "a-rather-long-name.txt").await;
    assert_eq!(shell(agent, "cat /mnt/a-rather-long-name.txt; umount /mnt").await, "text");
    drive.source = DiskSource::Empty;
    qmp.change_medium(&drive).await.unwrap();
    sees(agent, "mount -t iso9660 -o ro /dev/sr0 /mnt 2>/dev/null; ls /mnt | grep -c txt", "0")
        .await;
}

async fn interfaces(running: &RunningMachine, agent: &GuestAgent) {
    let qmp = running.qmp().await.unwrap();
    let backend = NicBackend::User { network: None, hostname: None, forwards: Vec::new() };
    let nic = Nic::new("second", "52:54:00:aa:bb:cc", backend);
    qmp.plug_nic(&nic, Vec::new(), Vec::new()).await.unwrap();
    let named = within("the interface", async {
        loop {
            let all = agent.interfaces().await.unwrap();
            if let Some(found) =
                all.into_iter().find(|nic| nic.hardware_address == "52:54:00:aa:bb:cc")
            {
                return found.name;
            }
        }
    })
    .await;
    shell(agent, &format!("ip link set {named} up")).await;
    let carrier = format!("cat /sys/class/net/{named}/carrier");
    sees(agent, &carrier, "1").await;
    qmp.set_link(&nic.id(), false).await.unwrap();
    sees(agent, &carrier, "0").await;
    qmp.unplug_nic(&nic, BOUND).await.unwrap();
    sees(agent, &format!("ls /sys/class/net | grep -c {named}"), "0").await;
}

async fn processors_and_memory(running: &RunningMachine, agent: &GuestAgent) {
    let qmp = running.qmp().await.unwrap();
    assert_eq!(qmp.fill_sockets(2).await.unwrap(), 1);
    assert_eq!(qmp.fill_sockets(2).await.unwrap(), 0);
    assert_eq!(qmp.vcpus().await.unwrap().len(), 2);
    sees(agent, "ls -d /sys/devices/system/cpu/cpu1 | grep -c cpu1", "1").await;
    qmp.request_growth(256 << 20).await.unwrap();
    within("growth", async { while qmp.growth().await.unwrap() != 256 << 20 {} }).await;
    qmp.balloon(200 << 20).await.unwrap();
    within("the balloon", async { while qmp.balloon_size().await.unwrap() != 200 << 20 {} }).await;
}

#[tokio::test]
#[ignore = "needs a Linux guest, named by SHEAF_TEST_KERNEL and SHEAF_TEST_INITRD"]
async fn a_linux_guest_sees_what_is_plugged_and_answers_through_its_agent() {
    let stage = Stage::new();
    let machine = guest(&stage);
    let running = stage.launcher.launch(&stage.run_dir("linux"), spec(machine)).await.unwrap();
    let mut console = running.serial().await.unwrap();
    let agent = GuestAgent::open(running.dir().clone(), &stage.tasks);
    let early = agent.ping(Duration::from_millis(100)).await;
    assert!(early.is_err(), "no agent is there yet");
    running.begin().await.unwrap();
    let said = read_until(&mut console, "GUEST-READY").await;
    assert!(said.contains("#cloud-config hello"), "{said}");
    within("the agent", async { while agent.ping(Duration::from_secs(1)).await.is_err() {} }).await;
    let info = agent.info().await.unwrap();
    assert!(info.supports("guest-exec"), "{info:?}");
    assert_eq!(agent.os_info().await.unwrap().machine, "x86_64");
    disks(&running, &agent, &stage).await;
    media(&running, &agent, &stage).await;
    interfaces(&running, &agent).await;
    processors_and_memory(&running, &agent).await;
    let stats = running.qmp().await.unwrap().block_stats().await.unwrap();
    assert!(stats.iter().any(|disk| disk.device == "ua-seed" && disk.read_bytes > 0), "{stats:?}");
    assert_eq!(within("kill", running.kill()).await, Exit::Killed);
}
