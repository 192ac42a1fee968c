//! Disks that are being copied and so must not be written.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::change_notifier::ChangeNotifier;

/// By volume, how many copies are under way; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    copies: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Rung when a disk may be written again.
    notifier: ChangeNotifier,
}

impl Readers {
    pub(super) fn new(notifier: ChangeNotifier) -> Self {
        Self { copies: Arc::default(), notifier }
    }

    /// Holds until the mark is dropped.
    pub(super) fn mark(&self, volume: &str) -> ReaderMark {
        *self.copies.lock().entry(volume.to_owned()).or_default() += 1;
        ReaderMark { readers: self.clone(), volume: volume.to_owned() }
    }

    pub(super) fn has(&self, volume: &str) -> bool {
        self.copies.lock().contains_key(volume)
    }
}

#[derive(Debug)]
pub(super) struct ReaderMark {
    readers: Readers,
    volume: String,
}

impl Drop for ReaderMark {
    fn drop(&mut self) {
        let mut readers = self.readers.copies.lock();
        if let Some(count) = readers.get_mut(&self.volume) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.volume);
                self.readers.notifier.notify();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_free_when_the_last_copy_has_ended() {
        let readers = Readers::new(ChangeNotifier::default());
        let (one, two) = (readers.mark("v"), readers.mark("v"));
        drop(one);
        assert!(readers.has("v"));
        drop(two);
        assert!(!readers.has("v"));
    }
}
