//! Replicas that are old, that refuse, or that nobody hears of.

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
fn a_replica_that_keeps_refusing_gets_a_full_copy_and_its_reason_is_told() {
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
