//! The promises every engine keeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use store::{Expect, MAX_VALUE, Page, Range, Retention, Revision, WatchError, WriteError};

use crate::world::{
    LIMIT, Plain, Plainly, World, all, conflict, contents, delete, describe, events, put, remove,
    set, until,
};

macro_rules! contract {
    ($($promise:ident,)*) => {
        contract!(@engine sqlite $($promise)*);
        contract!(@engine etcd $($promise)*);
    };
    (@engine $engine:ident $($promise:ident)*) => {
        mod $engine {
            use crate::world::World;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(World::$engine().await).await;
            })*
        }
    };
}

contract! {
    a_write_is_seen_by_the_next_read,
    expectations_are_checked,
    unstorable_writes_are_refused,
    each_write_has_its_own_revision,
    lists_are_ordered_paged_and_bounded_by_prefix,
    a_watch_continues_any_list_exactly,
    a_watch_continues_a_list_taken_amid_writes,
    pages_of_one_revision_agree_under_concurrent_writes,
    concurrent_increments_lose_nothing,
    a_watch_of_the_future_waits,
    a_quiet_watch_still_moves_on,
    a_dropped_wait_loses_no_event,
    a_slow_watcher_gets_an_error_that_it_lags,
    dropped_history_is_refused,
    revisions_and_watches_continue_after_reopening,
    closing_ends_watches_and_refuses_writes,
    a_thousand_watchers_see_the_same_events,
}

async fn a_write_is_seen_by_the_next_read(world: World) {
    let store = world.open().await;
    let created = store.write(put("things", "a", "1", Expect::Absent)).await.unwrap();
    let entry = store.get("things", "a").unwrap();
    assert_eq!((&*entry.item, entry.revision), (&b"1"[..], created.revision));
    assert_eq!(entry.created, created.revision);

    let updated = store.write(put("things", "a", "2", Expect::At(created.revision))).await.unwrap();
    let entry = store.get("things", "a").unwrap();
    assert_eq!((&*entry.item, entry.revision), (&b"2"[..], updated.revision));
    assert_eq!(entry.created, created.revision);
    assert_eq!(store.tables(), ["things".into()]);

    let gone = store.write(delete("things", "a", Expect::At(updated.revision))).await.unwrap();
    assert!(gone.revision > updated.revision);
    assert_eq!(&*gone.entry.item, b"2");
    assert!(store.get("things", "a").is_none());
    assert!(store.tables().is_empty());
    assert!(store.fence().await.unwrap() >= gone.revision);
    store.health().unwrap();
    store.close().await;
}

async fn expectations_are_checked(world: World) {
    let store = world.open().await;
    let first = set(&store, "things", "a", "1").await;
    let second = set(&store, "things", "a", "2").await;
    for (write, current) in [
        (put("things", "a", "x", Expect::Absent), Some(second)),
        (put("things", "a", "x", Expect::At(first)), Some(second)),
        (put("things", "b", "x", Expect::At(first)), None),
        (delete("things", "a", Expect::At(first)), Some(second)),
        (delete("things", "a", Expect::Absent), Some(second)),
        (delete("things", "b", Expect::Any), None),
        (delete("things", "b", Expect::Absent), None),
        (delete("things", "b", Expect::At(first)), None),
    ] {
        let error = store.write(write.clone()).await.unwrap_err();
        assert_eq!(conflict(&error), current, "{write:?}");
    }
    assert_eq!(contents(&all(&store, "things")), ["a=2"]);
    // Nothing of the above took a revision.
    assert_eq!(store.fence().await.unwrap(), second);
    store.close().await;
}

