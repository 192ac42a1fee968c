//! Which events are written, and which occurrences become one event: client-go's rules. Pure.
//!
//! 1. The same occurrence again (object, reason and message) raises `count` of the event that exists.
//! 2. More than [`MAX_SIMILAR`] different messages about one object with one reason within
//!    [`SIMILAR_WINDOW`] become one combined event.
//! 3. One source writes at most [`BURST`] events about one object at once, and one more every
//!    [`REFILL`] seconds; the rest is dropped.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use jiff::Timestamp;

use super::{Occurrence, Severity};

/// Different messages with one reason before they are combined.
const MAX_SIMILAR: usize = 10;
/// Seconds after which a series of similar messages starts again.
const SIMILAR_WINDOW: i64 = 600;
/// Events about one object that may be written at once.
const BURST: i64 = 25;
/// Seconds until one more may be written.
const REFILL: i64 = 300;
/// Entries that each of the memories holds; the ones not used for longest go first.
const CAPACITY: usize = 4096;

const COMBINED: &str = "(combined from similar events): ";

/// The decision about an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Drop,
    Create(Series),
    Update(Series),
}

/// One event object and what it says so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// One source and one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventSource {
    component: String,
    host: Option<String>,
    object: [Option<String>; 6],
}

/// Occurrences that differ in their message only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SimilarKey {
    subject: EventSource,
    severity: Severity,
    reason: String,
}

#[derive(Debug)]
struct Similar {
    messages: HashSet<String>,
    last: Timestamp,
}

/// Credit is counted in seconds: an event costs [`REFILL`] of them.
#[derive(Debug)]
struct Bucket {
    credit: i64,
    counted: Timestamp,
}

/// The events that were recorded lately.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    similar: Recent<SimilarKey, Similar>,
    /// By message; `None` is the combined event.
    series: Recent<(SimilarKey, Option<String>), Series>,
    buckets: Recent<EventSource, Bucket>,
}

impl Correlator {
    /// Takes note of an occurrence and says what to write.
    pub(super) fn observe(&mut self, occurrence: &Occurrence, now: Timestamp) -> Decision {
        let key = similar_key(occurrence);
        let subject = key.subject.clone();
        let combined = self.is_combined(&key, &occurrence.message, now);
        let message = match combined {
            true => format!("{COMBINED}{}", occurrence.message),
            false => occurrence.message.clone(),
        };
        let series_key = (key, (!combined).then(|| occurrence.message.clone()));
        let decision = match self.series.get(&series_key) {
            Some(series) => {
                series.count = series.count.saturating_add(1);
                (series.last, series.message) = (now, message);
                Decision::Update(series.clone())
            }
            None => {
                let name = event_name(occurrence, now);
                let series = Series { name, message, count: 1, first: now, last: now };
                self.series.insert(series_key, series.clone());
                Decision::Create(series)
            }
        };
        if self.spends(subject, now) { decision } else { Decision::Drop }
    }

    /// Whether there are so many different messages of this sort that they are reported as one.
    fn is_combined(&mut self, key: &SimilarKey, message: &str, now: Timestamp) -> bool {
        if self.similar.get(key).is_none_or(|known| seconds(known.last, now) > SIMILAR_WINDOW) {
            let similar = Similar { messages: HashSet::new(), last: now };
            self.similar.insert(key.clone(), similar);
        }
        let Some(known) = self.similar.get(key) else { return false };
        known.last = now;
        if known.messages.contains(message) {
            return false;
        }
        if known.messages.len() >= MAX_SIMILAR {
            return true;
        }
        known.messages.insert(message.to_owned());
        false
    }

    /// Takes the price of one event from the object's bucket, if there is enough in it.
    fn spends(&mut self, subject: EventSource, now: Timestamp) -> bool {
        if self.buckets.get(&subject).is_none() {
            let full = Bucket { credit: BURST * REFILL, counted: now };
            self.buckets.insert(subject.clone(), full);
        }
        let Some(bucket) = self.buckets.get(&subject) else { return false };
        let earned = seconds(bucket.counted, now).max(0);
        bucket.credit = (bucket.credit + earned).min(BURST * REFILL);
        bucket.counted = now;
        let affordable = bucket.credit >= REFILL;
        if affordable {
            bucket.credit -= REFILL;
        }
        affordable
    }
}

fn similar_key(occurrence: &Occurrence) -> SimilarKey {
    let about = occurrence.about.clone();
    let object =
        [about.api_version, about.kind, about.namespace, about.name, about.uid, about.field_path];
    let subject = EventSource {
        component: occurrence.component.clone(),
        host: occurrence.host.clone(),
        object,
    };
    SimilarKey { subject, severity: occurrence.severity, reason: occurrence.reason.clone() }
}

