//! The latest events about a machine, each once.

use serde::Serialize;

use super::DiagnosisInput;
use super::object::Event;
use super::storage::claim_names;

/// How many events are reported.
const MOST: usize = 5;

/// An event, however often it was reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventSummary {
    pub reason: String,
    pub message: String,
    pub count: i64,
    /// When it was reported last, RFC 3339.
    pub last: String,
}

/// Events about the machine, its instance and its volumes, the latest last.
pub(super) fn summarize(facts: &DiagnosisInput) -> Vec<EventSummary> {
    let volumes = claim_names(facts);
    let mut all: Vec<EventSummary> = Vec::new();
    for event in facts.events.iter().filter(|event| concerns(event, facts, &volumes)) {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let new = EventSummary {
            reason: text(&event.reason),
            message: text(&event.message),
            count: event.count.unwrap_or(1).max(1),
            last: last_seen(event),
        };
        let same =
            |known: &&mut EventSummary| known.reason == new.reason && known.message == new.message;
        match all.iter_mut().find(same) {
            Some(known) => {
                known.count += new.count;
                known.last = std::mem::take(&mut known.last).max(new.last);
            }
            None => all.push(new),
        }
    }
    all.sort_by(|one, two| one.last.cmp(&two.last));
    all.split_off(all.len().saturating_sub(MOST))
}

fn concerns(event: &Event, facts: &DiagnosisInput, volumes: &[String]) -> bool {
    let about = &event.involved_object;
    let name = about.name.as_deref().unwrap_or_default();
    match about.kind.as_deref().unwrap_or_default() {
        "VirtualMachine" | "VirtualMachineInstance" => name == facts.name,
        "DataVolume" | "PersistentVolumeClaim" => volumes.iter().any(|volume| volume == name),
        _ => false,
    }
}

pub(super) fn last_seen(event: &Event) -> String {
    let time = event.last_timestamp.as_ref().or(event.event_time.as_ref());
    let time = time.or(event.metadata.creation_timestamp.as_ref());
    time.map(ToString::to_string).unwrap_or_default()
}
