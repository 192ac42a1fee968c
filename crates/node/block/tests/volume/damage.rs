//! Files of replicas are damaged at random, while nothing runs and while the volume is served, up to
//! all replicas but one, and every read is compared with a shadow copy of all acknowledged writes.
//!
//! `SHEAF_DAMAGES` asks for more rounds than usual, `SHEAF_SEED` for others.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block::ids::SnapshotId;
use block::run::lab::LabRequest;
use block::run::{AdminReply, AdminRequest};
use block::store::View;

use crate::harm::{DamageTarget, Rng, replace};
use crate::lab::{Lab, MIB, read_view, try_tool};

const SIZE: u64 = 16 * MIB;
/// Bytes that are written at once, and that have one value in the shadow.
const CHUNK: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Clean,
    Kill,
}

struct DamageTest {
    lab: Lab,
    replicas: usize,
    /// The value of every byte of each chunk.
    shadow: Vec<u8>,
    rng: Rng,
    /// The expected content of snapshots.
    snapshots: Vec<(SnapshotId, String, Vec<u8>)>,
    taken: u64,
}

impl DamageTest {
    fn new(replicas: usize, seed: u64) -> Self {
        let lab = Lab::start(SIZE, replicas, &[]);
        let shadow = vec![0; usize::try_from(SIZE / CHUNK).unwrap()];
        let (rng, snapshots, taken) = (Rng::new(seed), Vec::new(), 0);
        Self { lab, replicas, shadow, rng, snapshots, taken }
    }

    fn dir(&self, index: usize) -> PathBuf {
        self.lab.volume_dir().join(format!("replica-{index}"))
    }

    fn write(&mut self) {
        let mut commands = Vec::new();
        for _ in 0..8 {
            let chunk = self.rng.below(SIZE / CHUNK);
            let value = u8::try_from(1 + self.rng.below(250)).unwrap();
            self.shadow[usize::try_from(chunk).unwrap()] = value;
            commands.push(format!("write -P {value} {} {CHUNK}", chunk * CHUNK));
        }
        commands.push("flush".to_owned());
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        crate::lab::qemu_io(&self.lab, &commands);
    }

