//! Records that are kept elsewhere: they are requested from a client over its connection.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::protocol::{Answered, Question, RecordAnswer, RecordQuestion, Secret};
use crate::ids::VolumeId;
use crate::repl::control::{ControlError, ControlPlane, Record, Version, Versioned};

/// How long a question may take. The engine asks again, and serves nothing meanwhile that
/// depends on the answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The client that keeps the records, and the questions that wait for its answers.
#[derive(Debug, Default)]
pub(super) struct Records {
    asking: Mutex<Asking>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Asking {
    /// The connection that answers, and its number.
    server: Option<(u64, UnixStream)>,
    next: u64,
    waiting: BTreeMap<u64, mpsc::Sender<RecordAnswer>>,
}

impl Records {
    fn asking(&self) -> MutexGuard<'_, Asking> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection answers from now on, in place of whichever did.
    pub(super) fn served_by(&self, stream: UnixStream) -> u64 {
        // A client that does not read must not stop others from asking for ever.
        let _ = stream.set_write_timeout(Some(QUERY_TIMEOUT));
        let mut asking = self.asking();
        asking.next += 1;
        let number = asking.next;
        asking.server = Some((number, stream));
        self.came.notify_all();
        number
    }

    /// The connection is gone.
    pub(super) fn gone(&self, number: u64) {
        let mut asking = self.asking();
        if asking.server.as_ref().is_some_and(|(it, _)| *it == number) {
            asking.server = None;
            asking.waiting.clear();
        }
    }

    pub(super) fn answered(&self, answered: Answered) {
        if let Some(waiting) = self.asking().waiting.remove(&answered.ask) {
            let _ = waiting.send(answered.answer);
        }
    }

    fn ask(&self, volume: VolumeId, question: RecordQuestion) -> RecordAnswer {
        let asking = self.asking();
        let (mut asking, _) = self
            .came
            .wait_timeout_while(asking, QUERY_TIMEOUT, |asking| asking.server.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        asking.next += 1;
        let ask = asking.next;
        let Some((_, stream)) = &mut asking.server else { return RecordAnswer::Unavailable };
        let Ok(mut line) = serde_json::to_vec(&Question { ask, volume, question }) else {
            return RecordAnswer::Unavailable;
        };
        line.push(b'\n');
        if stream.write_all(&line).is_err() {
            asking.server = None;
            return RecordAnswer::Unavailable;
        }
        let (answer, answered) = mpsc::channel();
        asking.waiting.insert(ask, answer);
        drop(asking);
        let answer = answered.recv_timeout(QUERY_TIMEOUT);
        self.asking().waiting.remove(&ask);
        answer.unwrap_or(RecordAnswer::Unavailable)
    }
}

impl Records {
    /// The passphrase of a volume, if a client knows it.
    pub(super) fn passphrase(&self, volume: VolumeId) -> Option<Secret> {
        match self.ask(volume, RecordQuestion::Passphrase) {
            RecordAnswer::Passphrase(secret) => Some(secret),
            _ => None,
        }
    }
}

/// The record of one volume, as an engine sees it.
#[derive(Debug)]
pub(super) struct AskedControl {
    pub(super) records: Arc<Records>,
    pub(super) volume: VolumeId,
}

impl ControlPlane for AskedControl {
    fn read(&self) -> Result<Versioned, ControlError> {
        match self.records.ask(self.volume, RecordQuestion::Read) {
            RecordAnswer::Read(found) => Ok(found),
            _ => Err(ControlError::Unavailable),
        }
    }

    fn compare_and_swap(&self, expect: Version, record: &Record) -> Result<Version, ControlError> {
        let question = RecordQuestion::Swap { expect, record: Box::new(record.clone()) };
        match self.records.ask(self.volume, question) {
            RecordAnswer::Swapped(version) => Ok(version),
            RecordAnswer::Conflict(now) => Err(ControlError::Conflict(Box::new(now))),
            RecordAnswer::Read(_) | RecordAnswer::Passphrase(_) | RecordAnswer::Unavailable => {
                Err(ControlError::Unavailable)
            }
        }
    }
}
