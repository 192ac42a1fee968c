//! Time and handover: cases that the simulator reaches too rarely to rely on.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::ids::{BootId, EngineId, Epoch, InstanceId, VolumeId};
use crate::repl::control::{Record, Version, Versioned};
use crate::wire::{Answer, Crcs, HelloReply, Opened, Pong, Refusal, Reply, Request, Witnessed};

mod replicas;
mod scrub;

const SIZE: u64 = 1 << 20;

/// An engine whose replicas answer at once, except those that are silent.
struct Bench {
    engine: Engine,
    now: Time,
    record: Versioned,
    silent: BTreeSet<ReplicaId>,
    /// The control plane does not answer.
    is_cut_off: bool,
    replies: Vec<(GuestId, GuestResult)>,
    notices: Vec<Notice>,
    /// Calls other than heartbeats.
    calls: Vec<(ReplicaId, Request)>,
    /// Reports of replicas when they are opened, where they differ from the usual ones.
    claims: BTreeMap<ReplicaId, (Epoch, Witnessed)>,
    /// Replicas that refuse to be read and compared.
    refusing: BTreeSet<ReplicaId>,
    /// Replicas that stop when they verify their metadata, and the report of the others.
    stopping: BTreeSet<ReplicaId>,
    metadata: crate::wire::MetadataReport,
    /// The version of the protocol that replicas speak.
    version: u16,
}

fn replica(n: u128) -> ReplicaId {
    ReplicaId::from_u128(n)
}

impl Bench {
    fn new(replicas: u128) -> Self {
        let config = Config::new(VolumeId::from_u128(1), EngineId::from_u128(1), "here");
        let record = Record::new((1..=replicas).map(replica));
        Self {
            engine: Engine::new(config),
            now: Time::ZERO,
            record: Versioned { version: Version(1), record },
            silent: BTreeSet::new(),
            is_cut_off: false,
            replies: Vec::new(),
            notices: Vec::new(),
            calls: Vec::new(),
            claims: BTreeMap::new(),
            refusing: BTreeSet::new(),
            stopping: BTreeSet::new(),
            metadata: crate::wire::MetadataReport::default(),
            version: 1,
        }
    }

    fn replicas(&self) -> Vec<ReplicaId> {
        self.record.record.isr.iter().copied().collect()
    }

    fn on(&mut self, event: Event) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut out = Vec::new();
            self.engine.on(self.now, event, &mut out);
            events.extend(out.into_iter().filter_map(|action| self.perform(action)));
        }
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Connect { replica, connection } => (!self.silent.contains(&replica))
                .then_some(Event::Connected { replica, connection }),
            Action::Send { replica, connection, call } => {
                if call.request != Request::Ping {
                    self.calls.push((replica, call.request.clone()));
                }
                let mut reply = reply(&call.request);
                if let Reply::Hello(hello) = &mut reply {
                    hello.version = self.version;
                    // A replica outside of the set has promised an earlier generation.
                    let is_outside = self.engine.status().phase != "active"
                        && !self.record.record.isr.contains(&replica);
                    let earlier = Generation(call.generation.0.saturating_sub(1));
                    hello.promised = if is_outside { earlier } else { call.generation };
                }
                if let (Reply::Opened(opened), Some(claim)) =
                    (&mut reply, self.claims.get(&replica))
                {
                    (opened.epoch, opened.witnessed) = *claim;
                }
                let maps = matches!(call.request, Request::ReadMap { .. });
                let verifies = matches!(call.request, Request::ScrubMetadata { .. });
                if verifies {
                    reply = Reply::Metadata(self.metadata.clone());
                }
                let refuses = (maps && self.refusing.contains(&replica))
                    || (verifies && self.stopping.contains(&replica));
                let result = match refuses {
                    true => Err(Refusal::Io),
                    false => Ok(reply),
                };
                let answer = Answer { id: call.id, generation: call.generation, result };
                (!self.silent.contains(&replica)).then_some(Event::Answer {
                    replica,
                    connection,
                    answer,
                })
            }
            Action::ReadRecord | Action::Swap { .. } if self.is_cut_off => {
                Some(Event::Control(ControlAnswer::Unavailable))
            }
            Action::ReadRecord => Some(Event::Control(ControlAnswer::Read(self.record.clone()))),
            Action::Swap { expect, record } => {
                assert_eq!(expect, self.record.version);
                let version = Version(expect.0 + 1);
                self.record = Versioned { version, record };
                Some(Event::Control(ControlAnswer::Swapped(version)))
            }
            Action::Reply { id, result } => {
                self.replies.push((id, result));
                None
            }
            Action::Notice(notice) => {
                self.notices.push(notice);
                None
            }
            Action::Disconnect { .. } => None,
        }
    }

    /// Lets time pass, waking the engine when it wants to be.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.engine.deadline() < end {
            self.now = self.engine.deadline();
            self.on(Event::Timer);
        }
        self.now = end;
    }

    fn activate(&mut self) {
        let replicas = self.replicas();
        self.on(Event::Command(Command::Activate { replicas, local: None }));
    }

    fn read(&mut self, id: GuestId) {
        self.on(Event::Guest { id, request: GuestRequest::Read { offset: 0, length: 4096 } });
    }

    fn is_answered(&self, id: GuestId) -> bool {
        self.replies.iter().any(|(answered, _)| *answered == id)
    }
}

