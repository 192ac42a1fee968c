//! Names of objects, and who waits for which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::object;

/// An object in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(object: &Value) -> Self {
        Self::new(object::namespace(object), object::name(object))
    }
}

/// Which keys have to be checked again when a claim or data volume changes. Shared by a
/// reconciler, which records it, and its event mapper, which is notified of the changes.
///
/// A reconciler says what it depends on before it reads that: a change in between then
/// brings the key back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependents(Arc<Mutex<Edges>>);

#[derive(Debug, Default)]
struct Edges {
    needed_by: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    needs: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

impl Dependents {
    /// Replaces what `key` depends on.
    pub(crate) fn set(&self, key: &ObjectKey, needs: BTreeSet<ObjectKey>) {
        let mut edges = self.lock();
        if edges.needs.get(key).is_some_and(|known| *known == needs) {
            return;
        }
        for need in edges.needs.remove(key).unwrap_or_default() {
            if let Some(keys) = edges.needed_by.get_mut(&need) {
                keys.remove(key);
                if keys.is_empty() {
                    edges.needed_by.remove(&need);
                }
            }
        }
        for need in &needs {
            edges.needed_by.entry(need.clone()).or_default().insert(key.clone());
        }
        if !needs.is_empty() {
            edges.needs.insert(key.clone(), needs);
        }
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.set(key, BTreeSet::new());
    }

    pub(crate) fn of(&self, needed: &ObjectKey) -> Vec<ObjectKey> {
        self.lock().needed_by.get(needed).into_iter().flatten().cloned().collect()
    }

    /// All keys that depend on anything.
    pub(crate) fn all(&self) -> Vec<ObjectKey> {
        self.lock().needs.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Edges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_follow_what_they_depend_on() {
        let dependents = Dependents::default();
        let key = |name: &str| ObjectKey::new("n", name);
        dependents.set(&key("a"), [key("x"), key("y")].into());
        dependents.set(&key("b"), [key("x")].into());
        assert_eq!(dependents.of(&key("x")), [key("a"), key("b")]);
        dependents.set(&key("a"), [key("y")].into());
        assert_eq!(dependents.of(&key("x")), [key("b")]);
        assert_eq!(dependents.all().len(), 2);
        dependents.forget(&key("a"));
        assert!(dependents.of(&key("y")).is_empty() && dependents.all().len() == 1);
    }
}
