//! Input that makes no sense, clients that do not behave, and disks that are full.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::lab::{Lab, MIB, program, qemu_io, tool, try_tool};

fn refused(args: &[&str]) -> String {
    let output = Command::new(program()).args(args).output().unwrap();
    assert!(!output.status.success(), "{args:?} must be refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn sizes_that_are_not_possible_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("d");
    let socket = dir.path().join("s");
    let (volume, socket) = (volume.to_str().unwrap(), socket.to_str().unwrap());
    for (size, replicas, flag) in [
        ("0", "1", "Size"),
        ("4097", "1", "Size"),
        ("18446744073709547520", "1", "Size"),
        ("4096", "0", "Replicas"),
        ("4096", "99", "Replicas"),
    ] {
        let said = refused(&["volume", volume, size, replicas, socket, "in-process"]);
        assert!(said.contains(flag), "{size} {replicas}: {said}");
        assert!(!std::path::Path::new(volume).exists(), "nothing is left behind");
    }
}

#[test]
fn a_directory_is_used_by_one_engine_at_a_time() {
    let lab = Lab::start(16 * MIB, 1, &["in-process"]);
    let dir = lab.volume_dir();
    let said =
        refused(&["volume", dir.to_str().unwrap(), "16777216", "1", "/dev/null/x", "in-process"]);
    assert!(said.contains("InUse"), "{said}");
    qemu_io(&lab, &["write -P 1 0 1M"]);
}

#[test]
fn garbage_is_hung_up_on_and_others_do_not_notice() {
    let lab = Lab::start(16 * MIB, 2, &[]);
    let mut sockets = vec![lab.socket()];
    sockets.extend((0..2).map(|index| lab.volume_dir().join(format!("replica-{index}.sock"))));
    sockets.push(lab.volume_dir().join("control.sock"));
    for socket in sockets {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 70000]] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
            let _ = stream.write_all(garbage);
            let _ = stream.write_all(b"\n");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // The connection ends for every input.
            let mut said = Vec::new();
            let ended = stream.read_to_end(&mut said);
            let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!ended.as_ref().is_err_and(timed_out), "{} hangs", socket.display());
        }
    }
    qemu_io(&lab, &["write -P 1 0 1M", "read -P 1 0 1M"]);
    lab.wait_in_sync(2);
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_write_harms_no_other() {
    let mut lab = Lab::start(16 * MIB, 2, &[]);
    qemu_io(&lab, &["write -P 1 0 1M"]);
    for cut in [0, 10, 28, 1000, 4000] {
        let mut stream = UnixStream::connect(lab.socket()).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        // Fixed newstyle without zeroes, then the only export, the oldest way.
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        let mut write = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
        write.extend(7u64.to_be_bytes());
        write.extend(0u64.to_be_bytes());
        write.extend(4096u32.to_be_bytes());
        write.extend([9; 4096]);
        stream.write_all(&write[..cut]).unwrap();
        drop(stream);
        qemu_io(&lab, &["read -P 1 0 1M"]);
    }
    lab.stop_in_sync();
    lab.compare_replicas();
}

/// A file system of its own, gone with the test.
pub(crate) struct Small(pub(crate) tempfile::TempDir);

impl Small {
    pub(crate) fn new(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        tool("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", dir.path().to_str().unwrap()]);
        Self(dir)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_as_such_and_recovered_from() {
    let small = Small::new("48m");
    let inner = tempfile::tempdir_in(small.0.path()).unwrap();
    let lab = Lab::start_in(inner, 128 * MIB, 1, &["in-process"]);
    qemu_io(&lab, &["write -P 1 0 16M", "flush"]);
    let uri = lab.uri();
    let output = try_tool("qemu-io", &["-f", "raw", &uri, "-c", "write -P 2 32M 64M"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No space left on device"), "{said}");
    qemu_io(&lab, &["read -P 1 0 16M"]);
    qemu_io(&lab, &["discard 32M 64M", "flush"]);
    qemu_io(&lab, &["write -P 3 16M 4M", "flush", "read -P 3 16M 4M", "read -P 1 0 16M"]);
    drop(lab);
    drop(small);
}