fn reply(request: &Request) -> Reply {
    match request {
        Request::Hello(_) => Reply::Hello(HelloReply {
            version: 1,
            instance: InstanceId::from_u128(1),
            boot: BootId::from_u128(1),
            promised: Generation(0),
        }),
        Request::Open(_) => Reply::Opened(Box::new(Opened {
            instance: InstanceId::from_u128(1),
            boot: BootId::from_u128(1),
            epoch: Epoch(1),
            marks: None,
            witnessed: Witnessed::Unknown,
            size: SIZE,
            region: 4 << 20,
            lost_writes: false,
            dirty: vec![],
            snapshots: vec![],
            head_parent: None,
        })),
        Request::Read { length, .. } => {
            let data = bytes::Bytes::from(vec![0; *length as usize]);
            let crcs = Crcs::of(&data);
            Reply::Data { data, crcs }
        }
        Request::Ping => Reply::Pong(Pong::default()),
        Request::Dirty => Reply::Dirty(vec![]),
        _ => Reply::Done,
    }
}

#[test]
fn reads_stop_when_a_member_has_been_silent_for_a_lease() {
    let mut bench = Bench::new(2);
    bench.engine.config.suspect_after = Duration::from_secs(60);
    bench.activate();
    bench.read(1);
    assert!(bench.is_answered(1));
    bench.silent.insert(replica(1));
    bench.pass(Duration::from_millis(2600));
    bench.read(2);
    assert!(!bench.is_answered(2), "another engine may have been promised the volume");
    // It leaves the in-sync set, and what is left may be read.
    bench.pass(Duration::from_secs(12));
    assert_eq!(bench.record.record.isr, BTreeSet::from([replica(2)]));
    assert!(bench.is_answered(2));
}

#[test]
fn a_member_that_is_silent_while_others_answer_leaves_soon() {
    let mut bench = Bench::new(3);
    bench.activate();
    bench.silent.insert(replica(1));
    bench.pass(Duration::from_millis(2000));
    assert_eq!(bench.record.record.isr, BTreeSet::from([replica(2), replica(3)]));
    bench.read(1);
    assert!(bench.is_answered(1));
}

