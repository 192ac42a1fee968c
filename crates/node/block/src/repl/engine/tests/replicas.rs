//! Replicas that are old, that refuse, or that are never reached.

use super::*;

impl Bench {
    /// Takes the volume with two replicas, of which the record names the first only.
    fn activate_with_an_outsider(&mut self) {
        self.record.record.isr = [replica(1)].into();
        let replicas = vec![replica(1), replica(2)];
        self.on(Event::Command(Command::Activate { replicas, local: None }));
    }

    fn is_active(&self) -> bool {
        self.notices.iter().any(|notice| matches!(notice, Notice::Active { .. }))
    }

    fn stale(&self) -> Vec<ReplicaId> {
        let stale = self.notices.iter().filter_map(|notice| match notice {
            Notice::StaleReplica { replica, .. } => Some(*replica),
            _ => None,
        });
        stale.collect()
    }

    fn rebuilds(&self) -> Vec<RebuildKind> {
        let started = self.notices.iter().filter_map(|notice| match notice {
            Notice::RebuildStarted { how, .. } => Some(*how),
            _ => None,
        });
        started.collect()
    }
}

#[test]
fn a_replica_outside_of_the_set_that_knows_a_newer_one_proves_the_record_old() {
    let mut bench = Bench::new(2);
    bench.claims.insert(replica(2), (Epoch(4), Witnessed::Unknown));
    bench.activate_with_an_outsider();
    bench.pass(Duration::from_secs(10));
    let faulted = |notice: &Notice| matches!(notice, Notice::Faulted { why: Fault::Stale(_) });
    assert!(bench.notices.iter().any(faulted), "{:?}", bench.notices);
    assert!(!bench.is_active());
    assert_eq!(bench.stale(), [replica(1)]);
}

#[test]
fn a_replica_outside_of_the_set_that_does_not_answer_does_not_hold_up_the_volume() {
    let mut bench = Bench::new(2);
    bench.silent.insert(replica(2));
    bench.activate_with_an_outsider();
    bench.pass(Duration::from_secs(2));
    assert!(bench.is_active(), "{:?}", bench.notices);
}

#[test]
fn a_record_that_is_known_to_be_old_waits_for_every_replica_and_says_so() {
    let mut bench = Bench::new(2);
    bench.claims.insert(replica(1), (Epoch(3), Witnessed::Unknown));
    bench.silent.insert(replica(2));
    bench.activate_with_an_outsider();
    bench.pass(Duration::from_secs(10));
    assert!(!bench.is_active(), "{:?}", bench.notices);
    let expected = Notice::RecordRestored { missing: vec![replica(2)] };
    assert!(bench.notices.contains(&expected), "{:?}", bench.notices);
    let waiting = bench.engine.status().waiting.unwrap();
    assert!(waiting.contains("older copy") && waiting.contains("salvage"), "{waiting}");
    bench.silent.clear();
    bench.claims.insert(replica(2), (Epoch(2), Witnessed::Unknown));
    bench.pass(Duration::from_secs(10));
    assert!(bench.is_active(), "{:?}", bench.notices);
    assert_eq!(bench.engine.status().waiting, None);
    assert!(bench.record.record.epoch > Epoch(3), "the record is not old any more");
}

#[test]
fn a_standby_engine_does_not_read_a_replica_that_was_rolled_back() {
    let mut bench = Bench::new(2);
    bench.record.record = bench.record.record.claimed(EngineId::from_u128(9));
    bench.claims.insert(replica(1), (Epoch(1), Witnessed::RolledBack));
    let replicas = bench.replicas();
    bench.on(Event::Command(Command::Standby { replicas, local: None }));
    for id in 1..5 {
        bench.read(id);
        bench.pass(Duration::from_secs(1));
        assert!(bench.is_answered(id));
    }
    let reads = bench.calls.iter().filter(|(_, call)| matches!(call, Request::Read { .. }));
    let asked: BTreeSet<ReplicaId> = reads.map(|(replica, _)| *replica).collect();
    assert_eq!(asked, [replica(2)].into());
    assert_eq!(bench.stale(), [replica(1)]);
}

#[test]
fn a_replica_that_keeps_refusing_gets_a_full_copy_and_its_reason_is_reported() {
    let mut bench = Bench::new(2);
    bench.refusing.insert(replica(2));
    bench.activate_with_an_outsider();
    bench.pass(Duration::from_secs(60));
    let rebuilds = bench.rebuilds();
    assert!(rebuilds.len() > 3, "{:?}", bench.notices);
    assert!(!rebuilds[..2].contains(&RebuildKind::Full), "{rebuilds:?}");
    assert!(rebuilds[2..].iter().all(|how| *how == RebuildKind::Full), "{rebuilds:?}");
    assert!(rebuilds.len() < 12, "without a pause: {}", rebuilds.len());
    let faults = bench.engine.status().rebuild_faults;
    assert!(
        matches!(faults[..], [(id, MemberFault::Refused(_))] if id == replica(2)),
        "{faults:?}"
    );
}

#[test]
fn a_silent_member_is_not_waited_for_longer_because_others_are_slow() {
    for slow in [Duration::from_millis(1), Duration::from_millis(400), Duration::from_secs(2)] {
        let mut bench = Bench::new(3);
        bench.activate();
        bench.pass(Duration::from_secs(1));
        assert!(bench.is_active());
        (0..3).for_each(|slot| bench.engine.members[slot].latency.add(slow));
        bench.silent.insert(replica(3));
        let request = GuestRequest::Write { offset: 0, data: vec![1; 4096].into(), fua: false };
        bench.on(Event::Guest { id: 7, request });
        bench.pass(Duration::from_millis(1900));
        assert!(bench.is_answered(7), "others take {slow:?}: {:?}", bench.notices);
    }
}
