//! Killing a process that writes, again and again.
//!
//! The process is this test binary itself, started with the filter `the_writer`, a test
//! that reads its configuration from standard input. It prints each write before it is
//! made and after it was acknowledged; the test kills it at a random moment and then
//! compares the output with the content of the store.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use store::{Config, EtcdConfig, Revision};

use crate::contract::Random;
use crate::world::{Session, World, all, set};

const ROUNDS: usize = 20;
const MANY_ROUNDS: usize = 100;
/// Concurrent writers in the process, each with keys of its own.
const LANES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_killed_process_on_sqlite() {
    survive(World::sqlite().await, ROUNDS, 11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_killed_process_on_etcd() {
    survive(World::etcd().await, ROUNDS, 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn acknowledged_writes_survive_a_hundred_killed_processes() {
    survive(World::sqlite().await, MANY_ROUNDS, 13).await;
    survive(World::etcd().await, MANY_ROUNDS, 14).await;
}

async fn survive(world: World, rounds: usize, seed: u64) {
    let mut random = Random(seed);
    let mut book = Book::default();
    for round in 0..rounds {
        let mut writer = start(&world.config(), round);
        let acks = 1 + random.below(300);
        let lines = listen(&mut writer, acks);
        // Within a few commits after the last line was read.
        tokio::time::sleep(Duration::from_micros(random.below(3000))).await;
        writer.kill().unwrap();
        let rest = lines.join().unwrap();
        writer.wait().unwrap();
        book.note(&rest);

        let session = world.open().await;
        book.check(&session);
        session.close().await;
    }
    assert!(book.acknowledged > rounds, "only {} writes in {rounds} rounds", book.acknowledged);
}

/// The writes that the process reported.
#[derive(Default)]
struct Book {
    /// For each key the number last acknowledged and the number last attempted.
    keys: BTreeMap<String, (u64, u64)>,
    /// Which write each acknowledged revision belongs to.
    revisions: BTreeMap<Revision, String>,
    acknowledged: usize,
    /// The revision of the store when the writer was started: all of its writes have later ones.
    floor: Revision,
}

impl Book {
    fn note(&mut self, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["try", key, number] => {
                    let number = number.parse().unwrap();
                    self.keys.entry(key.to_owned()).or_default().1 = number;
                }
                ["ack", key, number, revision] => {
                    let revision = Revision::new(revision.parse().unwrap());
                    let again = self.revisions.insert(revision, format!("{key} {number}"));
                    assert_eq!(again, None, "revision {revision} was given twice");
                    assert!(revision > self.floor, "{revision} is not after {}", self.floor);
                    self.keys.get_mut(key).unwrap().0 = number.parse().unwrap();
                    self.acknowledged += 1;
                }
                // Output of the test harness, or a torn last line.
                _ => {}
            }
        }
    }

    fn check(&mut self, session: &Session) {
        let last = self.revisions.last_key_value().map_or(Revision::ZERO, |(last, _)| *last);
        assert!(session.revision() >= last, "the store forgot revisions");
        for entry in all(session, "things").entries {
            let number: u64 = String::from_utf8_lossy(&entry.item).parse().unwrap();
            let Some((acknowledged, attempted)) = self.keys.get(&*entry.name) else { continue };
            assert!(number >= *acknowledged, "{} is {number}, not {acknowledged}", entry.name);
            assert!(number <= *attempted, "{} is {number}, after {attempted}", entry.name);
            // A revision that the writer printed must have the value of that write.
            if let Some(write) = self.revisions.get(&entry.revision) {
                assert_eq!(*write, format!("{} {number}", entry.name));
            }
        }
        for (key, (acknowledged, _)) in &self.keys {
            assert!(*acknowledged == 0 || session.get("things", key).is_some(), "{key} is missing");
        }
        self.floor = session.revision();
    }
}

/// Reads the writer's output until it has printed `acks` acknowledgements, and then in
/// the background until it ends.
fn listen(writer: &mut Child, acks: u64) -> std::thread::JoinHandle<Vec<String>> {
    let mut output = BufReader::new(writer.stdout.take().unwrap());
    let (mut lines, mut received) = (Vec::new(), 0);
    while received < acks {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "the writer ended: {lines:?}");
        received += u64::from(line.starts_with("ack "));
        lines.push(line.trim_end().to_owned());
    }
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut output, &mut rest).unwrap();
        let rest = String::from_utf8_lossy(&rest).into_owned();
        // Without its line break the last line may be torn.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        lines.extend(whole.lines().map(str::to_owned));
        lines
    })
}

fn start(config: &Config, round: usize) -> Child {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["crash::the_writer", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let place = match &config.engine {
        store::Engine::Sqlite(sqlite) => format!("sqlite {}", sqlite.path.display()),
        store::Engine::Etcd(etcd) => format!("etcd {}", etcd.endpoints[0]),
    };
    writeln!(writer.stdin.take().unwrap(), "{place} {round}").unwrap();
    writer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the other tests of this module as a process of its own"]
async fn the_writer() {
    let mut orders = String::new();
    std::io::stdin().read_line(&mut orders).unwrap();
    let orders: Vec<&str> = orders.split_whitespace().collect();
    let [engine, place, round] = orders[..] else { return };
    let config = match engine {
        "sqlite" => Config::sqlite(place),
        _ => Config::etcd(EtcdConfig::new(vec![place.to_owned()])),
    };
    let round: u64 = round.parse().unwrap();
    let session = Session::open(config).await;
    let lanes = (0..LANES).map(|lane| {
        let store = session.store.clone();
        tokio::spawn(async move {
            for step in 0.. {
                let (key, number) = (format!("{lane}-{}", step % 5), round * 1_000_000 + step + 1);
                say(&format!("try {key} {number}"));
                let revision = set(&store, "things", &key, &number.to_string()).await;
                say(&format!("ack {key} {number} {revision}"));
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}

/// One line in one piece, which `println!` under the test harness does not promise.
fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).unwrap();
}
