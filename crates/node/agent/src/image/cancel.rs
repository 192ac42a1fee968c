//! Work in another thread, which nobody can stop from outside, asks whether it is still wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever holds it wants the work; when it goes out of scope, the work ends.
#[derive(Default)]
pub(super) struct CancelGuard(Arc<AtomicBool>);

impl CancelGuard {
    /// What the work asks: whether to go on.
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
