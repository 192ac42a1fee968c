//! The order in which machines come back after the host lost power.
//!
//! `sheaf.io/start-order` on a machine's template is a number; lower ones start first, and
//! machines without one start last, all together. `sheaf.io/start-delay` (seconds) is how long
//! the next number waits after this machine has started. The order holds only for machines
//! that were on the node when the host went down, and for a bounded time: one that does not
//! come back must not keep the others down for ever.
//!
//! Who is awaited and who is back lies in a file, so that the order outlives this process: one
//! that is killed on the way goes on where it was.

mod plan;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use base::Chain;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use self::plan::{PATIENCE, Returning};
use crate::bell::Bell;
use crate::vmi::Vmi;

pub(crate) use self::plan::Hold;

#[derive(Debug)]
pub(crate) struct Order {
    path: PathBuf,
    /// Names this life of the host.
    boot: String,
    state: Mutex<State>,
    /// Rung when somebody who waits may go on.
    bell: Bell,
}

#[derive(Debug)]
enum State {
    /// The host did not go down, or everybody is back.
    Free,
    /// It went down; which machines were here will be known with the first list. What was
    /// noted in an earlier life of the host stays on disk until then.
    Unlisted {
        earlier: Option<Returning>,
    },
    Returning(Returning),
}

/// What lies in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    boot: String,
    returning: Option<Returning>,
}

impl Order {
    /// Goes on from what `path` says; `boot` names this life of the host.
    pub(crate) fn open(path: PathBuf, boot: String, bell: Bell) -> Self {
        let state = match fs::read_to_string(&path) {
            // The first start of all.
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => State::Free,
            // An order too many costs minutes, one too few may cost data.
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot tell whether the host went down");
                State::Unlisted { earlier: None }
            }
            Ok(text) => match serde_json::from_str::<Record>(&text) {
                Ok(Record { boot: last, returning }) if last == boot => {
                    returning.map_or(State::Free, State::Returning)
                }
                Ok(Record { returning, .. }) => State::Unlisted { earlier: returning },
                Err(_) => State::Unlisted { earlier: None },
            },
        };
        let is_new = matches!(state, State::Free);
        let order = Self { path, boot, state: Mutex::new(state), bell };
        if is_new {
            order.note(None);
        }
        order
    }

    /// The machines that were on the node when the host went down. Must be told before any of
    /// them is touched.
    pub(crate) fn expect<'a>(&self, lost: impl Iterator<Item = &'a Vmi>, now: Duration) {
        let mut state = self.state.lock();
        if let State::Unlisted { earlier } = &mut *state {
            let returning = Returning::new(lost, earlier.take(), now);
            self.note(Some(&returning));
            *state = State::Returning(returning);
            self.bell.ring();
        }
    }

    /// Whether `vmi` has to wait.
    pub(crate) fn hold(&self, vmi: &Vmi, now: Duration) -> Option<Hold> {
        let mut state = self.state.lock();
        match &*state {
            State::Free => None,
            State::Unlisted { .. } => {
                let until = now + PATIENCE;
                Some(Hold { before: "the list of machines".into(), until })
            }
            State::Returning(returning) if returning.is_over(now) => {
                *state = State::Free;
                self.note(None);
                None
            }
            State::Returning(returning) => returning.hold(vmi, now),
        }
    }

    /// A machine runs. May be told again and again.
    pub(crate) fn started(&self, vmi: &Vmi, now: Duration) {
        let mut state = self.state.lock();
        if let State::Returning(returning) = &mut *state
            && returning.started(vmi, now)
        {
            self.note(Some(returning));
            self.bell.ring();
        }
    }

    fn note(&self, returning: Option<&Returning>) {
        let record = Record { boot: self.boot.clone(), returning: returning.cloned() };
        let write = || {
            let text = serde_json::to_vec(&record)?;
            let new = self.path.with_extension("new");
            let mut file = fs::File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        if let Err(failure) = write() {
            warn!(error = %Chain(&failure), "cannot note which machines are to come back");
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
    use crate::vmi::fixture::vmi;

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
        let open =
            |boot: &str| Order::open(folder.path().join("boot"), boot.to_owned(), Bell::default());
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
        // What the instances are now says nothing of what they were.
        third.expect([].into_iter(), now);
        assert_eq!(third.hold(&web, now).unwrap().before, "ns/db");
        third.started(&db, now);
        let fourth = open("two");
        assert_eq!(fourth.hold(&web, now), None);
        fourth.started(&web, now);
        assert_eq!(fourth.hold(&web, now), None, "all are back");
        assert!(matches!(*open("two").state.lock(), State::Free));
    }

    #[test]
    fn what_cannot_be_read_counts_as_a_power_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot");
        fs::write(&path, "half a rec").unwrap();
        let order = Order::open(path, "one".into(), Bell::default());
        assert!(order.hold(&named("db", "1"), Duration::ZERO).is_some());
    }
}
