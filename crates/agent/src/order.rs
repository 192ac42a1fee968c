//! The order in which machines come back after the host lost power.
//!
//! `sheaf.io/start-order` on a machine's template is a number; lower ones start first, and
//! machines without one start last, all together. `sheaf.io/start-delay` (seconds) is how long
//! the next number waits after this machine has started. The order holds only for machines
//! that ran when the host went down, and for a bounded time: one that does not come back must
//! not keep the others down for ever.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bell::Bell;
use crate::vmi::Vmi;

const ORDER: &str = "sheaf.io/start-order";
const DELAY: &str = "sheaf.io/start-delay";
/// Machines without a number.
const LAST: u32 = u32::MAX;
/// After this, nobody waits any more.
const PATIENCE: Duration = Duration::from_secs(300);

/// A machine that is to come back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    namespace: String,
    name: String,
    order: u32,
    delay: Duration,
    started: Option<Instant>,
}

/// Why a machine must not start yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    /// `namespace/name` of the machine that comes first.
    pub(crate) before: String,
    pub(crate) until: Instant,
}

#[derive(Debug)]
pub(crate) struct Order {
    state: Mutex<State>,
    /// Rung when somebody who waits may go on.
    bell: Bell,
}

#[derive(Debug)]
enum State {
    /// The host did not go down, or everybody is back.
    Free,
    /// It went down; which machines ran will be known with the first list.
    Unlisted,
    Returning {
        expected: Vec<Expected>,
        until: Instant,
    },
}

impl Order {
    /// `rebooted` says whether the host went down since machines last ran.
    pub(crate) fn new(rebooted: bool, bell: Bell) -> Self {
        let state = if rebooted { State::Unlisted } else { State::Free };
        Self { state: Mutex::new(state), bell }
    }

    /// The machines that ran when the host went down.
    pub(crate) fn expect<'a>(&self, lost: impl Iterator<Item = &'a Vmi>, now: Instant) {
        let mut state = self.state.lock();
        if let State::Unlisted = *state {
            // What no machine stands behind does not come back.
            let expected = lost.filter(|vmi| vmi.machine.is_some()).map(Expected::of).collect();
            *state = State::Returning { expected, until: now + PATIENCE };
            self.bell.ring();
        }
    }

    /// Whether `vmi` has to wait.
    pub(crate) fn hold(&self, vmi: &Vmi, now: Instant) -> Option<Hold> {
        let mut state = self.state.lock();
        match &*state {
            State::Free => None,
            State::Unlisted => {
                let until = now + PATIENCE;
                Some(Hold { before: "the list of machines".into(), until })
            }
            State::Returning { until, .. } if now >= *until => {
                *state = State::Free;
                None
            }
            State::Returning { expected, until } => hold(expected, order(vmi), now, *until),
        }
    }

    /// A machine runs.
    pub(crate) fn started(&self, vmi: &Vmi, now: Instant) {
        let mut state = self.state.lock();
        if let State::Returning { expected, .. } = &mut *state {
            let found = expected
                .iter_mut()
                .find(|each| each.namespace == vmi.namespace && each.name == vmi.name);
            if let Some(found) = found {
                found.started.get_or_insert(now);
                self.bell.ring();
            }
        }
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
}

fn order(vmi: &Vmi) -> u32 {
    vmi.annotations.get(ORDER).and_then(|text| text.parse().ok()).unwrap_or(LAST)
}

fn hold(expected: &[Expected], order: u32, now: Instant, until: Instant) -> Option<Hold> {
    let earlier = expected.iter().filter(|each| each.order < order);
    let mut holds: Vec<Hold> = earlier
        .filter_map(|each| {
            let until = match each.started {
                Some(started) => started + each.delay,
                None => until,
            };
            let before = format!("{}/{}", each.namespace, each.name);
            (each.started.is_none() || until > now).then_some(Hold { before, until })
        })
        .collect();
    holds.sort_by_key(|hold| hold.until);
    holds.pop()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vmi::fixture::vmi;

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

    fn held(order: &Order, vmi: &Vmi, now: Instant) -> Option<String> {
        order.hold(vmi, now).map(|hold| hold.before)
    }

    #[tokio::test]
    async fn machines_come_back_one_number_after_the_other() {
        let now = Instant::now();
        let (db, web, any) =
            (named("db", Some(1), 30), named("web", Some(2), 0), named("x", None, 0));
        let order = Order::new(true, Bell::default());
        assert!(held(&order, &db, now).is_some(), "the list is not known yet");
        order.expect([&any, &web, &db].into_iter(), now);
        assert_eq!(held(&order, &db, now), None);
        assert_eq!(held(&order, &web, now).as_deref(), Some("ns/db"));
        order.started(&db, now);
        assert_eq!(held(&order, &web, now).as_deref(), Some("ns/db"));
        let later = now + Duration::from_secs(30);
        assert_eq!(held(&order, &web, later), None);
        assert_eq!(held(&order, &any, later).as_deref(), Some("ns/web"));
        order.started(&web, later);
        assert_eq!(held(&order, &any, later), None);
    }

    #[tokio::test]
    async fn one_that_stays_away_does_not_hold_the_others_for_ever() {
        let now = Instant::now();
        let order = Order::new(true, Bell::default());
        order.expect([&named("db", Some(1), 0)].into_iter(), now);
        let web = named("web", Some(2), 0);
        assert!(held(&order, &web, now).is_some());
        assert_eq!(held(&order, &web, now + PATIENCE), None);
    }

    #[tokio::test]
    async fn without_a_power_cut_nobody_waits() {
        let order = Order::new(false, Bell::default());
        let now = Instant::now();
        order.expect([&named("db", Some(1), 0)].into_iter(), now);
        assert_eq!(held(&order, &named("web", Some(2), 0), now), None);
    }
}