    /// Reads everything: no byte may differ from the shadow. Gives how many reads failed.
    fn read(&self, context: &str) -> usize {
        let uri = self.lab.uri();
        let mut commands = Vec::new();
        for (chunk, value) in (0u64..).zip(&self.shadow) {
            commands.push(format!("read -P {value} {} {CHUNK}", chunk * CHUNK));
        }
        let mut args = vec!["-f", "raw", &uri];
        commands.iter().for_each(|command| args.extend(["-c", command]));
        let output = try_tool("qemu-io", &args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("verification failed"), "{context}: {said}\n{}", self.lab.log());
        said.matches("read failed").count()
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::Clean => self.lab.stop(),
            Stop::Kill => self.lab.kill_all(self.replicas),
        }
    }

    /// Damages one replica, perhaps in several ways. Gives what was done.
    fn damage(&mut self, index: usize, spare_data: bool, older: &[PathBuf], runs: bool) -> String {
        let victim = DamageTarget {
            dir: self.dir(index),
            peer: self.dir((index + 1) % self.replicas),
            older: older[index].clone(),
            spare_data,
            runs,
        };
        let mut done = victim.damage(&mut self.rng);
        while self.rng.one_in(3) && fs::read_dir(&victim.dir).is_ok_and(|it| it.count() > 3) {
            done = format!("{done}, {}", victim.damage(&mut self.rng));
        }
        format!("replica {index}: {done}")
    }

    /// A new snapshot, instead of the oldest if there are several.
    fn snapshot(&mut self) {
        self.taken += 1;
        let (name, labels) = (format!("s{}", self.taken), Default::default());
        let request = AdminRequest::Snapshot { name: name.clone(), created: 1, labels };
        let AdminReply::Snapshot { id } = self.lab.admin(request) else { panic!("no snapshot") };
        self.snapshots.push((id, name, self.shadow.clone()));
        if self.snapshots.len() > 2 && self.rng.one_in(2) {
            let (_, name, _) = self.snapshots.remove(0);
            self.lab.admin(AdminRequest::DeleteSnapshot { name });
        }
    }

    /// Compares the content of replicas that are not in use, snapshots too.
    fn compare_replicas(&self, context: &str) {
        let content = self.lab.compare_replicas();
        check_content(&content, &self.shadow, &format!("{context}: head"));
        for index in 0..self.replicas {
            for (id, name, shadow) in &self.snapshots {
                let content = read_view(&self.dir(index), SIZE, View::Snapshot(*id));
                check_content(&content, shadow, &format!("{context}: {name} of replica {index}"));
            }
        }
    }

    /// Everything was repaired without help, and stays so.
    fn check_repaired(&mut self, context: &str) {
        self.lab.wait_in_sync(self.replicas);
        self.scrub();
        assert_eq!(self.read(context), 0, "{context}: reads fail\n{}", self.lab.log());
        self.lab.stop();
        self.compare_replicas(context);
        self.lab.resume();
    }

    fn scrub(&self) {
        self.lab.admin(AdminRequest::Scrub);
        self.lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    }

    fn older(&mut self) -> Vec<PathBuf> {
        let older: Vec<PathBuf> = (0..self.replicas)
            .map(|index| self.lab.dir.path().join(format!("older-{index}")))
            .collect();
        self.lab.stop();
        (0..self.replicas).for_each(|index| replace(&self.dir(index), &older[index]));
        self.lab.resume();
        older
    }

    /// Which replicas are damaged: up to all but one.
    fn victims(&mut self) -> Vec<usize> {
        let first = self.rng.index(self.replicas);
        let count = 1 + self.rng.index(self.replicas.saturating_sub(1));
        (0..count).map(|step| (first + step) % self.replicas).collect()
    }

    /// Damage while nothing runs.
    fn round_at_rest(&mut self) {
        let older = self.older();
        if self.rng.one_in(2) {
            self.snapshot();
        }
        self.write();
        let stop = if self.rng.one_in(2) { Stop::Clean } else { Stop::Kill };
        self.stop(stop);
        let whole = self.lab.dir.path().join("whole");
        replace(&self.lab.volume_dir(), &whole);
        let victims = self.victims();
        // The data of regions that were written when a process was killed is taken as it is, unless
        // two other replicas agree.
        let spare_data = stop == Stop::Kill && self.replicas - victims.len() < 2;
        let done: Vec<String> =
            victims.iter().map(|it| self.damage(*it, spare_data, &older, false)).collect();
        let context = format!("{} replicas, {stop:?}, {done:?}", self.replicas);
        if self.replicas > 1 {
            self.lab.resume();
            assert_eq!(self.read(&context), 0, "{context}: reads fail\n{}", self.lab.log());
            return self.check_repaired(&context);
        }
        // Without a good copy there may be errors, or no volume at all.
        if self.lab.try_resume() {
            self.read(&context);
            self.lab.kill_all(1);
        }
        replace(&whole, &self.lab.volume_dir());
        self.lab.resume();
        assert_eq!(self.read("restored"), 0, "what was put back is whole");
    }

    /// Damage while the volume is served; then processes go on, or some of them are killed.
    fn round_live(&mut self) {
        let older = self.older();
        self.write();
        if self.rng.one_in(2) {
            self.snapshot();
            self.write();
        }
        let victims = self.victims();
        let kill = [Killed::None, Killed::Damaged, Killed::All][self.rng.index(3)];
        let spare_data = kill == Killed::All && self.replicas - victims.len() < 2;
        let done: Vec<String> =
            victims.iter().map(|it| self.damage(*it, spare_data, &older, true)).collect();
        let context = format!("{} replicas, live, {kill:?} killed, {done:?}", self.replicas);
        match kill {
            Killed::None => {}
            Killed::Damaged => victims.iter().for_each(|index| self.restart(*index)),
            Killed::All => {
                self.lab.kill_all(self.replicas);
                self.lab.resume();
            }
        }
        assert_eq!(self.read(&context), 0, "{context}: reads fail\n{}", self.lab.log());
        self.write();
        self.lab.wait_in_sync(self.replicas);
        self.scrub();
        assert_eq!(self.read(&context), 0, "{context}: reads fail\n{}", self.lab.log());
        // A process does not notice the loss of a file that it has open: the next process does.
        self.lab.stop();
        self.lab.resume();
        self.check_repaired(&context);
    }

    fn restart(&self, index: usize) {
        let pid = self.lab.replica_pid(index);
        self.lab.ask(&LabRequest::KillReplica { index });
        crate::killed::wait_for_end(pid);
        // One that cannot be opened is replaced.
        self.lab.ask(&LabRequest::StartReplica { index });
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    None,
    Damaged,
    All,
}

fn check_content(content: &[u8], shadow: &[u8], context: &str) {
    let chunks = content.chunks(usize::try_from(CHUNK).unwrap()).zip(shadow);
    for (at, (chunk, value)) in chunks.enumerate() {
        assert!(chunk.iter().all(|byte| byte == value), "{context}: chunk {at} is not {value}");
    }
}

fn rounds(replicas: usize, usual: u64, round: fn(&mut DamageTest)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("SHEAF_SEED").unwrap_or(20_261_116) * 4 + replicas as u64;
    let mut bench = DamageTest::new(replicas, seed);
    bench.write();
    for _ in 0..number("SHEAF_DAMAGES").unwrap_or(usual) {
        round(&mut bench);
    }
    bench.lab.stop();
}

#[test]
fn no_damage_of_the_only_replica_is_read_as_data() {
    rounds(1, 4, DamageTest::round_at_rest);
}

#[test]
fn damage_of_one_of_two_replicas_is_repaired() {
    rounds(2, 3, DamageTest::round_at_rest);
}

#[test]
fn damage_of_up_to_two_of_three_replicas_is_repaired() {
    rounds(3, 3, DamageTest::round_at_rest);
}

