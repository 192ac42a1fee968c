//! Every process is killed while clients write: answered writes are there, flushed or not.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::lab::{Lab, MIB};
use crate::nbd::Client;
use rustix::process::{Pid, Signal, kill_process};

const BLOCK: usize = 4096;

/// Writes a block as its number says.
fn write(client: &mut Client, block: u64, number: u32) -> io::Result<()> {
    match number % 8 {
        7 => client.write_zeroes(block * BLOCK as u64, BLOCK as u32),
        _ => client.write(block * BLOCK as u64, &content(number)),
    }
}

fn read(client: &mut Client, block: u64) -> Vec<u8> {
    client.read(block * BLOCK as u64, BLOCK as u32).unwrap()
}

/// The content that a write puts into a block, by its number: every eighth is a command to zero
/// it.
fn content(number: u32) -> Vec<u8> {
    match number % 8 {
        7 => vec![0; BLOCK],
        _ if number == 0 => vec![0; BLOCK],
        _ => number.to_le_bytes().repeat(BLOCK / 4),
    }
}

/// A writer's knowledge of its blocks: the last write that was answered, and the one that was not.
#[derive(Default)]
struct Known {
    answered: BTreeMap<u64, u32>,
    open: Option<(u64, u32)>,
    next: u32,
}

impl Known {
    /// Writes until the connection breaks. Blocks of writer `lane` of four.
    fn write(&mut self, socket: &Path, lane: u64) {
        let Ok(mut client) = Client::connect(socket) else { return };
        for _ in 0.. {
            self.next += 1;
            let step = u64::from(self.next);
            // Near each other and far apart, again and again and for the first time.
            let block = (step * step * 7 + step / 3) % 2000 * 4 + lane;
            self.open = Some((block, self.next));
            let flushes = step.is_multiple_of(97);
            if write(&mut client, block, self.next).is_err() || (flushes && client.flush().is_err())
            {
                return;
            }
            self.open = None;
            self.answered.insert(block, self.next);
        }
    }

    fn check(&mut self, client: &mut Client) {
        if let Some((block, number)) = self.open.take() {
            let found = read(client, block);
            let before = self.answered.get(&block).copied().unwrap_or(0);
            let torn = |old: &[u8], new: &[u8]| {
                let sectors = found.chunks(512).zip(old.chunks(512)).zip(new.chunks(512));
                sectors.into_iter().all(|((found, old), new)| found == old || found == new)
            };
            assert!(torn(&content(before), &content(number)), "block {block} is old or new");
            // An answered write gives the block a known content, whichever it has now.
            write(client, block, number).unwrap();
            self.answered.insert(block, number);
        }
        for (block, number) in &self.answered {
            let found = read(client, *block);
            assert!(found == content(*number), "block {block}: write {number} was answered");
        }
    }
}

