//! Files of replicas are damaged at random while nothing runs, up to all replicas but one, and every
//! read is compared with a shadow copy of all acknowledged writes.
//!
//! `SHEAF_DAMAGES` asks for more rounds than usual, `SHEAF_SEED` for others.

use std::fs;
use std::path::{Path, PathBuf};

use block::run::AdminRequest;
use block::run::lab::LabRequest;

use crate::lab::{Lab, MIB, tool, try_tool};

const SIZE: u64 = 16 * MIB;
/// What is written at once, and what the shadow has one value for.
const CHUNK: u64 = 64 << 10;

struct Rng(u64);

impl Rng {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Clean,
    Kill,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Zero,
    Truncate,
    Empty,
    Remove,
    /// The same file of the next replica.
    Foreign,
    /// The whole directory as it was some writes ago.
    OlderCopy,
    RemoveAll,
}

const DAMAGES: [Damage; 8] = [
    Damage::Flip,
    Damage::Zero,
    Damage::Truncate,
    Damage::Empty,
    Damage::Remove,
    Damage::Foreign,
    Damage::OlderCopy,
    Damage::RemoveAll,
];

struct DamageTest {
    lab: Lab,
    replicas: usize,
    /// The value of every byte of each chunk.
    shadow: Vec<u8>,
    rng: Rng,
}

fn copy(from: &Path, to: &Path) {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    tool("cp", &["-a", "--sparse=always", &text(from), &text(to)]);
}

fn replace(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    copy(from, to);
}

impl DamageTest {
    fn new(replicas: usize, seed: u64) -> Self {
        let lab = Lab::start(SIZE, replicas, &[]);
        let shadow = vec![0; usize::try_from(SIZE / CHUNK).unwrap()];
        Self { lab, replicas, shadow, rng: Rng(seed * 2 + 1) }
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

    /// Damages one replica. Gives what was done.
    fn damage(&mut self, index: usize, spare_data: bool, older: &[PathBuf]) -> String {
        let dir = self.dir(index);
        let mut files: Vec<PathBuf> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| !(spare_data && path.extension().is_some_and(|it| it == "data")));
        files.sort();
        let file = &files[usize::try_from(self.rng.below(files.len() as u64)).unwrap()];
        let len = fs::metadata(file).unwrap().len();
        let damage = DAMAGES[usize::try_from(self.rng.below(DAMAGES.len() as u64)).unwrap()];
        match damage {
            Damage::Flip => {
                let mut bytes = fs::read(file).unwrap();
                for _ in 0..1 + self.rng.below(16) {
                    let at = usize::try_from(self.rng.below(len)).unwrap();
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.rng.below(8);
                    }
                }
                fs::write(file, bytes).unwrap();
            }
            Damage::Zero => {
                let zeroes = vec![0; usize::try_from(len).unwrap()];
                fs::write(file, zeroes).unwrap();
            }
            Damage::Truncate => {
                let half = self.rng.below(len);
                fs::File::options().write(true).open(file).unwrap().set_len(half).unwrap();
            }
            Damage::Empty => fs::write(file, []).unwrap(),
            Damage::Remove => fs::remove_file(file).unwrap(),
            Damage::Foreign => {
                let other = self.dir((index + 1) % self.replicas).join(file.file_name().unwrap());
                if other.exists() && other != *file {
                    fs::copy(other, file).unwrap();
                }
            }
            Damage::OlderCopy => replace(&older[index], &dir),
            Damage::RemoveAll => fs::remove_dir_all(&dir).unwrap(),
        }
        format!("{damage:?} of {} of replica {index}", file.file_name().unwrap().display())
    }

    /// Everything was repaired without anybody's help, and stays so.
    fn check_repaired(&mut self, context: &str) {
        self.lab.wait_in_sync(self.replicas);
        self.lab.admin(AdminRequest::Scrub);
        self.lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
        assert_eq!(self.read(context), 0, "{context}: reads fail\n{}", self.lab.log());
        self.lab.stop();
        self.lab.compare_replicas();
        self.lab.resume();
    }

    fn round(&mut self) {
        let older: Vec<PathBuf> = (0..self.replicas)
            .map(|index| self.lab.dir.path().join(format!("older-{index}")))
            .collect();
        self.lab.stop();
        (0..self.replicas).for_each(|index| replace(&self.dir(index), &older[index]));
        self.lab.resume();
        self.write();
        let stop = if self.rng.below(2) == 0 { Stop::Clean } else { Stop::Kill };
        self.stop(stop);
        let whole = self.lab.dir.path().join("whole");
        replace(&self.lab.volume_dir(), &whole);
        let first = usize::try_from(self.rng.below(self.replicas as u64)).unwrap();
        let count = 1 + self.rng.below(self.replicas.saturating_sub(1) as u64);
        // The data of regions that were written when a process was killed is taken as it is, unless
        // two other replicas agree.
        let spare_data = stop == Stop::Kill && self.replicas as u64 - count < 2;
        let mut done = Vec::new();
        for step in 0..usize::try_from(count).unwrap() {
            done.push(self.damage((first + step) % self.replicas, spare_data, &older));
        }
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
}

fn rounds(replicas: usize) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("SHEAF_SEED").unwrap_or(20_261_116) + replicas as u64;
    let mut bench = DamageTest::new(replicas, seed);
    bench.write();
    for _ in 0..number("SHEAF_DAMAGES").unwrap_or(6) {
        bench.round();
    }
    bench.lab.stop();
}

#[test]
fn no_damage_of_the_only_replica_is_read_as_data() {
    rounds(1);
}

#[test]
fn damage_of_one_of_two_replicas_is_repaired() {
    rounds(2);
}

#[test]
fn damage_of_up_to_two_of_three_replicas_is_repaired() {
    rounds(3);
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

/// Writes a block of a replica that nobody serves, past its volume.
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