async fn unstorable_writes_are_refused(world: World) {
    let store = world.open().await;
    let error = store.write(put("things", "a", vec![b'x'; MAX_VALUE + 1], Expect::Any)).await;
    assert!(matches!(error, Err(WriteError::TooLarge { .. })));
    let error = store.write(put("a//b", "a", "x", Expect::Any)).await;
    assert!(matches!(error, Err(WriteError::Key(_))));
    store.write(put("things", "a", vec![b'x'; MAX_VALUE], Expect::Any)).await.unwrap();
    assert_eq!(store.get("things", "a").unwrap().item.len(), MAX_VALUE);
    store.close().await;
}

async fn each_write_has_its_own_revision(world: World) {
    let store = world.open().await;
    let mut writers = Vec::new();
    for writer in 0..8 {
        let store = store.store.clone();
        writers.push(tokio::spawn(async move {
            let table = if writer % 2 == 0 { "even" } else { "group.io/odd" };
            let mut revisions = Vec::new();
            for number in 0..20 {
                revisions.push(set(&store, table, &format!("{writer}/{number}"), "x").await);
            }
            assert!(revisions.is_sorted());
            revisions
        }));
    }
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.extend(writer.await.unwrap());
    }
    revisions.sort();
    assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(all(&store, "even").entries.len() + all(&store, "group.io/odd").entries.len(), 160);
    store.close().await;
}

async fn lists_are_ordered_paged_and_bounded_by_prefix(world: World) {
    let store = world.open().await;
    for name in ["b/1", "a/2", "a/1", "a-b/1", "c/1", "a/3", "a"] {
        set(&store, "things", name, "x").await;
    }
    let names = |range: Range<'_>| {
        let page = store.list("things", range).unwrap();
        let names: Vec<String> = page.entries.iter().map(|e| e.name.to_string()).collect();
        (names.join(" "), page.remaining)
    };
    let everything = Range::default();
    assert_eq!(names(everything), ("a a-b/1 a/1 a/2 a/3 b/1 c/1".into(), 0));
    assert_eq!(names(Range { prefix: "a/", ..everything }), ("a/1 a/2 a/3".into(), 0));
    assert_eq!(names(Range { prefix: "z/", ..everything }), (String::new(), 0));
    let limited = Range { prefix: "a/", limit: Some(2), ..everything };
    assert_eq!(names(limited), ("a/1 a/2".into(), 1));
    assert_eq!(names(Range { after: Some("a/2"), ..limited }), ("a/3".into(), 0));
    assert_eq!(names(Range { after: Some("a"), ..limited }), ("a/1 a/2".into(), 1));
    assert_eq!(names(Range { after: Some("b"), ..limited }), (String::new(), 0));
    store.close().await;
}

/// Replays a table from its events and compares every revision with what the store
/// says about it.
async fn a_watch_continues_any_list_exactly(world: World) {
    let store = world.open().await;
    let start = store.revision();
    let mut random = Random(7);
    for step in 0..200 {
        let table = if random.below(3) == 0 { "others" } else { "things" };
        let name = format!("ns{}/{}", random.below(3), random.below(8));
        if random.below(3) == 0 && store.get(table, &name).is_some() {
            remove(&store, table, &name).await;
        } else {
            set(&store, table, &name, &step.to_string()).await;
        }
    }
    let end = store.revision();

    let mut history = Vec::new();
    let mut watcher = store.watch("things", start).unwrap();
    while watcher.seen() < end {
        history.extend(watcher.next(7).await.unwrap());
    }
    assert!(history.windows(2).all(|pair| pair[0].revision < pair[1].revision));

    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let mut next = 0;
    for revision in (start.get()..=end.get()).map(Revision::new) {
        while let Some(event) = history.get(next).filter(|event| event.revision <= revision) {
            let text = |entry: &Arc<store::StoredVersion<bytes::Bytes>>| {
                String::from_utf8_lossy(&entry.item).into_owned()
            };
            let name = event.name.to_string();
            let old = match &event.new {
                Some(new) => model.insert(name, text(new)),
                None => model.remove(&name),
            };
            assert_eq!(old, event.old.as_ref().map(text));
            next += 1;
        }
        let page = store.list("things", Range { at: Some(revision), ..Range::default() }).unwrap();
        let expected: Vec<String> = model.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(contents(&page), expected, "at {revision}");
        assert_eq!(page.revision, revision);

        let mut resumed = store.watch("things", revision).unwrap();
        let rest: Vec<String> = history[next..].iter().map(|event| describe(event)).collect();
        assert_eq!(events(&mut resumed, rest.len()).await, rest, "from {revision}");
    }
    store.close().await;
}

