//! One rule each; the simulator tests all rules together.

use bytes::Bytes;

use super::*;
use crate::ids::{Epoch, Seq};
use crate::repl::disk::Description;
use crate::wire::{Crcs, Witnessed};

const REGION: u64 = 1 << 20;

struct Bench {
    session: Session,
    out: Vec<SessionAction>,
}

impl Bench {
    fn new(promised: u64) -> Self {
        let identity = Identity {
            volume: VolumeId::from_u128(1),
            replica: ReplicaId::from_u128(2),
            instance: InstanceId::from_u128(3),
            boot: BootId::from_u128(4),
        };
        Self { session: Session::new(identity, Generation(promised), REGION), out: Vec::new() }
    }

    fn on(&mut self, event: SessionEvent) -> Vec<SessionAction> {
        self.session.on(event, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn call(
        &mut self,
        connection: u64,
        id: u64,
        generation: u64,
        request: Request,
    ) -> Vec<SessionAction> {
        let call = Call { id, generation: Generation(generation), seq: Seq(id), request };
        self.on(SessionEvent::Call { connection, call })
    }

    fn hello(&mut self, connection: u64, engine: u128) -> Result<Reply, Refusal> {
        let hello = Hello {
            oldest: 1,
            newest: 9,
            volume: VolumeId::from_u128(1),
            replica: ReplicaId::from_u128(2),
            engine: EngineId::from_u128(engine),
        };
        result(&self.call(connection, 0, 0, Request::Hello(hello)))
    }

    fn ask_open(&mut self, connection: u64, generation: u64, mode: Mode) -> Vec<SessionAction> {
        let engine = EngineId::from_u128(u128::from(generation));
        self.call(connection, 1, generation, Request::Open(Open { engine, mode }))
    }

    /// Opens a session all the way.
    fn open(&mut self, connection: u64, generation: u64) {
        self.hello(connection, u128::from(generation)).unwrap();
        let asked = self.ask_open(connection, generation, Mode::Write);
        let described = self.done(disk_id(&asked));
        let answered = self.describe(disk_id(&described));
        assert!(matches!(result(&answered), Ok(Reply::Opened(_))));
    }

    fn done(&mut self, id: u64) -> Vec<SessionAction> {
        self.on(SessionEvent::Disk { id, result: Ok(DiskReply::Done) })
    }

    fn describe(&mut self, id: u64) -> Vec<SessionAction> {
        let description = Description {
            promised: self.session.promised(),
            epoch: Epoch(1),
            marks: None,
            witnessed: Witnessed::Unknown,
            size: 1 << 30,
            region: REGION,
            lost_writes: false,
            dirty: vec![],
            snapshots: vec![],
            head_parent: None,
        };
        let result = Ok(DiskReply::Description(Box::new(description)));
        self.on(SessionEvent::Disk { id, result })
    }
}

fn write(offset: u64) -> Request {
    let data = Bytes::from(vec![7; 4096]);
    let crcs = Crcs::of(&data);
    Request::Write { offset, data, crcs, fua: false }
}

/// The only answer among the actions.
fn result(actions: &[SessionAction]) -> Result<Reply, Refusal> {
    let answers: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            SessionAction::Answer { answer, .. } => Some(answer.result.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(answers.len(), 1, "{actions:?}");
    answers[0].clone()
}

/// The only request to the disk among the actions.
fn disk_id(actions: &[SessionAction]) -> u64 {
    let ids: Vec<u64> = actions
        .iter()
        .filter_map(|action| match action {
            SessionAction::Disk { id, .. } => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 1, "{actions:?}");
    ids[0]
}

#[test]
fn strangers_are_turned_away() {
    let mut bench = Bench::new(0);
    assert_eq!(bench.call(1, 1, 1, write(0)), [SessionAction::Drop { connection: 1 }]);
    let mut hello = Hello {
        oldest: 7,
        newest: 9,
        volume: VolumeId::from_u128(1),
        replica: ReplicaId::from_u128(2),
        engine: EngineId::from_u128(1),
    };
    let answer = bench.call(1, 1, 0, Request::Hello(hello.clone()));
    assert_eq!(result(&answer), Err(Refusal::Version));
    hello.oldest = 1;
    hello.volume = VolumeId::from_u128(9);
    let answer = bench.call(1, 1, 0, Request::Hello(hello));
    assert_eq!(result(&answer), Err(Refusal::WrongReplica));
}

#[test]
fn an_older_generation_is_refused_and_a_call_before_opening_too() {
    let mut bench = Bench::new(5);
    bench.hello(1, 4).unwrap();
    assert_eq!(result(&bench.ask_open(1, 4, Mode::Write)), Err(Refusal::Fenced));
    assert_eq!(result(&bench.call(1, 2, 5, write(0))), Err(Refusal::NotOpen));
    bench.open(2, 6);
    assert_eq!(result(&bench.call(2, 2, 5, write(0))), Err(Refusal::Fenced));
}

#[test]
fn a_promise_waits_for_the_writes_of_the_old_engine_and_fences_it_at_once() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    let under_way = disk_id(&bench.call(1, 10, 1, write(0)));
    bench.hello(2, 2).unwrap();
    let asked = bench.ask_open(2, 2, Mode::Write);
    assert_eq!(asked, [SessionAction::Drop { connection: 1 }], "nothing is promised yet");
    bench.hello(3, 1).unwrap();
    assert_eq!(result(&bench.ask_open(3, 1, Mode::Resume)), Err(Refusal::Fenced));
    let promised = bench.done(under_way);
    assert!(
        matches!(
            promised[..],
            [SessionAction::Disk {
                request: DiskRequest::Promise { generation: Generation(2) },
                ..
            }]
        ),
        "{promised:?}"
    );
}

#[test]
fn a_newer_open_overtakes_one_that_is_not_finished() {
    let mut bench = Bench::new(0);
    bench.hello(1, 1).unwrap();
    let first = disk_id(&bench.ask_open(1, 1, Mode::Write));
    bench.hello(2, 2).unwrap();
    bench.ask_open(2, 2, Mode::Write);
    let second = disk_id(&bench.done(first));
    let described = disk_id(&bench.done(second));
    let answered = bench.describe(described);
    assert!(matches!(answered[..], [SessionAction::Answer { connection: 2, .. }]), "{answered:?}");
}

#[test]
fn a_call_that_is_sent_again_joins_the_one_under_way() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    let under_way = disk_id(&bench.call(1, 10, 1, write(0)));
    bench.on(SessionEvent::Closed { connection: 1 });
    bench.hello(2, 1).unwrap();
    let described = disk_id(&bench.ask_open(2, 1, Mode::Resume));
    bench.describe(described);
    assert_eq!(bench.call(2, 10, 1, write(0)), [], "it must not be carried out twice");
    let answered = bench.done(under_way);
    assert!(matches!(answered[..], [SessionAction::Answer { connection: 2, .. }]), "{answered:?}");
}

#[test]
fn calls_of_engines_that_count_alike_are_not_taken_for_each_other() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    for (connection, engine) in [(2, 8), (3, 9)] {
        bench.hello(connection, engine).unwrap();
        let described = disk_id(&bench.ask_open(connection, 1, Mode::ReadOnly));
        bench.describe(described);
    }
    let read = Request::Read { view: None, offset: 0, length: 4096 };
    disk_id(&bench.call(2, 10, 1, read.clone()));
    bench.on(SessionEvent::Closed { connection: 2 });
    let written = disk_id(&bench.call(1, 10, 1, write(0)));
    disk_id(&bench.call(3, 10, 1, read));
    let answered = bench.done(written);
    assert!(matches!(answered[..], [SessionAction::Answer { connection: 1, .. }]), "{answered:?}");
}

#[test]
fn a_fresh_open_of_the_same_engine_drains_too() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    let under_way = disk_id(&bench.call(1, 10, 1, write(0)));
    bench.on(SessionEvent::Closed { connection: 1 });
    bench.hello(2, 1).unwrap();
    assert_eq!(bench.ask_open(2, 1, Mode::Write), [SessionAction::Drop { connection: 1 }]);
    let promised = bench.done(under_way);
    assert!(matches!(promised[..], [SessionAction::Disk { .. }]), "{promised:?}");
}

