//! The form in memory of each stored version, and of each change.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::revision::Revision;

/// How raw bytes become the item kept in memory.
///
/// `shape` is called once per stored version, on the thread that publishes it (or,
/// while a store is being opened, on two threads at once), so it must neither block
/// nor panic on any value that was ever written.
pub trait Shape: Send + Sync + 'static {
    /// A stored version, ready to be served.
    type Item: Send + Sync + 'static;
    /// An encoding of one event that all its watchers can share.
    type Frame: Send + Sync + 'static;

    fn shape(
        &self,
        table: &str,
        name: &str,
        value: Bytes,
        revision: Revision,
        created: Revision,
    ) -> Self::Item;

    /// The bytes `item` occupies; they bound how much superseded history is kept.
    fn weight(&self, item: &Self::Item) -> usize;
}

/// One version of one key.
#[derive(Debug)]
pub struct StoredVersion<I> {
    pub name: Arc<str>,
    /// The write that made this version.
    pub revision: Revision,
    /// The write that made the key, since it was last absent.
    pub created: Revision,
    pub item: I,
}

/// One change of one key: a creation has no `old`, a deletion no `new`.
pub struct Event<S: Shape> {
    pub revision: Revision,
    pub name: Arc<str>,
    pub old: Option<Arc<StoredVersion<S::Item>>>,
    pub new: Option<Arc<StoredVersion<S::Item>>>,
    /// Filled by the first watcher that encodes the event. It lives as long as the
    /// event but does not count against the bound on history, so it should share the
    /// bytes of the item rather than copy them.
    pub frame: OnceLock<S::Frame>,
}

impl<S: Shape> Event<S> {
    pub(crate) fn new(
        revision: Revision,
        name: Arc<str>,
        old: Option<Arc<StoredVersion<S::Item>>>,
        new: Option<Arc<StoredVersion<S::Item>>>,
    ) -> Self {
        Self { revision, name, old, new, frame: OnceLock::new() }
    }
}

impl<S: Shape> fmt::Debug for Event<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Event")
            .field("revision", &self.revision)
            .field("name", &self.name)
            .field("old", &self.old.as_ref().map(|entry| entry.revision))
            .field("new", &self.new.as_ref().map(|entry| entry.revision))
            .finish_non_exhaustive()
    }
}