/// Takes lists while others write, brings each up to date by watching, and compares
/// with the next.
async fn a_watch_continues_a_list_taken_amid_writes(world: World) {
    let store = world.open().await;
    let writers: Vec<_> =
        (1..=4).map(|seed| tokio::spawn(churn(store.store.clone(), seed, 80))).collect();
    let listers: Vec<_> = (0..3)
        .map(|_| {
            let store = store.store.clone();
            tokio::spawn(async move {
                let mut page = all(&store, "things");
                let mut rounds = 0;
                while !(rounds > 5 && store.get("done", "all").is_some()) {
                    tokio::task::yield_now().await;
                    let next = all(&store, "things");
                    let replayed = replay(&store, &page, next.revision).await;
                    assert_eq!(replayed, versions(&next), "{} to {}", page.revision, next.revision);
                    page = next;
                    rounds += 1;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    set(&store, "done", "all", "").await;
    for lister in listers {
        tokio::time::timeout(LIMIT, lister).await.expect("a lister is stuck").unwrap();
    }
    store.close().await;
}

/// The versions on `page` with the events up to `end` applied, each of which must fit
/// the version it finds.
async fn replay(store: &Plainly, page: &Page<Plain>, end: Revision) -> BTreeMap<String, Revision> {
    let mut model = versions(page);
    let mut watcher = store.watch("things", page.revision).unwrap();
    while watcher.seen() < end {
        for event in watcher.next(1).await.unwrap() {
            assert!(event.revision > page.revision && event.revision <= end);
            let name = event.name.to_string();
            let found = match &event.new {
                Some(new) => model.insert(name, new.revision),
                None => model.remove(&name),
            };
            assert_eq!(found, event.old.as_ref().map(|old| old.revision));
        }
    }
    model
}

fn versions(page: &Page<Plain>) -> BTreeMap<String, Revision> {
    page.entries.iter().map(|entry| (entry.name.to_string(), entry.revision)).collect()
}

async fn pages_of_one_revision_agree_under_concurrent_writes(world: World) {
    let store = world.open().await;
    for number in 0..50 {
        set(&store, "things", &format!("{number:03}"), "first").await;
    }
    let expected = contents(&all(&store, "things"));
    let at = store.revision();
    let churn = tokio::spawn(churn(store.store.clone(), 99, 150));
    let mut rounds = 0;
    while !churn.is_finished() || rounds == 0 {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let range = Range { after: after.as_deref(), limit: Some(7), at: Some(at), prefix: "" };
            let page = store.list("things", range).unwrap();
            assert_eq!(page.revision, at);
            found.extend(contents(&page));
            assert_eq!(page.remaining, 50 - found.len());
            if !page.has_more() {
                break;
            }
            after = page.entries.last().map(|entry| entry.name.to_string());
            tokio::task::yield_now().await;
        }
        assert_eq!(found, expected);
        rounds += 1;
    }
    churn.await.unwrap();
    assert_ne!(contents(&all(&store, "things")), expected);
    store.close().await;
}

async fn churn(store: Plainly, seed: u64, steps: usize) {
    let mut random = Random(seed);
    for step in 0..steps {
        let name = format!("{:03}", random.below(60));
        if random.below(2) == 0 {
            // Absent perhaps; then nothing happens.
            let _ = store.write(delete("things", &name, Expect::Any)).await;
        } else {
            set(&store, "things", &name, &format!("later{step}")).await;
        }
    }
}

async fn concurrent_increments_lose_nothing(world: World) {
    const TASKS: usize = 8;
    const INCREMENTS: usize = 25;
    let store = world.open().await;
    let start = set(&store, "counters", "one", "0").await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = store.store.clone();
            tokio::spawn(async move {
                for _ in 0..INCREMENTS {
                    increment(&store).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let total = TASKS * INCREMENTS;
    assert_eq!(contents(&all(&store, "counters")), [format!("one={total}")]);
    let mut watcher = store.watch("counters", start).unwrap();
    let mut seen = 0;
    while seen < total {
        for event in watcher.next(10).await.unwrap() {
            seen += 1;
            let new = event.new.as_ref().unwrap();
            assert_eq!(String::from_utf8_lossy(&new.item), seen.to_string());
        }
    }
    store.close().await;
}

async fn increment(store: &Plainly) {
    loop {
        let entry = store.get("counters", "one").unwrap();
        let number: usize = String::from_utf8_lossy(&entry.item).parse().unwrap();
        let next = (number + 1).to_string();
        match store.write(put("counters", "one", next, Expect::At(entry.revision))).await {
            Ok(_) => return,
            Err(error) => assert!(conflict(&error).unwrap() > entry.revision),
        }
    }
}

async fn a_watch_of_the_future_waits(world: World) {
    let store = world.open().await;
    let future = Revision::new(set(&store, "things", "a", "0").await.get() + 2);
    let mut watcher = store.watch("things", future).unwrap();
    assert!(!store.reached(future, Duration::from_millis(1)).await);
    set(&store, "things", "a", "1").await;
    set(&store, "things", "a", "2").await;
    assert!(store.reached(future, LIMIT).await);
    let third = set(&store, "things", "a", "3").await;
    assert_eq!(events(&mut watcher, 1).await, [format!("{third} a 2>3")]);
    store.close().await;
}

async fn a_quiet_watch_still_moves_on(world: World) {
    let store = world.open().await;
    set(&store, "things", "a", "1").await;
    let page = all(&store, "things");
    let mut watcher = store.watch("things", page.revision).unwrap();
    let later = set(&store, "others", "a", "1").await;
    assert_eq!(watcher.seen(), later);
    let own = set(&store, "things", "b", "1").await;
    // Events that were not delivered yet do not count as seen.
    assert_eq!(watcher.seen(), later);
    assert_eq!(events(&mut watcher, 1).await, [format!("{own} b ->1")]);
    assert_eq!(watcher.seen(), own);
    store.close().await;
}

async fn a_dropped_wait_loses_no_event(world: World) {
    let store = world.open().await;
    let mut watcher = store.watch("things", store.revision()).unwrap();
    let mut expected = Vec::new();
    for step in 0..20 {
        // Polled once, so that it waits, and then dropped.
        assert!(futures_poll_once(watcher.next(4)).await.is_none());
        let revision = set(&store, "things", &step.to_string(), "x").await;
        expected = vec![format!("{revision} {step} ->x")];
        assert_eq!(events(&mut watcher, 1).await, expected);
    }
    assert_eq!(expected.len(), 1);
    store.close().await;
}

async fn futures_poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

async fn a_slow_watcher_gets_an_error_that_it_lags(world: World) {
    let retention = Retention { bytes: 10_000, events: 5, ..Retention::default() };
    let store = world.open_keeping(retention).await;
    let start = set(&store, "things", "a", "0").await;
    let mut watcher = store.watch("things", start).unwrap();
    for _ in 0..30 {
        set(&store, "things", "a", &"x".repeat(1000)).await;
    }
    let error = watcher.next(10).await.unwrap_err();
    assert_eq!(error, WatchError::Lagged { oldest: store.oldest("things") });
    // Starting over works.
    let page = all(&store, "things");
    let mut watcher = store.watch("things", page.revision).unwrap();
    let revision = set(&store, "things", "b", "1").await;
    assert_eq!(events(&mut watcher, 1).await, [format!("{revision} b ->1")]);
    store.close().await;
}

async fn dropped_history_is_refused(world: World) {
    let retention =
        Retention { age: Duration::from_millis(100), events: 3, ..Retention::default() };
    let store = world.open_keeping(retention).await;
    let mut revisions = Vec::new();
    for step in 0..10 {
        revisions.push(set(&store, "things", "a", &step.to_string()).await);
    }
    // The last three are kept whatever their age.
    let (first, oldest) = (revisions[0], revisions[6]);
    until("the history to be dropped", async || store.oldest("things") == oldest).await;
    assert_eq!(store.watch("things", first).unwrap_err().oldest, oldest);
    let past = Range { at: Some(first), ..Range::default() };
    assert_eq!(store.list("things", past).unwrap_err().oldest, oldest);
    let mut watcher = store.watch("things", oldest).unwrap();
    assert_eq!(events(&mut watcher, 3).await.len(), 3);
    store.close().await;
}

async fn revisions_and_watches_continue_after_reopening(world: World) {
    let store = world.open().await;
    let mut random = Random(3);
    let mut start = Revision::ZERO;
    for step in 0..60 {
        if step == 20 {
            start = store.revision();
        }
        let name = format!("k{}", random.below(6));
        if random.below(3) == 0 && store.get("things", &name).is_some() {
            remove(&store, "things", &name).await;
        } else {
            set(&store, "things", &name, &step.to_string()).await;
        }
    }
    set(&store, "others", "x", "1").await;
    let (revision, before) = (store.revision(), contents(&all(&store, "things")));
    let created = store.list("things", Range::default()).unwrap().entries[0].created;
    let mut watcher = store.watch("things", start).unwrap();
    let mut expected = Vec::new();
    while watcher.seen() < revision {
        expected.extend(watcher.next(100).await.unwrap().iter().map(|event| describe(event)));
    }
    drop(watcher);
    store.close().await;

    let store = world.open().await;
    assert!(store.revision() >= revision);
    assert_eq!(contents(&all(&store, "things")), before);
    assert_eq!(all(&store, "things").entries[0].created, created);
    let mut watcher = store.watch("things", start).unwrap();
    assert_eq!(events(&mut watcher, expected.len()).await, expected);
    let next = set(&store, "things", "new", "1").await;
    assert!(next > revision);
    assert_eq!(events(&mut watcher, 1).await, [format!("{next} new ->1")]);
    store.close().await;
}

async fn closing_ends_watches_and_refuses_writes(world: World) {
    let session = world.open().await;
    let store = session.store.clone();
    let revision = set(&store, "things", "a", "1").await;
    let mut watcher = store.watch("things", revision).unwrap();
    let waiting = tokio::spawn(async move { watcher.next(1).await });
    session.close().await;
    let ended = tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Closed);
    let refused = store.write(put("things", "a", "2", Expect::Any)).await;
    assert!(matches!(refused, Err(WriteError::Closed)));
    assert!(store.health().is_err());
    // Values in memory can still be read.
    assert_eq!(contents(&all(&store, "things")), ["a=1"]);
}

async fn a_thousand_watchers_see_the_same_events(world: World) {
    const EVENTS: usize = 20;
    let store = world.open().await;
    let start = store.revision();
    let watchers: Vec<_> = (0..1000)
        .map(|_| {
            let mut watcher = store.watch("things", start).unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < EVENTS {
                    seen.extend(watcher.next(64).await.unwrap().iter().map(|e| e.revision));
                }
                seen
            })
        })
        .collect();
    let mut expected = Vec::new();
    for step in 0..EVENTS {
        expected.push(set(&store, "things", &step.to_string(), "x").await);
    }
    for watcher in watchers {
        let seen = tokio::time::timeout(LIMIT, watcher).await.expect("a watcher is stuck");
        assert_eq!(seen.unwrap(), expected);
    }
    store.close().await;
}

/// A small generator of repeatable noise (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
