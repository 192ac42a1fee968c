//! Replicated volumes on a node that runs machines: real QEMU on real engines, and what becomes
//! of a guest when the server, the storage process or both are killed.

mod backup;
mod claims;
mod copies;
mod instant;
mod kills;
pub(crate) mod lab;
mod machine;
mod memory_dump;
mod salvage;
mod storage_migration;
mod template;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Signal, kill_process};
use serde_json::json;

use self::lab::{CLAIMS, DATA_VOLUMES, Lab, VMIS, VMS, longhorn, machine};
use crate::harness::{Shell, disk_of_image, eventually, poll};
use crate::volume::web::{Fault, Web};

/// The user that the only guest's QEMU runs as.
fn guest_user(lab: &Lab) -> u32 {
    let process = lab.node.processes()[0].as_raw_nonzero();
    let found = std::fs::metadata(format!("/proc/{process}/cmdline")).unwrap();
    assert!(found.uid() >= 0x7000_0000, "the guest runs as {}", found.uid());
    found.uid()
}

/// The users who may connect to a socket besides its owner, by its access control list.
fn users(socket: &Path) -> Vec<u32> {
    assert_eq!(std::fs::metadata(socket).unwrap().mode() & 0o007, 0);
    let mut list = [0_u8; 128];
    let name = "system.posix_acl_access";
    let length = rustix::fs::getxattr(socket, name, &mut list).unwrap_or(4);
    let entries = list[4..length].chunks(8).filter(|entry| entry[0] != 0x10 && entry[2] != 0);
    let id = |entry: &[u8]| u32::from_le_bytes(entry[4..8].try_into().unwrap());
    entries.map(id).filter(|id| *id != u32::MAX).collect()
}

#[test]
fn a_machine_on_a_replicated_volume_keeps_its_data_and_leaves_nothing() {
    let mut lab = Lab::start();
    let volume = lab.claim("root", "16Mi");
    lab.write_pulse(&volume);
    lab.node.kubectl().apply(&machine("a", "root", "Always"));
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");
    let socket = lab.socket(&volume);
    let guest = guest_user(&lab);
    assert_eq!(users(&socket), [guest]);

    // The machine is started anew.
    lab.node.sheaf.http().delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 2");
    // Only the storage process dies.
    lab.kill_storage();
    lab.until_served(&volume);
    eventually("the guest may connect again", || users(&socket) == [guest]);
    // Only the server dies.
    let machines = lab.node.processes();
    let storage = lab.node.storage();
    lab.node.sheaf.kill();
    lab.node.sheaf.begin();
    lab.until_served(&volume);
    assert_eq!((lab.node.processes(), lab.node.storage()), (machines, storage));
    lab.node.sheaf.http().delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 3");
    // Both die, and the server is stopped as it should be.
    lab.node.sheaf.terminate();
    assert!(lab.node.storage().is_some(), "a volume is attached: its process stays");
    kill_process(lab.node.storage().unwrap(), Signal::KILL).unwrap();
    lab.node.sheaf.begin();
    lab.until_served(&volume);
    lab.node.sheaf.http().delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 4");

    lab.node.sheaf.http().delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    lab.until_state(&volume, "detached");
    assert!(!socket.exists(), "a socket is left");
    lab.node.sheaf.http().delete(&format!("{CLAIMS}/root")).ok();
    lab.until_nothing_is_left();
    lab.node.sheaf.terminate();
    eventually("the idle storage process ends with the server", || lab.node.storage().is_none());
}

#[test]
fn volumes_come_and_go_and_leave_nothing() {
    let lab = Lab::start();
    let first = lab.claim("first", "8Mi");
    // All files that the process keeps open permanently are open after its first volume.
    lab.want(&first, Some("one"));
    lab.until_served(&first);
    lab.want(&first, None);
    lab.until_state(&first, "detached");
    let before = lab.open_files();
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    let volumes: Vec<String> = names.iter().map(|name| lab.claim(name, "8Mi")).collect();
    for volume in &volumes {
        lab.want(volume, Some("one"));
    }
    for volume in &volumes {
        lab.until_served(volume);
    }
    for volume in &volumes {
        lab.want(volume, None);
    }
    for volume in &volumes {
        lab.until_state(volume, "detached");
    }
    for name in names.iter().chain([&"first".to_owned()]) {
        lab.node.sheaf.http().delete(&format!("{CLAIMS}/{name}")).ok();
    }
    lab.until_nothing_is_left();
    poll("files are closed", || {
        let now = lab.open_files();
        if now <= before { Ok(()) } else { Err(format!("{now} are open, {before} were")) }
    });
}