#[test]
fn a_guest_must_stand_still_when_its_volume_may_have_been_taken_over() {
    let proof = |is_fresh: bool| Notice::Proof { is_fresh };
    // Members that answer prove it, also to an idle guest; a volume of this node alone needs none.
    for replicas in [1, 2] {
        let mut bench = Bench::new(replicas);
        let all = bench.replicas();
        bench.on(Event::Command(Command::Activate { replicas: all, local: Some(replica(1)) }));
        bench.pass(Duration::from_secs(60));
        assert!(!bench.engine.status().unproven, "{:?}", bench.notices);
    }
    // One is silent, and the record can be changed: it is left out, and the guest runs on.
    let mut bench = Bench::new(2);
    bench.activate();
    bench.silent.insert(replica(2));
    bench.pass(Duration::from_secs(20));
    assert!(!bench.notices.contains(&proof(false)), "{:?}", bench.notices);
    // No member can say that it was left out: another engine may have it.
    let mut bench = Bench::new(2);
    bench.activate();
    bench.silent.insert(replica(2));
    bench.is_cut_off = true;
    bench.pass(Duration::from_millis(4800));
    assert!(!bench.engine.status().unproven);
    bench.pass(Duration::from_millis(1200));
    assert!(bench.engine.status().unproven);
    assert!(bench.notices.contains(&proof(false)), "{:?}", bench.notices);
    bench.silent.clear();
    bench.is_cut_off = false;
    bench.pass(Duration::from_secs(20));
    assert!(!bench.engine.status().unproven);
    assert!(bench.notices.contains(&proof(true)), "{:?}", bench.notices);
}

#[test]
fn an_engine_that_cannot_reach_everybody_waits_for_the_lease_of_an_older_one() {
    let mut bench = Bench::new(2);
    bench.silent.insert(replica(1));
    bench.activate();
    bench.read(1);
    bench.pass(Duration::from_millis(3100));
    assert_eq!(bench.record.record.isr, BTreeSet::from([replica(2)]));
    assert!(!bench.is_answered(1), "an older engine may still read from the other one");
    bench.pass(Duration::from_millis(2300));
    assert!(bench.is_answered(1));
}

#[test]
fn an_engine_that_reaches_everybody_does_not_wait() {
    let mut bench = Bench::new(3);
    bench.activate();
    assert!(bench.engine.is_active());
}

#[test]
fn a_standby_engine_reads_without_a_promise_and_takes_over_on_the_first_write() {
    let mut bench = Bench::new(2);
    let replicas = bench.replicas();
    bench.on(Event::Command(Command::Standby { replicas, local: None }));
    bench.read(1);
    bench.on(Event::Guest { id: 2, request: GuestRequest::Flush });
    assert!(bench.is_answered(1) && bench.is_answered(2));
    let readonly = |request: &Request| matches!(request, Request::Open(open) if open.mode == crate::wire::Mode::ReadOnly);
    assert!(
        bench
            .calls
            .iter()
            .all(|(_, request)| { !matches!(request, Request::Open(_)) || readonly(request) })
    );
    assert_eq!(bench.record.record.generation, Generation(0));
    let data = bytes::Bytes::from(vec![1; 4096]);
    let request = GuestRequest::Write { offset: 0, data, fua: false };
    bench.on(Event::Guest { id: 3, request });
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.record.record.generation, Generation(1));
    assert!(bench.is_answered(3) && bench.engine.is_active());
}

#[test]
fn a_volume_that_is_attached_elsewhere_is_not_taken() {
    let mut bench = Bench::new(1);
    bench.record.record.attached = Some("there".into());
    bench.activate();
    assert_eq!(bench.notices, [Notice::Faulted { why: Fault::NotAllowed }]);
    assert_eq!(bench.record.record.generation, Generation(0));
}

#[test]
fn requests_outside_of_the_volume_are_refused() {
    let mut bench = Bench::new(1);
    bench.activate();
    for (id, offset, length) in
        [(1, SIZE, 4096), (2, 100, 512), (3, 0, 0), (4, u64::MAX - 511, 512)]
    {
        let request = GuestRequest::Read { offset, length };
        bench.on(Event::Guest { id, request });
        assert_eq!(bench.replies.last(), Some(&(id, Err(GuestError::Invalid))), "{offset}");
    }
}

#[test]
fn a_closed_engine_lets_go_of_the_record() {
    let mut bench = Bench::new(2);
    bench.activate();
    bench.on(Event::Command(Command::Close));
    assert!(bench.notices.contains(&Notice::Closed));
    assert_eq!(bench.record.record.engine, None);
    bench.read(9);
    assert_eq!(bench.replies, [(9, Err(GuestError::Shutdown))]);
}
