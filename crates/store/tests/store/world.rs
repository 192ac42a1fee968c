//! A private place for one test to keep a store in, and short words for using it.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use store::{
    Change, Config, Expect, Page, Range, Retention, Revision, Shape, Store, Watcher, Write,
    WriteError,
};
use tempfile::TempDir;

/// Long enough for anything that is going to happen, on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Keeps values as they are.
pub(crate) struct Plain;

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

pub(crate) type Plainly = Store<Plain>;

pub(crate) struct World {
    pub(crate) directory: TempDir,
    engine: Kind,
}

enum Kind {
    Sqlite,
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self { directory: TempDir::new().unwrap(), engine: Kind::Sqlite }
    }

    pub(crate) fn config(&self) -> Config {
        match &self.engine {
            Kind::Sqlite => Config::sqlite(self.directory.path().join("store.sqlite")),
        }
    }

    pub(crate) async fn open(&self) -> Session {
        Session::open(self.config()).await
    }

    pub(crate) async fn open_keeping(&self, retention: Retention) -> Session {
        Session::open(Config { retention, ..self.config() }).await
    }
}

/// An open store and its tasks.
pub(crate) struct Session {
    pub(crate) store: Plainly,
    tasks: Tasks,
}

impl Session {
    pub(crate) async fn open(config: Config) -> Self {
        let tasks = Tasks::default();
        let store = Store::open(config, Plain, &tasks).await.unwrap();
        Self { store, tasks }
    }

    /// Closes the store and waits until it is.
    pub(crate) async fn close(self) {
        drop(self.store);
        self.tasks.stop(LIMIT).await;
    }
}

impl std::ops::Deref for Session {
    type Target = Plainly;

    fn deref(&self) -> &Plainly {
        &self.store
    }
}

pub(crate) fn put(table: &str, name: &str, value: impl Into<Bytes>, expect: Expect) -> Write {
    Write { table: table.into(), name: name.into(), expect, change: Change::Put(value.into()) }
}

pub(crate) fn delete(table: &str, name: &str, expect: Expect) -> Write {
    Write { table: table.into(), name: name.into(), expect, change: Change::Delete }
}

/// Writes whatever was there, and says as which revision.
pub(crate) async fn set(store: &Plainly, table: &str, name: &str, value: &str) -> Revision {
    store.write(put(table, name, value.to_owned(), Expect::Any)).await.unwrap().revision
}

pub(crate) async fn remove(store: &Plainly, table: &str, name: &str) -> Revision {
    store.write(delete(table, name, Expect::Any)).await.unwrap().revision
}

pub(crate) fn all(store: &Plainly, table: &str) -> Page<Plain> {
    store.list(table, Range::default()).unwrap()
}

/// `name=value` for each entry.
pub(crate) fn contents(page: &Page<Plain>) -> Vec<String> {
    let show = |entry: &Arc<store::Entry<Bytes>>| {
        format!("{}={}", entry.name, String::from_utf8_lossy(&entry.item))
    };
    page.entries.iter().map(show).collect()
}

/// The next `count` events, each as `revision name old>new`.
pub(crate) async fn events(watcher: &mut Watcher<Plain>, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(LIMIT, watcher.next(64)).await.expect("no event in time");
        seen.extend(next.unwrap().iter().map(|event| describe(event)));
    }
    assert_eq!(seen.len(), count, "more events than expected");
    seen
}

pub(crate) fn describe(event: &store::Event<Plain>) -> String {
    let text = |entry: &Option<Arc<store::Entry<Bytes>>>| {
        entry.as_ref().map_or("-".to_owned(), |e| String::from_utf8_lossy(&e.item).into_owned())
    };
    format!("{} {} {}>{}", event.revision, event.name, text(&event.old), text(&event.new))
}

pub(crate) fn conflict(error: &WriteError) -> Option<Revision> {
    match error {
        WriteError::Conflict { current } => *current,
        other => panic!("expected a conflict, got {other}"),
    }
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
