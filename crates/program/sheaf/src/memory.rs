//! Memory that a burst of work needed goes back to the system when the work is done.
//!
//! The allocator keeps what each thread has freed until that thread comes to need it again,
//! which in a server that has nothing to do may be never: after its first start most of its
//! memory would be such leftovers. So threads look into it as they go to sleep.

mod code;

pub(crate) use code::limit_resident;

use std::cell::Cell;
use std::time::{Duration, Instant};

// The system's allocator keeps what large lists have freed; this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often a thread looks, at most: it walks through all its memory for that.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// For a thread that is about to sleep.
pub(crate) fn before_sleep() {
    let now = Instant::now();
    let due = |looked: Instant| now.duration_since(looked) >= TRIM_INTERVAL;
    if LOOKED.get().is_none_or(due) {
        LOOKED.set(Some(now));
        give_back();
    }
}

/// Gives back what this thread has freed.
#[expect(unsafe_code, reason = "the allocator offers it as a foreign function only")]
pub(crate) fn give_back() {
    // SAFETY: it takes no pointers, and any thread may call it at any time.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