/// A process that was killed is not gone before the kernel is done with it.
pub(crate) fn wait_for_end(pid: u32) {
    let start = std::time::Instant::now();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    while runs() {
        assert!(start.elapsed() < Duration::from_secs(300), "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill_at_random(replicas: usize, how: &'static [&'static str], rounds: u64) {
    let mut lab = Lab::start(32 * MIB, replicas, how);
    let mut lanes: Vec<Known> = (0..4).map(|_| Known::default()).collect();
    for round in 0..rounds {
        let pids: Vec<u32> = (0..replicas).map(|index| lab.replica_pid(index)).collect();
        let socket = lab.socket();
        std::thread::scope(|scope| {
            for (lane, known) in (0..).zip(&mut lanes) {
                let socket = &socket;
                scope.spawn(move || known.write(socket, lane));
            }
            // Not a wait for anything: the moment is to be a different one each time.
            std::thread::sleep(Duration::from_millis(120 + round * 67 % 200));
            let kill_replicas = || {
                for pid in &pids {
                    let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
                    let _ = kill_process(pid, Signal::KILL);
                }
            };
            if round % 2 == 0 && !how.contains(&"in-process") {
                kill_replicas();
                lab.kill_engine();
            } else {
                lab.kill_engine();
                kill_replicas();
            }
        });
        // Until it is gone, a socket of it answers, and the next one would not be started.
        pids.iter().for_each(|pid| wait_for_end(*pid));
        lab.resume();
        let mut client = Client::connect(&lab.socket()).unwrap();
        lanes.iter_mut().for_each(|known| known.check(&mut client));
    }
    let written: usize = lanes.iter().map(|known| known.answered.len()).sum();
    assert!(written > 100, "only {written} blocks were written");
    lab.wait_in_sync(replicas);
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn one_replica_in_a_process_of_its_own_keeps_what_was_answered() {
    kill_at_random(1, &[], 4);
}

#[test]
fn one_replica_in_the_process_of_its_engine_keeps_what_was_answered() {
    kill_at_random(1, &["in-process"], 4);
    kill_at_random(1, &["in-process", "threads"], 2);
}

#[test]
fn three_replicas_keep_what_was_answered() {
    kill_at_random(3, &[], 3);
}

/// A replica on a file system that is full: existing data can be read and overwritten, more is
/// refused with an error that says so, and with free space again everything works.
#[test]
fn a_replica_opens_on_a_full_disk() {
    use block::ids::{BootId, ReplicaId, VolumeId};
    use block::store::drive::Driven;
    use block::store::files::Directory;
    use block::store::{
        CreateOptions, NoBases, OpenOptions, Reply, Request, RequestError, View, crc, create, open,
    };
    let small = crate::odd::Small::new("32m");
    let dir = small.path().join("r");
    std::fs::create_dir(&dir).unwrap();
    let options = CreateOptions::new(VolumeId::random(), ReplicaId::random(), 1 << 30);
    create(&mut Directory::new(&dir), &options).unwrap();
    let write = |block: u64, fill: u8| {
        let data: bytes::Bytes = vec![fill; 64 * BLOCK].into();
        let crcs = crc::of_blocks(&data).collect();
        Request::Write { offset: block * BLOCK as u64, data, crcs, fua: false }
    };
    let filler = small.path().join("filler");
    for boot in [1, 1, 2, 3] {
        let boot = Some(BootId::from_u128(boot));
        let mut files = Directory::new(&dir);
        let options = OpenOptions { boot, ..OpenOptions::default() };
        let replica = open(&mut files, &mut NoBases, options).unwrap();
        let mut driven = Driven::new(replica, &mut files);
        if !filler.exists() {
            driven.request(write(0, 1)).unwrap();
            driven.request(Request::Flush).unwrap();
            driven.request(write(512, 2)).unwrap();
            fill_up(&filler);
        }
        let head = |driven: &mut Driven<'_>, block: u64| {
            let (view, offset) = (View::Head, block * BLOCK as u64);
            let Ok(Reply::Data(data)) =
                driven.request(Request::Read { view, offset, len: BLOCK as u64 })
            else {
                panic!("block {block} cannot be read");
            };
            data.into_bytes()[0]
        };
        assert_eq!((head(&mut driven, 0), head(&mut driven, 512)), (1, 2));
        driven.request(write(0, 1)).unwrap();
        driven.request(write(512, 2)).unwrap();
        driven.request(Request::Flush).unwrap();
        let refused = (0..64).map(|at| driven.request(write(4096 + at * 512, 3)));
        assert!(refused.into_iter().any(|it| it.err() == Some(RequestError::NoSpace)));
        // Dropped without a close, as a killed process does.
    }
    std::fs::remove_file(&filler).unwrap();
    let mut files = Directory::new(&dir);
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).unwrap();
    let mut driven = Driven::new(replica, &mut files);
    driven.request(write(4096, 4)).unwrap();
    driven.request(Request::CloseClean).unwrap();
}

fn fill_up(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, BLOCK] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}
