//! Metadata of members, verified one member after the other.

use super::*;
use crate::store::MetadataFault;
use crate::wire::{MetadataDamage, MetadataReport, VERSIONS};

impl Bench {
    fn scrub(replicas: u128, stopping: &[u128], report: &MetadataReport) -> Self {
        let mut bench = Self::new(replicas);
        bench.version = VERSIONS.1;
        bench.stopping = stopping.iter().copied().map(replica).collect();
        bench.metadata = report.clone();
        bench.activate();
        bench.on(Event::Command(Command::Scrub));
        bench.pass(Duration::from_secs(1));
        bench
    }

    /// The members that were asked, and whether each request says that it is alone.
    fn verified(&self) -> Vec<(ReplicaId, bool)> {
        let asked = self.calls.iter().filter_map(|(replica, request)| match request {
            Request::ScrubMetadata { alone, .. } => Some((*replica, *alone)),
            _ => None,
        });
        asked.collect()
    }
}

#[test]
fn every_member_verifies_and_may_stop_only_while_another_is_in_sync() {
    let all = |replicas: &[u128], alone| -> Vec<(ReplicaId, bool)> {
        replicas.iter().map(|it| (replica(*it), alone)).collect()
    };
    let none = MetadataReport::default();
    assert_eq!(Bench::scrub(3, &[], &none).verified(), all(&[1, 2, 3], false));
    assert_eq!(Bench::scrub(1, &[], &none).verified(), all(&[1], true));
    // A member that stops is no reason for the next to do the same.
    let bench = Bench::scrub(2, &[1], &none);
    assert_eq!(bench.verified(), [(replica(1), false), (replica(2), true)]);
    assert_eq!(bench.record.record.isr, BTreeSet::from([replica(2)]));
    let bench = Bench::scrub(3, &[1, 2, 3], &none);
    let expected = [(replica(1), false), (replica(2), false), (replica(3), true)];
    assert_eq!(bench.verified(), expected);
    assert_eq!(bench.record.record.isr, BTreeSet::from([replica(3)]), "the last one stays");
}

#[test]
fn an_older_member_is_not_asked() {
    let mut bench = Bench::new(2);
    bench.version = VERSIONS.1 - 1;
    bench.activate();
    bench.on(Event::Command(Command::Scrub));
    assert_eq!(bench.verified(), []);
    let maps = |(_, request): &(ReplicaId, Request)| matches!(request, Request::ReadMap { .. });
    assert!(bench.calls.iter().any(maps), "its data is compared at once");
}

#[test]
fn what_a_member_reports_is_in_the_notices() {
    let damage = MetadataDamage { file: "L0.data".into(), fault: MetadataFault::Missing };
    let report = MetadataReport { repaired: 2, lost_pages: 0, left: vec![damage.clone()] };
    let bench = Bench::scrub(1, &[], &report);
    let replica = replica(1);
    let repaired = Notice::MetadataRepaired { replica, repaired: 2, lost_pages: 0 };
    let left = Notice::MetadataDamaged { replica, damage };
    assert!(bench.notices.contains(&repaired), "{:?}", bench.notices);
    assert!(bench.notices.contains(&left), "{:?}", bench.notices);
}
