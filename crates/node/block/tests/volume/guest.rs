//! Real guests on our volumes: a file system under load while the process that serves it is
//! killed, over both front-ends, and when the power of its whole node is cut.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use block::run::AdminRequest;

use crate::lab::{MIB, tool, try_tool};
use crate::node::{Node, alone};

/// A guest without KVM on a machine that does ten other things.
const PATIENCE: Duration = Duration::from_secs(240);

/// Fills a file system and remembers what it wrote, syncing now and then.
const LOAD: &str = r#"#!/bin/sh
for d in /sys/block/vd*; do
    [ "$(cat $d/serial 2>/dev/null)" = sheaf ] && disk=/dev/${d##*/}
done
mkdir -p /data
mount -t ext4 $disk /data || echo 'GUEST: cannot mount'
echo 'GUEST: writing'
i=0
while [ $i -lt FILES ]; do
    dd if=/dev/urandom of=/data/f$i bs=64k count=3 2>/dev/null
    (cd /data && sha256sum f$i >>sums)
    if [ $((i % 4)) = 3 ]; then sync && echo "GUEST: synced $i"; fi
    i=$((i + 1))
done
sync
umount /data
mount -t ext4 $disk /data
cd /data
if sha256sum -c sums >/dev/null; then echo 'GUEST: verified'; else echo 'GUEST: damaged'; fi
cd /
rm /data/f1* && fstrim /data 2>/dev/null
umount /data
echo 'GUEST: done'
"#;

/// Says how large its disk is when that changes.
const GROWS: &str = r#"#!/bin/sh
for d in /sys/block/vd*; do
    [ "$(cat $d/serial 2>/dev/null)" = sheaf ] && size=$d/size
done
was=$(cat $size)
echo "GUEST: has $was sectors"
while [ "$(cat $size)" = "$was" ]; do sleep 1; done
echo "GUEST: has $(cat $size) sectors now"
"#;

/// How a guest reaches its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Nbd,
    Vhost,
}

/// A machine with a disk to boot from, commands to run, and our volume.
struct Guest {
    child: Child,
    console: PathBuf,
}

impl Guest {
    fn start(dir: &Path, script: &str, front: Front, socket: &Path) -> Self {
        let seed = seed(dir, script);
        let console = dir.join("console");
        let boot = boot_image();
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.args(["-accel", "tcg", "-m", "256", "-M", "q35,memory-backend=m0"]);
        // Shared, so that who serves its disk can reach it.
        qemu.args(["-object", "memory-backend-memfd,id=m0,size=256M,share=on"]);
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        for (id, image, format) in [("boot", &boot, "qcow2"), ("seed", &seed, "raw")] {
            qemu.arg("-drive").arg(format!(
                "file={},format={format},if=none,id={id},snapshot=on",
                image.display()
            ));
            let order = if id == "boot" { ",bootindex=1" } else { "" };
            qemu.arg("-device").arg(format!("virtio-blk-pci,drive={id}{order}"));
        }
        let path = socket.display();
        match front {
            Front::Nbd => {
                qemu.arg("-blockdev").arg(format!(
                    "driver=nbd,node-name=v,server.type=unix,server.path={path},reconnect-delay=60,\
                     discard=unmap"
                ));
                qemu.args(["-device", "virtio-blk-pci,drive=v,serial=sheaf"]);
            }
            Front::Vhost => {
                qemu.arg("-chardev").arg(format!("socket,id=v,path={path},reconnect=1"));
                qemu.args(["-device", "vhost-user-blk-pci,chardev=v,num-queues=2"]);
            }
        }
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        let child = qemu.spawn().expect("qemu-system-x86_64 is installed");
        Self { child, console }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    fn wait_for(&mut self, what: &str) {
        let start = Instant::now();
        while !self.said().contains(what) {
            let ended = self.child.try_wait().unwrap();
            let said = self.said();
            assert!(ended.is_none(), "the guest ended before {what:?}: {ended:?} {said}");
            assert!(start.elapsed() < PATIENCE, "the guest did not say {what:?}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The small guest that scripts/guest makes.
fn boot_image() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let output = Command::new(root.join("scripts/guest")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "scripts/guest: {said}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Commands for the guest, on a disk that it searches.
fn seed(dir: &Path, script: &str) -> PathBuf {
    let files = dir.join("seed.d");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("user-data"), script).unwrap();
    std::fs::write(files.join("meta-data"), "instance-id: i1\nlocal-hostname: g\n").unwrap();
    let image = dir.join("seed.img");
    let (image_text, files_text) = (image.to_str().unwrap(), files.to_str().unwrap());
    tool("mke2fs", &["-q", "-t", "ext4", "-L", "cidata", "-d", files_text, image_text, "1M"]);
    image
}

fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// Puts an empty file system onto a volume.
fn format(dir: &Path, socket: &Path, size: u64) {
    let image = dir.join("empty.img");
    let image = image.to_str().unwrap();
    tool("mke2fs", &["-q", "-t", "ext4", image, &format!("{}K", size >> 10)]);
    let uri = uri(socket);
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &uri]);
    std::fs::remove_file(image).unwrap();
}

/// The content of a volume, in a file.
fn fetch(dir: &Path, socket: &Path) -> PathBuf {
    let image = dir.join("after.img");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri(socket), image.to_str().unwrap()]);
    image
}

fn killed_under(front: Front, kills: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (nbd, vhost) = (dir.path().join("v.sock"), dir.path().join("g.sock"));
    let mut node = Node::start(&dir.path().join("d"), None);
    let volume = node.volume(64 * MIB, &nbd);
    format(dir.path(), &nbd, 64 * MIB);
    node.client().detach(volume).unwrap();
    let mut attachment = alone(volume, &nbd);
    attachment.vhost = Some(vhost.clone());
    node.client().attach(attachment).unwrap();
    let socket = if front == Front::Vhost { &vhost } else { &nbd };
    let script = LOAD.replace("FILES", "48");
    let mut guest = Guest::start(dir.path(), &script, front, socket);
    guest.wait_for("GUEST: writing");
    for after in kills {
        guest.wait_for(after);
        node.kill();
        node.resume();
    }
    guest.wait_for("GUEST: done");
    assert!(guest.said().contains("GUEST: verified"), "{}", guest.said());
    drop(guest);
    let image = fetch(dir.path(), &nbd);
    tool("e2fsck", &["-f", "-n", image.to_str().unwrap()]);
}

const KILLS: [&str; 3] = ["GUEST: synced 3", "GUEST: synced 15", "GUEST: synced 31"];

#[test]
fn a_guest_uses_a_volume_through_shared_memory() {
    killed_under(Front::Vhost, &[]);
}

#[test]
fn a_guest_over_nbd_outlives_kills_of_its_storage_process() {
    killed_under(Front::Nbd, &KILLS);
}

#[test]
fn a_guest_over_vhost_outlives_kills_of_its_storage_process() {
    killed_under(Front::Vhost, &KILLS);
}

#[test]
fn a_guest_over_vhost_is_notified_that_its_disk_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let (nbd, vhost) = (dir.path().join("v.sock"), dir.path().join("g.sock"));
    let node = Node::start(&dir.path().join("d"), None);
    let volume = node.volume(64 * MIB, &nbd);
    node.client().detach(volume).unwrap();
    let mut attachment = alone(volume, &nbd);
    attachment.vhost = Some(vhost.clone());
    node.client().attach(attachment).unwrap();
    let mut guest = Guest::start(dir.path(), GROWS, Front::Vhost, &vhost);
    guest.wait_for("GUEST: has 131072 sectors");
    node.client().volume(volume, AdminRequest::Resize { size: 96 * MIB }).unwrap();
    guest.wait_for("GUEST: has 196608 sectors now");
}

