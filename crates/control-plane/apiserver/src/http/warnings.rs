//! Messages that are collected while a request is served: warnings, sent to the client at the end,
//! and annotations, which are passed to the audit log at once.

use parking_lot::Mutex;

use crate::audit;

/// Filled from many places at once; each warning counts once.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub(crate) fn warn(&self, warning: String) {
        let mut warnings = self.0.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    pub(crate) fn annotate(&self, key: &str, value: impl FnOnce() -> String) {
        audit::annotate(key, value);
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
