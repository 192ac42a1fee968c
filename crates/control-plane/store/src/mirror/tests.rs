//! The mirror against a model that remembers everything.

use proptest::prelude::*;

use super::*;

struct Plain;

impl Shape for Plain {
    type Item = Bytes;
    type Frame = ();

    fn shape(&self, _: &str, _: &str, value: Bytes, _: Revision, _: Revision) -> Bytes {
        value
    }

    fn weight(&self, item: &Bytes) -> usize {
        item.len()
    }
}

const TABLES: [&str; 2] = ["things", "group.io/others"];
const NAMES: [&str; 6] = ["a", "a/1", "a/2", "a-b", "b/1", "c"];

/// A put of a value of some size, or a deletion.
type Step = (usize, usize, Option<u16>);

/// The content of `things` at each revision.
struct Model {
    states: Vec<BTreeMap<&'static str, Revision>>,
}

impl Model {
    fn at(&self, revision: Revision, range: Range<'_>) -> Vec<(&'static str, Revision)> {
        let index = usize::try_from(revision.get()).unwrap();
        let wanted = |(name, _): &(&str, Revision)| {
            name.starts_with(range.prefix) && range.after.is_none_or(|after| *name > after)
        };
        self.states[index].iter().map(|(name, made)| (*name, *made)).filter(wanted).collect()
    }
}

/// Publishes the steps in batches and remembers every state on the way.
fn publish(mirror: &Mirror<Plain>, steps: &[Step], batch: usize) -> Model {
    let mut states = vec![BTreeMap::new()];
    let mut pending = Vec::new();
    for (number, (table, name, size)) in steps.iter().enumerate() {
        let revision = Revision::new(number as u64 + 1);
        let (table, name) = (TABLES[*table], NAMES[*name]);
        let mut state = states[number].clone();
        let change = match size {
            Some(size) => {
                let value = Bytes::from(vec![b'v'; usize::from(*size)]);
                DurableChange::Put { value, created: revision }
            }
            None => DurableChange::Delete,
        };
        if table == TABLES[0] {
            match change {
                DurableChange::Put { .. } => drop(state.insert(name, revision)),
                DurableChange::Delete => drop(state.remove(name)),
            }
        }
        states.push(state);
        pending.push(Durable { table: table.into(), name: name.into(), revision, change });
        if pending.len() == batch {
            mirror.publish(std::mem::take(&mut pending));
        }
    }
    mirror.publish(pending);
    Model { states }
}

fn check_list(mirror: &Mirror<Plain>, model: &Model, range: Range<'_>) {
    let page = mirror.list(TABLES[0], range).unwrap();
    let at = range.at.unwrap_or(mirror.revision());
    let expected = model.at(at, range);
    let found: Vec<_> = page.entries.iter().map(|entry| (&*entry.name, entry.revision)).collect();
    let count = range.limit.unwrap_or(usize::MAX).min(expected.len());
    assert_eq!(found, expected[..count], "{range:?}");
    assert_eq!((page.revision, page.remaining), (at, expected.len() - count), "{range:?}");
}

/// A watch from `from` must turn the state there into the present.
fn check_watch(mirror: &Mirror<Plain>, model: &Model, from: Revision) {
    let table = mirror.table(TABLES[0]);
    let (mut state, mut seen) = (model.states[usize::try_from(from.get()).unwrap()].clone(), from);
    loop {
        let events = match table.pull(seen, 2) {
            WatchPull::Events(events, reached) => {
                seen = reached;
                events
            }
            WatchPull::Nothing(reached) => {
                assert_eq!(reached, mirror.revision());
                break;
            }
            WatchPull::Lagged(_) | WatchPull::Closed => panic!("history is there from {from}"),
        };
        for event in events {
            let name = NAMES.iter().find(|name| **name == &*event.name).unwrap();
            let old = match &event.new {
                Some(new) => state.insert(name, new.revision),
                None => state.remove(name),
            };
            assert_eq!(old, event.old.as_ref().map(|old| old.revision));
        }
    }
    assert_eq!(state, *model.states.last().unwrap(), "from {from}");
}

proptest! {
    #[test]
    fn lists_and_watches_agree_with_what_happened(
        steps in prop::collection::vec(
            (0..TABLES.len(), 0..NAMES.len(), prop::option::weighted(0.7, 0..2000_u16)),
            1..80,
        ),
        batch in 1..9_usize,
        bytes in 0..40_000_usize,
        limit in prop::option::of(0..4_usize),
    ) {
        let retention = Retention { bytes, events: 3, ..Retention::default() };
        let mirror =
            Mirror::new(Plain, retention, BTreeMap::new(), Revision::ZERO, Revision::ZERO);
        let model = publish(&mirror, &steps, batch);
        check_list(&mirror, &model, Range { limit, ..Range::default() });
        let oldest = mirror.oldest(TABLES[0]);
        for revision in (0..=mirror.revision().get()).map(Revision::new) {
            let at = Some(revision);
            if revision < oldest {
                let past = Range { at, ..Range::default() };
                prop_assert_eq!(mirror.list(TABLES[0], past).unwrap_err(), Compacted { oldest });
                prop_assert!(mirror.watch(TABLES[0], revision).is_err());
                continue;
            }
            for (prefix, after) in [("", None), ("a/", None), ("", Some("a/1")), ("b", Some("a"))] {
                check_list(&mirror, &model, Range { prefix, after, limit, at });
            }
            check_watch(&mirror, &model, revision);
        }
    }
}