/// A file system in a file, whose content is all that a power cut leaves.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn mount(image: PathBuf, at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let (from, to) = (image.to_str().unwrap(), at.to_str().unwrap());
        // The kernel's own write-back must not happen in the middle of a copy.
        tool("mount", &["-o", "loop,commit=600", from, to]);
        Self { image, at }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn signal(pid: u32, name: &str) {
    tool("kill", &[name, &pid.to_string()]);
}

#[test]
fn what_a_guest_synced_outlives_a_power_cut_of_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    tool("mke2fs", &["-q", "-t", "ext4", image.to_str().unwrap(), "256M"]);
    let disk = Disk::mount(image, dir.path().join("m"));
    let (nbd, vhost) = (dir.path().join("v.sock"), dir.path().join("g.sock"));
    let mut node = Node::start(&disk.at.join("d"), None);
    let volume = node.volume(64 * MIB, &nbd);
    format(dir.path(), &nbd, 64 * MIB);
    node.client().detach(volume).unwrap();
    let mut attachment = alone(volume, &nbd);
    attachment.vhost = Some(vhost.clone());
    node.client().attach(attachment).unwrap();
    let script = LOAD.replace("FILES", "4000");
    let mut guest = Guest::start(dir.path(), &script, Front::Vhost, &vhost);
    guest.wait_for("GUEST: synced 19");
    // A power cut: only the content of the file under the file system remains.
    signal(node.pid(), "-STOP");
    let said = guest.said();
    let after = dir.path().join("cut.img");
    std::fs::copy(&disk.image, &after).unwrap();
    drop(guest);
    node.kill();
    drop(node);
    drop(disk);
    let disk = Disk::mount(after, dir.path().join("m2"));
    let mut node = Node::start_after_power_cut(&disk.at.join("d"));
    node.wait_in_sync(volume, 1);
    let image = fetch(dir.path(), &nbd);
    node.stop();
    verify(dir.path(), &image, &said);
    drop(disk);
}

/// The file system is whole, and has everything that was synced before the cut.
fn verify(dir: &Path, image: &Path, said: &str) {
    let synced = said.rsplit("GUEST: synced ").next().unwrap();
    let synced: u32 = synced.split_whitespace().next().unwrap().parse().unwrap();
    // As a guest does on its next start: the journal, then everything.
    let image_text = image.to_str().unwrap();
    let status = try_tool("e2fsck", &["-p", image_text]).status.code();
    assert!(matches!(status, Some(0 | 1)), "the journal cannot be replayed: {status:?}");
    tool("e2fsck", &["-f", "-n", image_text]);
    let disk = Disk::mount(image.to_owned(), dir.join("guest"));
    let sums = std::fs::read_to_string(disk.at.join("sums")).unwrap();
    let known: Vec<&str> = sums.lines().take(synced as usize + 1).collect();
    assert_eq!(known.len(), synced as usize + 1, "files that were synced are listed: {sums}");
    for line in known {
        let (sum, name) = line.split_once("  ").unwrap();
        let path = disk.at.join(name);
        let found = tool("sha256sum", &[path.to_str().unwrap()]);
        assert!(found.starts_with(sum), "{name} was synced and is not what it was");
    }
}