#[test]
fn a_guest_with_verified_io_sees_pauses_and_never_an_error() {
    let mut lab = Lab::start();
    let (data, other) = (lab.claim("data", "96Mi"), lab.claim("other", "16Mi"));
    let disk = lab.node.sheaf.scratch("root.img");
    disk_of_image(&disk);
    lab.node.kubectl().apply(&lab::linux(&disk));
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    let mut shell = Shell::login(&lab.node, "a");
    // In memory: Debian's kernel 6.1.192 fails in ext4_mb_load_buddy when the root is written back.
    shell.run("mount -t tmpfs none /tmp");
    // Each round writes new data, flushes, and reads it past the cache.
    shell.run(
        "echo 'i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); at=$((i % 60)); \
         dd if=/dev/urandom of=/tmp/block bs=1M count=1 2>/dev/null; \
         dd if=/tmp/block of=/dev/$1 bs=1M seek=$at conv=fsync,notrunc 2>/dev/null || echo bad >>/tmp/bad; \
         echo 3 >/proc/sys/vm/drop_caches; \
         dd if=/dev/$1 of=/tmp/back bs=1M skip=$at count=1 2>/dev/null || echo bad >>/tmp/bad; \
         cmp /tmp/block /tmp/back || echo differs >>/tmp/bad; echo $i >/tmp/rounds; done; \
         echo over >/tmp/over' >/tmp/verify",
    );
    let device = shell.run(&format!("{}; disk DATA", lab::FIND));
    shell.run(&format!("sh /tmp/verify {device} >/dev/null 2>&1 &"));
    let rounds = |shell: &mut Shell| shell.run("cat /tmp/rounds").parse::<u64>().unwrap_or(0);
    let goes_on = |shell: &mut Shell, what: &str| {
        let before = rounds(shell);
        eventually(&format!("the guest goes on after {what}"), || rounds(shell) > before + 2);
    };
    goes_on(&mut shell, "nothing");
    for _ in 0..2 {
        lab.kill_storage();
        goes_on(&mut shell, "its storage was killed");
    }
    lab.node.sheaf.kill();
    lab.node.sheaf.begin();
    shell = Shell::attach(&lab.node, "a");
    goes_on(&mut shell, "the server was killed");
    lab.node.sheaf.kill();
    kill_process(lab.node.storage().unwrap(), Signal::KILL).unwrap();
    lab.node.sheaf.begin();
    lab.until_served(&data);
    shell = Shell::attach(&lab.node, "a");
    goes_on(&mut shell, "both were killed");
    let mut work = kills::Work::prepare(&mut lab);
    for number in 0..3 {
        let victims = work.round(&mut lab, &data, number);
        shell = Shell::attach(&lab.node, "a");
        goes_on(&mut shell, &format!("kills of {victims}"));
    }
    work.remove(&lab);

    // The disk grows while it is written to.
    let size = format!("{}; cat /sys/block/$(disk DATA)/size", lab::FIND);
    shell.sees(&size, &(96 << 11).to_string());
    lab.grow("data", "128Mi");
    shell.sees(&size, &(128 << 11).to_string());
    goes_on(&mut shell, "its disk grew");
    // Another one comes and goes.
    let path = format!("{}/a/addvolume", lab::MACHINES);
    let options = json!({"name": "other", "disk": {"disk": {"bus": "scsi"}, "serial": "OTHER"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "other"}}});
    assert_eq!(lab.node.sheaf.http().put(&path, &options).status, 202);
    let find = format!("{}; cat /sys/block/$(disk OTHER)/size", lab::FIND);
    shell.sees(&find, &(16 << 11).to_string());
    let path = format!("{}/a/removevolume", lab::MACHINES);
    assert_eq!(lab.node.sheaf.http().put(&path, &json!({"name": "other"})).status, 202);
    shell.sees(&format!("{}; disk OTHER", lab::FIND), "");
    lab.until_state(&other, "detached");

    shell.run("touch /tmp/stop");
    shell.sees("cat /tmp/over", "over");
    assert_eq!(shell.run("cat /tmp/bad 2>/dev/null"), "");
    assert_eq!(shell.run("dmesg | grep -ci 'i/o error'"), "0");
    let vmi = lab.node.sheaf.http().get(&format!("{VMIS}/a")).ok();
    assert!(!vmi["status"]["conditions"].to_string().contains("Paused"), "{vmi}");
    lab.node.sheaf.http().delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    for name in ["data", "other"] {
        lab.node.sheaf.http().delete(&format!("{CLAIMS}/{name}")).ok();
    }
    lab.until_nothing_is_left();
}

