//! What a watch has told so far, of objects that are of interest.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

/// Objects by a key that the caller chooses.
#[derive(Debug)]
pub(crate) struct Mirror<T> {
    known: BTreeMap<String, T>,
    /// What a list that is being read has named so far.
    listed: Option<BTreeMap<String, T>>,
    is_complete: bool,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: None, is_complete: false }
    }
}

impl<T> Mirror<T> {
    /// `read` gives the key of an object, and what it is if it is of interest.
    pub(crate) fn apply<K>(
        &mut self,
        event: Event<K>,
        read: impl Fn(&K) -> Option<(String, Option<T>)>,
    ) {
        match event {
            Event::Init => self.listed = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                if let (Some(listed), Some((key, Some(value)))) = (&mut self.listed, read(&object))
                {
                    listed.insert(key, value);
                }
            }
            Event::InitDone => {
                self.known = self.listed.take().unwrap_or_default();
                self.is_complete = true;
            }
            Event::Apply(object) => match read(&object) {
                Some((key, Some(value))) => {
                    self.known.insert(key, value);
                }
                Some((key, None)) => {
                    self.known.remove(&key);
                }
                None => {}
            },
            Event::Delete(object) => {
                if let Some((key, _)) = read(&object) {
                    self.known.remove(&key);
                }
            }
        }
    }

    /// Whether everything that exists has been told of once.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.known.remove(key);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_list_replaces_the_first() {
        let read = |word: &&str| Some(((*word).to_owned(), Some(())));
        let mut mirror = Mirror::default();
        for event in [Event::Init, Event::InitApply("a"), Event::InitApply("b")] {
            mirror.apply(event, read);
        }
        assert!(!mirror.is_complete());
        for event in [Event::InitDone, Event::Apply("c"), Event::Delete("a")] {
            mirror.apply(event, read);
        }
        let keys =
            |mirror: &Mirror<()>| mirror.iter().map(|(key, ())| key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&mirror), ["b", "c"]);
        for event in [Event::Init, Event::InitApply("c"), Event::InitDone] {
            mirror.apply(event, read);
        }
        assert_eq!(keys(&mirror), ["c"]);
    }
}
