//! Code that has run and will hardly run again: the first start's, a restore's, a large list's.
//!
//! It stays mapped as long as the process lives, more than everything that is in use when there is
//! little to do. So after a burst of work the program's own code is unmapped. Code that runs next
//! is mapped again from the page cache, without reading the disk. Other code is left to the
//! kernel, which drops it first when memory is short.

use std::time::Duration;

/// How often the processor time of the process is checked.
const PERIOD: Duration = Duration::from_secs(2);
/// A process that takes more processor time than this in a period is at work.
const AT_REST: Duration = Duration::from_millis(40);

/// Unmaps code whenever the process comes to rest. Never ends.
pub(crate) async fn limit_resident() {
    let mut effort = ActivityState::AtWork;
    let mut before = processor_time();
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = processor_time();
        let (next, came_to_rest) = effort.next(now.saturating_sub(before));
        (effort, before) = (next, now);
        if came_to_rest {
            unmap();
        }
    }
}

/// The recent activity of the process.
///
///   `AtWork` ──used little──► `AtRest`    and its code is unmapped
///      ▲                        │
///      └───────used much────────┘
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActivityState {
    AtWork,
    AtRest,
}

impl ActivityState {
    /// The state after a period in which the process `used` the processor for so long, and whether
    /// it has just become idle.
    fn next(self, used: Duration) -> (Self, bool) {
        match (self, used <= AT_REST) {
            (_, false) => (Self::AtWork, false),
            (Self::AtWork, true) => (Self::AtRest, true),
            (Self::AtRest, true) => (Self::AtRest, false),
        }
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}

/// A stretch of the address space.
#[derive(Debug, PartialEq, Eq)]
struct MemoryMapping {
    start: usize,
    length: usize,
}

/// Unmaps the code of this program; says how many bytes of address space that is.
fn unmap() -> usize {
    let (Ok(maps), Ok(program)) =
        (std::fs::read_to_string("/proc/self/maps"), std::fs::read_link("/proc/self/exe"))
    else {
        return 0;
    };
    let code = code_of(&maps, &program.to_string_lossy());
    code.iter().filter(|mapping| forget(mapping)).map(|mapping| mapping.length).sum()
}

/// The executable mappings of `program`, from the text of `/proc/self/maps`. Only these: they hold
/// nothing but the content of the file. A mapping that is merely read-only now may have been
/// written to when the program was loaded.
fn code_of(maps: &str, program: &str) -> Vec<MemoryMapping> {
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let is_code = rest.starts_with("r-xp ") && rest.ends_with(&format!(" {program}"));
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        is_code.then(|| MemoryMapping { start, length: end.saturating_sub(start) })
    };
    maps.lines().filter_map(mapping).collect()
}

#[expect(unsafe_code, reason = "advice on memory takes an address")]
fn forget(mapping: &MemoryMapping) -> bool {
    let advice = rustix::mm::Advice::LinuxDontNeed;
    let start = std::ptr::with_exposed_provenance_mut(mapping.start);
    // SAFETY: the mapping is a private one of a file and cannot be written to, so its pages
    // are those of the file: touched again, even by this very function, they read the same.
    unsafe { rustix::mm::madvise(start, mapping.length, advice) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_unmapped_once_after_each_burst() {
        let (little, much) = (Duration::from_millis(3), Duration::from_millis(900));
        let mut effort = ActivityState::AtWork;
        let steps = [much, little, little, little, much, much, little, little];
        let rests = steps.map(|used| {
            let (next, came_to_rest) = effort.next(used);
            effort = next;
            came_to_rest
        });
        assert_eq!(rests, [false, true, false, false, false, false, true, false]);
    }

    #[test]
    fn only_the_code_of_the_program_is_taken() {
        let maps = "\
55d0c0000000-55d0c0be2000 r--p 00000000 fe:00 1 /usr/bin/sheaf
55d0c0be2000-55d0c2bb0000 r-xp 00be1000 fe:00 1 /usr/bin/sheaf
55d0c2bb0000-55d0c2d4e000 r--p 02bae000 fe:00 1 /usr/bin/sheaf
55d0c2d4e000-55d0c2d5c000 rw-p 02d4b000 fe:00 1 /usr/bin/sheaf
7f0000000000-7f0000100000 r-xp 00026000 fe:00 2 /usr/lib/libc.so.6
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
";
        let code = MemoryMapping { start: 0x55d0_c0be_2000, length: 0x1fc_e000 };
        assert_eq!(code_of(maps, "/usr/bin/sheaf"), [code]);
        assert_eq!(code_of(maps, "/usr/bin/other"), []);
    }

    #[test]
    fn a_program_goes_on_without_its_code_mapped() {
        let program = std::fs::metadata("/proc/self/exe").expect("the program is a file").len();
        let unmapped = unmap();
        assert!(unmapped > 0 && unmapped as u64 <= program, "{unmapped} of {program} bytes");
        assert_eq!(ActivityState::AtWork.next(AT_REST), (ActivityState::AtRest, true));
    }
}