/// The time makes the name unique and the order visible.
fn event_name(occurrence: &Occurrence, now: Timestamp) -> String {
    let object: String =
        occurrence.about.name.iter().flat_map(|name| name.chars()).take(230).collect();
    format!("{}.{:x}", object.trim_end_matches(['.', '-']), now.as_nanosecond())
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second() - from.as_second()
}

/// A map of bounded size that forgets what was not used for longest.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Eq + Hash, V> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        self.clock += 1;
        if self.entries.len() >= CAPACITY {
            let mut ages: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
            ages.sort_unstable();
            // A quarter at a time: finding the oldest costs a pass over all.
            let oldest_kept = ages[ages.len() / 4];
            self.entries.retain(|_, (used, _)| *used >= oldest_kept);
        }
        self.entries.insert(key, (self.clock, value));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn occurrence(object: &str, reason: &str, message: &str) -> Occurrence {
        Occurrence {
            about: ObjectReference { name: Some(object.to_owned()), ..ObjectReference::default() },
            severity: Severity::Warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
            component: "controller".to_owned(),
            host: None,
        }
    }

    #[test]
    fn the_same_occurrence_raises_the_count_of_one_event() {
        let mut correlator = Correlator::default();
        let failed = occurrence("vm", "Failed", "no disk");
        let Decision::Create(first) = correlator.observe(&failed, at(0)) else { panic!() };
        assert_eq!((first.count, first.message.as_str()), (1, "no disk"));
        for count in 2..=5 {
            let now = at(i64::from(count));
            let expected = Series { count, last: now, ..first.clone() };
            assert_eq!(correlator.observe(&failed, now), Decision::Update(expected));
        }
        for other in [
            occurrence("vm", "Failed", "no node"),
            occurrence("vm", "Retried", "no disk"),
            occurrence("other", "Failed", "no disk"),
            Occurrence { severity: Severity::Normal, ..failed.clone() },
            Occurrence { component: "agent".to_owned(), ..failed.clone() },
            Occurrence { host: Some("node".to_owned()), ..failed },
        ] {
            let decision = correlator.observe(&other, at(9));
            assert!(matches!(decision, Decision::Create(_)), "{other:?}");
        }
    }

    #[test]
    fn many_similar_messages_become_one_combined_event() {
        let mut correlator = Correlator::default();
        let mut observe = |number: usize, second: i64| {
            let message = format!("try {number} failed");
            correlator.observe(&occurrence("vm", "Failed", &message), at(second))
        };
        for number in 0..MAX_SIMILAR {
            assert!(matches!(observe(number, 0), Decision::Create(_)), "{number}");
        }
        let Decision::Create(combined) = observe(10, 1) else { panic!() };
        assert_eq!(combined.message, "(combined from similar events): try 10 failed");
        let Decision::Update(again) = observe(11, 2) else { panic!() };
        assert_eq!((again.name, again.count), (combined.name, 2));
        assert_eq!(again.message, "(combined from similar events): try 11 failed");
        // A message that has an event of its own stays with it.
        assert!(
            matches!(observe(0, 3), Decision::Update(series) if series.message == "try 0 failed")
        );
        // After a quiet time messages are reported one by one again.
        let later = 4 + SIMILAR_WINDOW;
        assert!(
            matches!(observe(50, later), Decision::Create(series) if series.message == "try 50 failed")
        );
    }

    #[test]
    fn one_object_gets_a_burst_of_events_and_then_few() {
        let mut correlator = Correlator::default();
        let failed = occurrence("vm", "Failed", "no disk");
        let written = (0..100).filter(|_| correlator.observe(&failed, at(0)) != Decision::Drop);
        assert_eq!(written.count(), 25);
        assert_eq!(correlator.observe(&failed, at(REFILL - 1)), Decision::Drop);
        let Decision::Update(series) = correlator.observe(&failed, at(REFILL)) else { panic!() };
        assert_eq!(series.count, 102, "dropped occurrences are counted");
        assert_eq!(correlator.observe(&failed, at(REFILL)), Decision::Drop);
        let other = occurrence("other", "Failed", "no disk");
        assert_ne!(correlator.observe(&other, at(0)), Decision::Drop);
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for number in 0..2 * CAPACITY {
            correlator.observe(&occurrence(&number.to_string(), "Failed", "no disk"), at(0));
        }
        assert!(correlator.series.entries.len() <= CAPACITY);
        assert!(correlator.similar.entries.len() <= CAPACITY);
        assert!(correlator.buckets.entries.len() <= CAPACITY);
        let newest = occurrence(&(2 * CAPACITY - 1).to_string(), "Failed", "no disk");
        assert!(matches!(correlator.observe(&newest, at(0)), Decision::Update(_)));
    }
}