#[test]
fn damage_of_one_of_two_replicas_that_are_served_is_repaired() {
    rounds(2, 2, DamageTest::round_live);
}

#[test]
fn damage_of_up_to_two_of_three_replicas_that_are_served_is_repaired() {
    rounds(3, 2, DamageTest::round_live);
}

#[test]
fn damage_that_only_a_snapshot_shows_is_found_and_repaired() {
    let mut lab = Lab::start(SIZE, 3, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 4M", "flush"]);
    let (name, labels) = ("s".to_owned(), Default::default());
    let reply = lab.admin(AdminRequest::Snapshot { name, created: 1, labels });
    let AdminReply::Snapshot { id } = reply else { panic!("no snapshot") };
    crate::lab::qemu_io(&lab, &["write -P 2 0 4M", "flush"]);
    lab.stop();
    let dir = |index: usize| lab.volume_dir().join(format!("replica-{index}"));
    // A block of one, and the whole map of another.
    let data = fs::File::options().write(true).open(dir(0).join("L0.data")).unwrap();
    data.write_all_at(&[7; 100], 512 << 10).unwrap();
    let map = dir(1).join("L0.map");
    let len = fs::metadata(&map).unwrap().len();
    fs::write(&map, vec![0; usize::try_from(len).unwrap()]).unwrap();
    for index in 0..3 {
        let mut files = block::store::files::Directory::read_only(dir(index));
        let report = block::store::check(&mut files, block::store::Depth::Data, &mut |_| {});
        assert_eq!(report.is_healthy(), index == 2, "replica {index}: {report}");
    }
    lab.resume();
    lab.wait_in_sync(3);
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    lab.stop();
    let content = lab.compare_replicas();
    assert!(content[..4 << 20].iter().all(|byte| *byte == 2));
    for index in 0..3 {
        let dir = lab.volume_dir().join(format!("replica-{index}"));
        let content = read_view(&dir, SIZE, View::Snapshot(id));
        assert!(content[..4 << 20].iter().all(|byte| *byte == 1), "replica {index}");
        assert!(content[4 << 20..].iter().all(|byte| *byte == 0), "replica {index}");
    }
}

#[test]
fn replicas_that_differ_without_evidence_are_not_served_until_written_again() {
    let mut lab = Lab::start(SIZE, 2, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    // Another content with good checksums, as no crash leaves it.
    overwrite(&lab.volume_dir().join("replica-0"));
    lab.resume();
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    lab.wait("a disputed block", |status| {
        status.disputed.iter().map(|it| (it.offset, it.length)).eq([(4096, 4096)])
    });
    for _ in 0..2 {
        let uri = lab.uri();
        let output = try_tool("qemu-io", &["-f", "raw", &uri, "-c", "read 4k 4k"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("read failed"), "{said}");
        crate::lab::qemu_io(&lab, &["read -P 1 0 4k", "read -P 1 8k 1016k"]);
        // The next engine knows it too.
        lab.stop();
        lab.resume();
    }
    crate::lab::qemu_io(&lab, &["write -P 3 4k 4k", "flush", "read -P 3 4k 4k"]);
    lab.wait("no disputed block", |status| status.disputed.is_empty());
    lab.stop();
    lab.resume();
    crate::lab::qemu_io(&lab, &["read -P 3 4k 4k"]);
    lab.stop();
    lab.compare_replicas();
}

/// Writes a block of a replica that is not served, past its volume.
fn overwrite(dir: &Path) {
    use block::store::files::Directory;
    use block::store::{NoBases, OpenOptions, Request, crc, drive, open};
    let mut files = Directory::new(dir);
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).unwrap();
    let mut driven = drive::Driven::new(replica, &mut files);
    let data = bytes::Bytes::from(vec![2; 4096]);
    let crcs = crc::of_blocks(&data).collect();
    driven.request(Request::Write { offset: 4096, data, crcs, fua: true }).unwrap();
    driven.request(Request::CloseClean).unwrap();
}

#[test]
fn a_map_that_is_damaged_while_it_is_served_heals_from_the_others() {
    let mut lab = Lab::start(SIZE, 3, &[]);
    crate::lab::qemu_io(&lab, &["write -P 5 0 4M", "flush"]);
    lab.stop();
    lab.resume();
    for index in 0..3 {
        let map = lab.volume_dir().join(format!("replica-{index}")).join("L0.map");
        let len = fs::metadata(&map).unwrap().len();
        fs::write(&map, vec![0; usize::try_from(len).unwrap()]).unwrap();
        let pid = lab.replica_pid(index);
        lab.ask(&LabRequest::KillReplica { index });
        crate::killed::wait_for_end(pid);
        lab.ask(&LabRequest::StartReplica { index });
        crate::lab::qemu_io(&lab, &["read -P 5 0 4M"]);
        lab.wait_in_sync(3);
        lab.admin(AdminRequest::Scrub);
        lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    }
    lab.stop();
    let content = lab.compare_replicas();
    assert!(content[..4 << 20].iter().all(|byte| *byte == 5));
}
