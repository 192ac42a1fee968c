//! A second engine that is on standby and takes the volume, and a replica that is declared the
//! truth.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use block::run::lab::{handover, salvage};

use crate::lab::{Lab, MIB, program, qemu_io, tool};

const PATIENCE: Duration = Duration::from_secs(300);

/// An engine beside that of the laboratory.
struct Standby {
    child: Child,
    socket: PathBuf,
}

impl Standby {
    fn start(lab: &Lab) -> Self {
        let socket = lab.dir.path().join("standby-nbd.sock");
        let log = std::fs::File::create(lab.dir.path().join("standby-log")).unwrap();
        let mut command = Command::new(program());
        command.arg("volume").arg(lab.volume_dir()).args(["16777216", "3"]).arg(&socket);
        command.arg("standby").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let standby = Self { child: command.spawn().unwrap(), socket };
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&standby.socket).is_err() {
            let said = std::fs::read_to_string(lab.dir.path().join("standby-log")).unwrap();
            assert!(start.elapsed() < PATIENCE, "no client is let in: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
        standby
    }

    fn io(&self, commands: &[&str]) -> String {
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        let mut args = vec!["-f", "raw", &uri];
        commands.iter().for_each(|command| args.extend(["-c", command]));
        let said = tool("qemu-io", &args);
        assert!(!said.contains("failed"), "{commands:?}: {said}");
        said
    }

    fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success(), "a clean end");
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_engine_that_stands_by_reads_and_then_takes_the_volume() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 7 0 64k", "flush"]);
    let standby = Standby::start(&lab);
    // Reads take nothing away.
    standby.io(&["read -P 7 0 64k"]);
    qemu_io(&lab, &["write -P 8 64k 64k", "flush"]);
    standby.io(&["read -P 8 64k 64k"]);
    handover(&lab.volume_dir()).unwrap();
    lab.wait_ended();
    assert!(lab.log().contains("Fenced"), "{}", lab.log());
    standby.io(&["read -P 8 64k 64k", "write -P 9 128k 64k", "flush"]);
    // It serves the directory now, and the replicas.
    lab.wait("the heir to be asked", |status| status.phase == "active");
    lab.wait_in_sync(3);
    standby.stop();
    lab.compare_replicas();
    lab.resume();
    qemu_io(&lab, &["read -P 7 0 64k", "read -P 9 128k 64k"]);
    lab.stop();
}

#[test]
fn the_first_write_takes_the_volume_too() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 1 0 64k"]);
    let standby = Standby::start(&lab);
    standby.io(&["write -P 2 0 4k", "read -P 1 4k 60k", "flush"]);
    lab.wait_ended();
    standby.stop();
    lab.compare_replicas();
}

#[test]
fn a_standby_without_a_handover_changes_nothing() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    Standby::start(&lab).stop();
    qemu_io(&lab, &["write -P 3 0 64k", "flush"]);
    assert!(handover(&lab.volume_dir()).is_err(), "no engine is on standby");
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn what_one_replica_has_is_salvaged_when_the_others_are_lost() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 5 0 1M", "flush"]);
    let dir = lab.volume_dir();
    assert!(salvage(&dir, 1, false).is_err(), "the volume is served");
    lab.stop();
    let refused = salvage(&dir, 1, false).unwrap_err().to_string();
    assert!(refused.contains("--force"), "{refused}");
    assert!(salvage(&dir, 7, true).unwrap_err().to_string().contains("0 to 2"));
    for lost in [0, 2] {
        std::fs::remove_dir_all(dir.join(format!("replica-{lost}"))).unwrap();
    }
    let salvaged = salvage(&dir, 1, false).unwrap();
    assert_eq!(salvaged.given_up.len(), 2);
    let again = salvage(&dir, 1, false).unwrap_err().to_string();
    assert!(again.contains("nothing to salvage"), "{again}");
    lab.resume();
    lab.wait_in_sync(3);
    qemu_io(&lab, &["read -P 5 0 1M"]);
    lab.stop();
    lab.compare_replicas();
}
