//! The order in which machines come back after the host lost power.
//!
//! `sheaf.io/start-order` on a machine's template is a number; lower ones start first, and
//! machines without one start last, all together. `sheaf.io/start-delay` (seconds) is how long
//! the next number waits after this machine has started. The order holds only for machines
//! that were on the node when the host went down, and for a bounded time: one that does not
//! come back must not keep the others down for ever.
//!
//! A file records which machines are awaited and which are back, so that the order survives this
//! process: after a kill it continues where it was.

mod plan;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use base::Chain;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use self::plan::{START_HOLD_TIMEOUT, StartQueue};
use crate::change_notifier::ChangeNotifier;
use crate::machine::Vmi;

pub(crate) use self::plan::StartHold;

#[derive(Debug)]
pub(crate) struct StartOrder {
    path: PathBuf,
    /// Names this life of the host.
    boot: String,
    state: Mutex<OrderState>,
    /// Notified when a waiting machine may start.
    notifier: ChangeNotifier,
}

#[derive(Debug)]
enum OrderState {
    /// The host did not go down, or all machines are back.
    Free,
    /// It went down; which machines were here will be known with the first list. The record of an
    /// earlier boot of the host stays on disk until then.
    Unlisted {
        earlier: Option<StartQueue>,
    },
    Returning(StartQueue),
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct OrderRecord {
    boot: String,
    returning: Option<StartQueue>,
}

impl StartOrder {
    /// Goes on from what `path` says; `boot` names this life of the host.
    pub(crate) fn open(path: PathBuf, boot: String, notifier: ChangeNotifier) -> Self {
        let state = match fs::read_to_string(&path) {
            // The first start of all.
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => OrderState::Free,
            // An order too many costs minutes, one too few may cost data.
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot determine whether the host was rebooted");
                OrderState::Unlisted { earlier: None }
            }
            Ok(text) => match serde_json::from_str::<OrderRecord>(&text) {
                Ok(OrderRecord { boot: last, returning }) if last == boot => {
                    returning.map_or(OrderState::Free, OrderState::Returning)
                }
                Ok(OrderRecord { returning, .. }) => OrderState::Unlisted { earlier: returning },
                Err(_) => OrderState::Unlisted { earlier: None },
            },
        };
        let is_new = matches!(state, OrderState::Free);
        let order = Self { path, boot, state: Mutex::new(state), notifier };
        if is_new {
            order.note(None);
        }
        order
    }

    /// The machines that were on the node when the host went down. Must be called before any of
    /// them is touched.
    pub(crate) fn expect<'a>(&self, lost: impl Iterator<Item = &'a Vmi>, now: Duration) {
        let mut state = self.state.lock();
        if let OrderState::Unlisted { earlier } = &mut *state {
            let returning = StartQueue::new(lost, earlier.take(), now);
            self.note(Some(&returning));
            *state = OrderState::Returning(returning);
            self.notifier.notify();
        }
    }

    /// Whether `vmi` has to wait.
    pub(crate) fn hold(&self, vmi: &Vmi, now: Duration) -> Option<StartHold> {
        let mut state = self.state.lock();
        match &*state {
            OrderState::Free => None,
            OrderState::Unlisted { .. } => {
                let until = now + START_HOLD_TIMEOUT;
                Some(StartHold { before: "the list of machines".into(), until })
            }
            OrderState::Returning(returning) if returning.is_over(now) => {
                *state = OrderState::Free;
                self.note(None);
                None
            }
            OrderState::Returning(returning) => returning.hold(vmi, now),
        }
    }

    /// A machine runs. May be called again and again.
    pub(crate) fn started(&self, vmi: &Vmi, now: Duration) {
        let mut state = self.state.lock();
        if let OrderState::Returning(returning) = &mut *state
            && returning.started(vmi, now)
        {
            self.note(Some(returning));
            self.notifier.notify();
        }
    }

    fn note(&self, returning: Option<&StartQueue>) {
        let record = OrderRecord { boot: self.boot.clone(), returning: returning.cloned() };
        let write = || {
            let text = serde_json::to_vec(&record)?;
            let new = self.path.with_extension("new");
            let mut file = fs::File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        if let Err(failure) = write() {
            warn!(error = %Chain(&failure), "cannot record which machines to restart");
        }
    }
}

/// How long the host has been up.
pub(crate) fn uptime() -> Duration {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The name of this life of the host.
pub(crate) fn boot() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    fn named(name: &str, order: &str) -> Vmi {
        let mut vmi = vmi(json!({"domain": {}}));
        vmi.name = name.into();
        vmi.machine = Some(name.into());
        vmi.annotations.insert("sheaf.io/start-order".into(), order.into());
        vmi
    }

    #[test]
    fn the_order_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot: &str| {
            StartOrder::open(folder.path().join("boot"), boot.to_owned(), ChangeNotifier::default())
        };
        let (db, web, now) = (named("db", "1"), named("web", "2"), Duration::from_secs(9));
        let first = open("one");
        first.expect([&db, &web].into_iter(), now);
        assert_eq!(first.hold(&web, now), None, "nothing was lost");
        // The host goes down. Killed before there was a list, the next process knows it still.
        for _ in 0..2 {
            assert_eq!(open("two").hold(&db, now).unwrap().before, "the list of machines");
        }
        let second = open("two");
        second.expect([&db, &web].into_iter(), now);
        assert_eq!(second.hold(&db, now), None);
        let third = open("two");
        // The current instances give no information about earlier ones.
        third.expect([].into_iter(), now);
        assert_eq!(third.hold(&web, now).unwrap().before, "ns/db");
        third.started(&db, now);
        let fourth = open("two");
        assert_eq!(fourth.hold(&web, now), None);
        fourth.started(&web, now);
        assert_eq!(fourth.hold(&web, now), None, "all are back");
        assert!(matches!(*open("two").state.lock(), OrderState::Free));
    }

    #[test]
    fn an_unreadable_record_counts_as_a_power_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot");
        fs::write(&path, "half a rec").unwrap();
        let order = StartOrder::open(path, "one".into(), ChangeNotifier::default());
        assert!(order.hold(&named("db", "1"), Duration::ZERO).is_some());
    }
}
