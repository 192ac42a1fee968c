//! The objects of interest that a watch has delivered so far, and a watch that outlives failures.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Chain;
use futures_util::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use tracing::{debug, warn};

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(500);

/// Objects by a key that the caller chooses.
#[derive(Debug)]
pub(crate) struct ObjectCache<T> {
    known: BTreeMap<String, T>,
    /// Which version of each that is.
    versions: BTreeMap<String, u64>,
    /// The objects that a list in progress has named so far.
    listed: Option<BTreeMap<String, T>>,
    is_complete: bool,
}

/// Versions of one kind are ordered.
fn version(object: &impl Resource) -> u64 {
    let text = object.meta().resource_version.as_deref();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl<T> Default for ObjectCache<T> {
    fn default() -> Self {
        let (known, versions) = (BTreeMap::new(), BTreeMap::new());
        Self { known, versions, listed: None, is_complete: false }
    }
}

impl<T> ObjectCache<T> {
    /// `read` gives the key of an object, and what it is if it is of interest.
    pub(crate) fn apply<K: Resource>(
        &mut self,
        event: Event<K>,
        read: impl Fn(&K) -> Option<(String, Option<T>)>,
    ) {
        match event {
            Event::Init => self.listed = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                if let (Some(listed), Some((key, Some(value)))) = (&mut self.listed, read(&object))
                {
                    self.versions.insert(key.clone(), version(&object));
                    listed.insert(key, value);
                }
            }
            Event::InitDone => {
                self.known = self.listed.take().unwrap_or_default();
                self.versions.retain(|key, _| self.known.contains_key(key));
                self.is_complete = true;
            }
            Event::Apply(object) => match read(&object) {
                Some((key, Some(value))) => {
                    self.versions.insert(key.clone(), version(&object));
                    self.known.insert(key, value);
                }
                Some((key, None)) => self.remove(&key),
                None => {}
            },
            Event::Delete(object) => {
                if let Some((key, _)) = read(&object) {
                    self.remove(&key);
                }
            }
        }
    }

    /// Takes in what a write of ours was answered with, until the watch reports it. If that has
    /// reported something later, be it the end, the answer is old.
    pub(crate) fn answer<K: Resource>(
        &mut self,
        object: K,
        read: impl Fn(&K) -> Option<(String, Option<T>)>,
    ) {
        let Some((key, _)) = read(&object) else { return };
        if self.versions.get(&key).is_some_and(|known| *known <= version(&object)) {
            self.apply(Event::Apply(object), read);
        }
    }

    /// Whether everything that exists has been reported once.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.known.remove(key);
        self.versions.remove(key);
    }

    pub(crate) fn all(&self) -> &BTreeMap<String, T> {
        &self.known
    }

    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.known.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.known.iter()
    }
}

/// A watch that logs its failures and goes on.
pub(crate) fn steady<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    what: &'static str,
) -> impl Stream<Item = Event<K>> + Send {
    let mut failing = false;
    events.filter_map(move |event| {
        let event = match event {
            Ok(event) => {
                failing = false;
                Some(event)
            }
            Err(failure) => {
                if failing {
                    debug!(error = %Chain(&failure), what, "still cannot follow");
                } else {
                    warn!(error = %Chain(&failure), what, "cannot watch");
                }
                failing = true;
                None
            }
        };
        async move {
            if event.is_none() {
                tokio::time::sleep(RETRY).await;
            }
            event
        }
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn read(object: &ConfigMap) -> Option<(String, Option<u64>)> {
        Some((object.metadata.name.clone()?, Some(version(object))))
    }

    fn known(mirror: &ObjectCache<u64>) -> Vec<(&str, u64)> {
        mirror.iter().map(|(key, version)| (key.as_str(), *version)).collect()
    }

    #[test]
    fn a_second_list_replaces_the_first() {
        let mut mirror = ObjectCache::default();
        let listed = |name, version| Event::InitApply(object(name, version));
        for event in [Event::Init, listed("a", 1), listed("b", 2)] {
            mirror.apply(event, read);
        }
        assert!(!mirror.is_complete());
        let later = [Event::Apply(object("c", 3)), Event::Delete(object("a", 4))];
        for event in [Event::InitDone].into_iter().chain(later) {
            mirror.apply(event, read);
        }
        assert_eq!(known(&mirror), [("b", 2), ("c", 3)]);
        for event in [Event::Init, listed("c", 3), Event::InitDone] {
            mirror.apply(event, read);
        }
        assert_eq!(known(&mirror), [("c", 3)]);
    }

    #[test]
    fn an_answer_does_not_replace_a_later_event() {
        let mut mirror = ObjectCache::default();
        mirror.apply(Event::Apply(object("a", 5)), read);
        mirror.answer(object("a", 6), read);
        assert_eq!(known(&mirror), [("a", 6)]);
        mirror.apply(Event::Apply(object("a", 8)), read);
        mirror.answer(object("a", 7), read);
        assert_eq!(known(&mirror), [("a", 8)]);
        mirror.apply(Event::Delete(object("a", 9)), read);
        mirror.answer(object("a", 8), read);
        assert!(known(&mirror).is_empty());
    }
}
