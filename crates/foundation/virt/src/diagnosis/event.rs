//! The latest events about a machine, each once.

use serde::Serialize;

use super::DiagnosisInput;
use super::object::Event;
use super::storage::claim_names;
use crate::api::atom::ObjectMeta;

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

/// Events about the machine, its instance and its volumes, the latest last. Those about objects that
/// had the same names before are left out.
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
    let is_volume = || volumes.iter().any(|volume| volume == name);
    let machine = facts.machine.as_ref().map(|machine| &machine.metadata);
    match about.kind.as_deref().unwrap_or_default() {
        "VirtualMachine" => name == facts.name && is_about(event, machine),
        // A machine has one instance after the other, and all of their events tell something.
        "VirtualMachineInstance" => name == facts.name && is_since(event, machine),
        "DataVolume" => {
            let found = facts.data_volumes.iter().map(|own| &own.metadata);
            is_volume() && is_about(event, named(found, name))
        }
        "PersistentVolumeClaim" => {
            let found = facts.claims.iter().map(|own| &own.metadata);
            is_volume() && is_about(event, named(found, name))
        }
        _ => false,
    }
}

fn named<'a>(mut all: impl Iterator<Item = &'a ObjectMeta>, name: &str) -> Option<&'a ObjectMeta> {
    all.find(|own| own.name.as_deref() == Some(name))
}

/// Whether an event is about this object, and not about another one that had its name before.
pub(super) fn is_about(event: &Event, object: Option<&ObjectMeta>) -> bool {
    let known = |uid: Option<&String>| uid.filter(|uid| !uid.is_empty()).cloned();
    let uid = known(object.and_then(|own| own.uid.as_ref()));
    match (known(event.involved_object.uid.as_ref()), uid) {
        (Some(own), Some(uid)) => own == uid,
        _ => true,
    }
}

/// Whether an event was reported since an object exists.
fn is_since(event: &Event, object: Option<&ObjectMeta>) -> bool {
    let created = object.and_then(|own| own.creation_timestamp.as_ref());
    created.is_none_or(|created| seconds(&last_seen(event)) >= seconds(&created.to_string()))
}

/// A time without the fraction of its second, which some events have.
fn seconds(time: &str) -> String {
    time.split(['.', 'Z']).next().unwrap_or_default().to_owned()
}

pub(super) fn last_seen(event: &Event) -> String {
    let time = event.last_timestamp.as_ref().or(event.event_time.as_ref());
    let time = time.or(event.metadata.creation_timestamp.as_ref());
    time.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{object, with_disk};
    use super::*;

    #[test]
    fn events_about_earlier_objects_of_the_same_name_are_left_out() {
        let mut one = with_disk("d");
        let machine = one.machine.as_mut().unwrap();
        machine.metadata.uid = Some("m2".into());
        machine.metadata.creation_timestamp = object(json!("2026-01-02T03:00:00Z"));
        one.data_volumes = vec![object(json!({"metadata": {"name": "d", "uid": "d2"}}))];
        one.claims = vec![object(json!({"metadata": {"name": "d", "uid": "c2"}}))];
        let event = |kind: &str, name: &str, uid: &str, time: &str| {
            let about = json!({"kind": kind, "name": name, "uid": uid});
            object(json!({"involvedObject": about, "lastTimestamp": time,
                "message": format!("{kind} {uid} {time}")}))
        };
        let late = "2026-01-02T03:00:00.5Z";
        for (kind, name, uid, time, expected) in [
            ("VirtualMachine", "web", "m2", late, true),
            ("VirtualMachine", "web", "m1", late, false),
            ("VirtualMachine", "other", "m2", late, false),
            ("VirtualMachineInstance", "web", "i1", late, true),
            ("VirtualMachineInstance", "web", "i0", "2026-01-02T02:59:59Z", false),
            ("DataVolume", "d", "d2", late, true),
            ("DataVolume", "d", "d1", late, false),
            // The claim was there before the machine.
            ("PersistentVolumeClaim", "d", "c2", "2026-01-01T00:00:00Z", true),
            ("PersistentVolumeClaim", "d", "c1", late, false),
            ("PersistentVolumeClaim", "d", "", late, true),
        ] {
            one.events = vec![event(kind, name, uid, time)];
            assert_eq!(summarize(&one).len(), usize::from(expected), "{:?}", one.events);
        }
    }
}