#[test]
fn snapshots_and_clones_of_a_running_volume_are_of_their_moment() {
    let lab = Lab::start();
    let volume = lab.claim("data", "64Mi");
    lab.want(&volume, Some("one"));
    lab.until_served(&volume);
    lab.io(&volume, &["write -P 1 0 4M", "flush"]);
    let snapshot = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot",
        "metadata": {"name": "s1", "finalizers": ["longhorn.io"]},
        "spec": {"volume": volume, "createSnapshot": true}});
    lab.node.sheaf.http().post(&longhorn("snapshots"), &snapshot).ok();
    let at = format!("{}/s1", longhorn("snapshots"));
    let taken = poll("the snapshot is taken", || {
        let snapshot = lab.node.sheaf.http().get(&at).ok();
        let is_ready = snapshot["status"]["readyToUse"] == true;
        if is_ready { Ok(snapshot) } else { Err(snapshot.to_string()) }
    });
    assert_eq!(taken["status"]["restoreSize"], 64 << 20);
    lab.io(&volume, &["write -P 2 0 4M", "flush"]);
    // A clone is of the moment of the call; it is made of what is there, and is small.
    lab.node.sheaf.http().post(CLAIMS, &lab::clone_of("copy", "data", "64Mi")).ok();
    let copy = lab.until_bound("copy");
    lab.want(&copy, Some("one"));
    lab.until_served(&copy);
    lab.io(&copy, &["read -P 2 0 4M", "write -P 3 1M 1M", "flush", "read -P 3 1M 1M"]);
    lab.io(&volume, &["read -P 2 0 4M"]);
    // A storage process that was killed finds both again.
    lab.kill_storage();
    lab.until_served(&copy);
    lab.io(&copy, &["read -P 3 1M 1M", "read -P 2 2M 2M"]);
    lab.node.sheaf.http().delete(&at).ok();
    eventually("the snapshot is gone", || lab.node.sheaf.http().get(&at).status == 404);
    for (name, volume) in [("data", &volume), ("copy", &copy)] {
        lab.want(volume, None);
        lab.until_state(volume, "detached");
        lab.node.sheaf.http().delete(&format!("{CLAIMS}/{name}")).ok();
    }
    lab.until_nothing_is_left();
}

#[test]
fn an_image_is_imported_and_uploaded_into_replicated_volumes() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let web = Web::start();
    let image = lab.pulse_qcow2();
    web.put("pulse.qcow2", image.clone(), Fault::None);
    let url = json!({"http": {"url": web.url("pulse.qcow2")}});
    http.post(DATA_VOLUMES, &lab::data_volume("root", &url)).ok();
    lab.node.until(&format!("{DATA_VOLUMES}/root"), "/status/phase", "Succeeded");
    lab.node.kubectl().apply(&machine("a", "root", "Always"));
    lab.node.until_said("boot 1");
    http.delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();

    http.post(DATA_VOLUMES, &lab::data_volume("up", &json!({"upload": {}}))).ok();
    lab.node.until(&format!("{DATA_VOLUMES}/up"), "/status/phase", "UploadReady");
    let tokens = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
    let request = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest", "metadata": {"name": "t"}, "spec": {"pvcName": "up"}});
    let token = http.post(tokens, &request).ok()["status"]["token"].as_str().unwrap().to_owned();
    let client = lab.node.sheaf.bearer(&token);
    let reply = client.send(http::Request::post("/v1beta1/upload-async"), image);
    assert_eq!(reply.status, 200, "{}", reply.text());
    lab.node.until(&format!("{DATA_VOLUMES}/up"), "/status/phase", "Succeeded");
    // And from there into a third one.
    let from = json!({"pvc": {"namespace": "default", "name": "up"}});
    http.post(DATA_VOLUMES, &lab::data_volume("copy", &from)).ok();
    lab.node.until(&format!("{DATA_VOLUMES}/copy"), "/status/phase", "Succeeded");
    lab.node.kubectl().apply(&machine("b", "copy", "Always"));
    lab.node.until_said("boot 1");
    http.delete(&format!("{VMS}/b")).ok();
    lab.node.until_empty();
    for name in ["root", "up", "copy"] {
        http.delete(&format!("{DATA_VOLUMES}/{name}")).ok();
    }
    lab.until_nothing_is_left();
    let volumes = lab.node.sheaf.data().join("volumes");
    let left: Vec<_> = std::fs::read_dir(volumes).unwrap().flatten().map(|it| it.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_encrypted_volume_is_opened_by_its_secret_and_shows_nothing_on_disk() {
    let lab = Lab::start();
    lab.encrypted_class("secret-class", "a-passphrase-in-no-other-file");
    let volume = lab.claim_of("data", "32Mi", "secret-class");
    lab.want(&volume, Some("one"));
    lab.until_served(&volume);
    lab.io(&volume, &["write -P 0x5a 0 4M", "flush"]);
    lab.kill_storage();
    lab.until_served(&volume);
    lab.io(&volume, &["read -P 0x5a 0 4M"]);
    let files = lab.node.sheaf.data().join("storage");
    for text in ["a-passphrase-in-no-other-file", "ZZZZZZZZZZZZZZZZ"] {
        let mut grep = std::process::Command::new("grep");
        let found = grep.args(["-r", "-l", "-a", text]).arg(&files).output().unwrap();
        assert!(found.stdout.is_empty(), "{text} is in {}", String::from_utf8_lossy(&found.stdout));
    }
    lab.want(&volume, None);
    lab.until_state(&volume, "detached");
    lab.node.sheaf.http().delete(&format!("{CLAIMS}/data")).ok();
    lab.until_nothing_is_left();
}
