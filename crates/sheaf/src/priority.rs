//! Threads that answer first where processors are short: guests may burn them all, and who
//! wants to stop one of them needs the API.
//!
//! It takes no processor away for long: the kernel lets such a thread run sooner, and then for
//! a shorter time. What these threads start, guests above all, begins as usual.

/// How much the kernel prefers them: a share of three to one.
const NICE: i32 = -5;
/// How long one runs before others may, in nanoseconds. A request takes a fraction of it.
const SLICE: u64 = 500_000;

/// Prefers the thread that calls it. Without the right to, only its turns become shorter; an
/// old kernel knows of no turns.
pub(crate) fn prefer_thread() {
    if !set(NICE) {
        set(0);
    }
}

#[expect(unsafe_code, reason = "there is no other interface to the scheduler's attributes")]
fn set(nice: i32) -> bool {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads as many bytes of the structure as its first field says, and 0
    // is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The nineteenth field; the second may have spaces.
    fn nice(stat: &str) -> i32 {
        let (_, after) = stat.rsplit_once(") ").unwrap();
        after.split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_is_preferred_and_what_it_starts_is_not() {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        let thread = std::thread::spawn(|| {
            prefer_thread();
            let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let child = Command::new("cat").arg("/proc/self/stat").output().unwrap();
            (nice(&own), nice(&String::from_utf8(child.stdout).unwrap()))
        });
        assert_eq!(thread.join().unwrap(), (NICE, 0));
    }
}
