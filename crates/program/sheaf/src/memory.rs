//! Returns memory that was used for a burst of work to the system.
//!
//! The allocator keeps the freed memory of each thread until that thread allocates again, which
//! in an idle server may be never: after its first start most of its memory would be unused. So
//! threads return freed memory when they become idle.

mod code;

pub(crate) use code::limit_resident;

use std::cell::Cell;
use std::time::{Duration, Instant};

// The system's allocator keeps what large lists have freed; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often a thread trims its memory, at most: it walks through all of it for that.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    static TRIMMED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// For a thread that will sleep next.
pub(crate) fn before_sleep() {
    let now = Instant::now();
    let due = |trimmed: Instant| now.duration_since(trimmed) >= TRIM_INTERVAL;
    if TRIMMED.get().is_none_or(due) {
        TRIMMED.set(Some(now));
        give_back();
    }
}

/// Gives back what this thread has freed.
#[expect(unsafe_code, reason = "the allocator offers it as a foreign function only")]
pub(crate) fn give_back() {
    // SAFETY: it takes no pointers, and any thread may call it at any time.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
