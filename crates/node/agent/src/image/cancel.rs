//! Work in another thread cannot be stopped from outside; it asks whether it is still wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keeps the work running; dropping it cancels the work.
#[derive(Default)]
pub(super) struct CancelGuard(Arc<AtomicBool>);

impl CancelGuard {
    /// The check of the work: whether to go on.
    pub(super) fn asked(&self) -> impl Fn() -> bool + Send + 'static {
        let stop = Arc::clone(&self.0);
        move || !stop.load(Ordering::Relaxed)
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
