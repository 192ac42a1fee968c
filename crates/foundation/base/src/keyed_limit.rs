//! A bound on how many of something each of many has open: watches or streams of a user, for
//! instance. Those that have none take no memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Clones share the counts.
#[derive(Debug, Clone)]
pub struct KeyedLimit {
    most: u32,
    open: Arc<Mutex<HashMap<String, u32>>>,
}

impl KeyedLimit {
    pub fn new(most: u32) -> Self {
        Self { most, open: Arc::default() }
    }

    /// How many one may have open.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Counts one more of `key`; `None` if it has as many as it may.
    pub fn begin(&self, key: &str) -> Option<KeyedSlot> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(key).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        open.insert(key.to_owned(), count + 1);
        Some(KeyedSlot { key: key.to_owned(), open: Arc::clone(&self.open) })
    }
}

/// One that is open; dropping it makes room.
#[derive(Debug)]
pub struct KeyedSlot {
    key: String,
    open: Arc<Mutex<HashMap<String, u32>>>,
}

impl Drop for KeyedSlot {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_bounded_number() {
        let limit = KeyedLimit::new(2);
        let first = limit.begin("jane");
        let _second = limit.begin("jane");
        assert!(first.is_some() && limit.begin("jane").is_none());
        let other = limit.begin("joe");
        drop(first);
        let _third = limit.begin("jane");
        assert!(limit.clone().begin("jane").is_none());
        drop(other);
        assert_eq!(limit.open.lock().unwrap().len(), 1, "keys that have none are forgotten");
    }
}
