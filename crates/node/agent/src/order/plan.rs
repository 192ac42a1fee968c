//! The order in which machines return. Pure: times are counted from the start of the host, which
//! is the only clock that neither jumps nor begins anew with a process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::Vmi;

const ORDER: &str = "sheaf.io/start-order";
const DELAY: &str = "sheaf.io/start-delay";
/// Machines without a number.
const LAST: u32 = u32::MAX;
/// After this, no machine waits any longer.
pub(super) const START_HOLD_TIMEOUT: Duration = Duration::from_secs(300);

/// A machine that is to come back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Expected {
    namespace: String,
    name: String,
    order: u32,
    delay: Duration,
    started: Option<Duration>,
}

/// Why a machine must not start yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartHold {
    /// `namespace/name` of the machine that comes first.
    pub(crate) before: String,
    pub(crate) until: Duration,
}

/// Machines on their way back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StartQueue {
    expected: Vec<Expected>,
    until: Duration,
}

impl StartQueue {
    /// `lost` were on the node when the host went down. Those that had not come back from
    /// an `earlier` time are still on their way, also if nothing but their machine is left.
    pub(super) fn new<'a>(
        lost: impl Iterator<Item = &'a Vmi>,
        earlier: Option<Self>,
        now: Duration,
    ) -> Self {
        // An instance without a VirtualMachine does not return.
        let lost = lost.filter(|vmi| vmi.machine.is_some());
        let mut expected: Vec<Expected> = lost.map(Expected::of).collect();
        let earlier = earlier.into_iter().flat_map(|earlier| earlier.expected);
        for late in earlier.filter(|each| each.started.is_none()) {
            if !expected.iter().any(|each| each.is(&late.namespace, &late.name)) {
                expected.push(late);
            }
        }
        Self { expected, until: now + START_HOLD_TIMEOUT }
    }

    /// Whether no machine has to wait any longer.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        let is_done =
            |each: &Expected| each.started.is_some_and(|started| started + each.delay <= now);
        now >= self.until || self.expected.iter().all(is_done)
    }

    /// Whether `vmi` has to wait, and for whom the longest.
    pub(super) fn hold(&self, vmi: &Vmi, now: Duration) -> Option<StartHold> {
        if self.is_over(now) {
            return None;
        }
        let order = order(vmi);
        let earlier = self.expected.iter().filter(|each| each.order < order);
        let holds = earlier.map(|each| StartHold {
            before: format!("{}/{}", each.namespace, each.name),
            until: each.started.map_or(self.until, |started| started + each.delay),
        });
        holds.filter(|hold| hold.until > now).max_by_key(|hold| hold.until)
    }

    /// A machine runs; answers whether that is news.
    pub(super) fn started(&mut self, vmi: &Vmi, now: Duration) -> bool {
        let found = self.expected.iter_mut().find(|each| each.is(&vmi.namespace, &vmi.name));
        let Some(found) = found.filter(|found| found.started.is_none()) else { return false };
        found.started = Some(now);
        true
    }
}

impl Expected {
    fn of(vmi: &Vmi) -> Self {
        let delay = vmi
            .annotations
            .get(DELAY)
            .and_then(|text| text.trim_end_matches('s').parse::<u64>().ok());
        Self {
            namespace: vmi.namespace.clone(),
            name: vmi.name.clone(),
            order: order(vmi),
            delay: Duration::from_secs(delay.unwrap_or(0)),
            started: None,
        }
    }

    fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }
}

fn order(vmi: &Vmi) -> u32 {
    vmi.annotations.get(ORDER).and_then(|text| text.parse().ok()).unwrap_or(LAST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    const NOW: Duration = Duration::from_secs(50);

    fn named(name: &str, order: Option<u32>, delay: u64) -> Vmi {
        let mut vmi = vmi(json!({"domain": {}}));
        vmi.name = name.into();
        vmi.machine = Some(name.into());
        vmi.annotations.insert(DELAY.into(), delay.to_string());
        if let Some(order) = order {
            vmi.annotations.insert(ORDER.into(), order.to_string());
        }
        vmi
    }

    fn held(returning: &StartQueue, vmi: &Vmi, now: Duration) -> Option<String> {
        returning.hold(vmi, now).map(|hold| hold.before)
    }

    #[test]
    fn machines_come_back_one_number_after_the_other() {
        let (db, web, any) =
            (named("db", Some(1), 30), named("web", Some(2), 0), named("x", None, 0));
        let mut returning = StartQueue::new([&any, &web, &db].into_iter(), None, NOW);
        assert_eq!(held(&returning, &db, NOW), None);
        assert_eq!(held(&returning, &web, NOW).as_deref(), Some("ns/db"));
        assert!(returning.started(&db, NOW));
        assert!(!returning.started(&db, NOW + START_HOLD_TIMEOUT / 2), "it is known");
        assert_eq!(held(&returning, &web, NOW).as_deref(), Some("ns/db"));
        let later = NOW + Duration::from_secs(30);
        assert_eq!(held(&returning, &web, later), None);
        assert_eq!(held(&returning, &any, later).as_deref(), Some("ns/web"));
        returning.started(&web, later);
        assert_eq!(held(&returning, &any, later), None);
        assert!(!returning.is_over(later));
        returning.started(&any, later);
        assert!(returning.is_over(later));
    }

    #[test]
    fn one_that_stays_away_does_not_hold_the_others_for_ever() {
        let returning = StartQueue::new([&named("db", Some(1), 0)].into_iter(), None, NOW);
        let web = named("web", Some(2), 0);
        assert_eq!(returning.hold(&web, NOW).unwrap().until, NOW + START_HOLD_TIMEOUT);
        assert_eq!(held(&returning, &web, NOW + START_HOLD_TIMEOUT), None);
        assert!(returning.is_over(NOW + START_HOLD_TIMEOUT));
    }

    #[test]
    fn a_second_power_cut_forgets_no_machine() {
        let (db, web, any) =
            (named("db", Some(1), 0), named("web", Some(2), 0), named("x", None, 0));
        let mut first = StartQueue::new([&any, &web, &db].into_iter(), None, NOW);
        first.started(&db, NOW);
        // The instance of one was gone already, and its machine had no new one yet.
        let second = StartQueue::new([&any, &db].into_iter(), Some(first), NOW);
        assert_eq!(held(&second, &web, NOW).as_deref(), Some("ns/db"));
        assert_eq!(held(&second, &any, NOW).as_deref(), Some("ns/web"));
    }

    #[test]
    fn an_instance_without_a_machine_is_not_waited_for() {
        let mut alone = named("alone", Some(1), 0);
        alone.machine = None;
        assert!(StartQueue::new([&alone].into_iter(), None, NOW).is_over(NOW));
    }
}