#[test]
fn a_region_leaves_the_log_unless_something_was_written_to_it_since() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    for (id, offset) in [(10, 0), (11, REGION)] {
        let disk = disk_id(&bench.call(1, id, 1, write(offset)));
        bench.done(disk);
    }
    let flush = Request::Flush { settle: vec![0, 1], number: 3, complete: 2 };
    let flush = disk_id(&bench.call(1, 12, 1, flush));
    bench.call(1, 13, 1, write(0));
    let settled = bench.done(flush);
    let expected = DiskRequest::Settle { regions: vec![1] };
    assert!(
        matches!(&settled[..], [SessionAction::Disk { request, .. }] if *request == expected),
        "{settled:?}"
    );
    let answered = bench.done(disk_id(&settled));
    assert_eq!(result(&answered), Ok(Reply::Done));
}

#[test]
fn damaged_data_ends_the_connection() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    let crcs = Crcs::of(&[1; 4096]);
    let request = Request::Write { offset: 0, data: Bytes::from(vec![2; 4096]), crcs, fua: false };
    assert_eq!(bench.call(1, 10, 1, request), [SessionAction::Drop { connection: 1 }]);
}

#[test]
fn a_reader_reads_and_nothing_else_until_a_newer_generation() {
    let mut bench = Bench::new(0);
    bench.open(1, 1);
    bench.hello(2, 1).unwrap();
    let described = disk_id(&bench.ask_open(2, 1, Mode::ReadOnly));
    assert!(result(&bench.describe(described)).is_ok());
    let read = Request::Read { view: None, offset: 0, length: 4096 };
    disk_id(&bench.call(2, 5, 1, read.clone()));
    assert_eq!(result(&bench.call(2, 6, 1, write(0))), Err(Refusal::ReadOnly));
    disk_id(&bench.call(1, 7, 1, write(0)));
    bench.hello(3, 2).unwrap();
    bench.ask_open(3, 2, Mode::Write);
    assert_eq!(result(&bench.call(2, 8, 1, read)), Err(Refusal::Fenced));
}
