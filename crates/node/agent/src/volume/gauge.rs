//! The progress of a fill and the reason of a delay, shared between the task that works and the one
//! that reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use virt::reason::FillFailure;

/// Not known: the other side does not say how much there is.
const UNKNOWN: u32 = u32::MAX;

/// Clones show the same.
#[derive(Debug, Clone)]
pub(crate) struct Gauge(Arc<GaugeInner>);

#[derive(Debug)]
struct GaugeInner {
    /// Tenths of a percent.
    done: AtomicU32,
    restarts: AtomicU32,
    trouble: Mutex<Option<StallReason>>,
}

/// Why there is no progress, for conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StallReason {
    pub(crate) reason: FillFailure,
    pub(crate) message: String,
}

impl Default for Gauge {
    fn default() -> Self {
        let (done, restarts) = (AtomicU32::new(UNKNOWN), AtomicU32::new(0));
        Self(Arc::new(GaugeInner { done, restarts, trouble: Mutex::new(None) }))
    }
}

impl Gauge {
    /// `part` is between 0 and 1.
    pub(crate) fn set(&self, part: f32) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is clamped to 0..=1000"
        )]
        let done = (part.clamp(0.0, 1.0) * 1000.0) as u32;
        self.0.done.store(done, Ordering::Relaxed);
    }

    pub(super) fn unknown(&self) {
        self.0.done.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Nothing if it is not known.
    pub(crate) fn whole_percent(&self) -> Option<u32> {
        Some(self.0.done.load(Ordering::Relaxed))
            .filter(|done| *done != UNKNOWN)
            .map(|done| done / 10)
    }

    /// As the API shows it.
    pub(crate) fn percent(&self) -> Option<String> {
        match self.0.done.load(Ordering::Relaxed) {
            UNKNOWN => None,
            done => Some(format!("{}.{}%", done / 10, done % 10)),
        }
    }

    /// Something has to be tried again.
    pub(super) fn stumble(&self, trouble: StallReason) {
        self.0.restarts.fetch_add(1, Ordering::Relaxed);
        *self.0.trouble.lock() = Some(trouble);
    }

    pub(super) fn recover(&self) {
        *self.0.trouble.lock() = None;
    }

    pub(super) fn trouble(&self) -> Option<StallReason> {
        self.0.trouble.lock().clone()
    }

    pub(super) fn restarts(&self) -> u32 {
        self.0.restarts.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_in_tenths_of_a_percent() {
        let gauge = Gauge::default();
        assert_eq!(gauge.percent(), None);
        gauge.set(0.4217);
        assert_eq!(gauge.percent().as_deref(), Some("42.1%"));
        gauge.set(7.0);
        assert_eq!(gauge.percent().as_deref(), Some("100.0%"));
    }
}
