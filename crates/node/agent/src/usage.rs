//! Usage of this node and its machines: processor time since they began, memory now. Callers
//! compute rates from two reads.

use std::fs;

use serde::Serialize;

/// The unit of processor time in `/proc`, on every Linux that we run on.
const TICKS_PER_SECOND: u64 = 100;
const NANOSECONDS: u64 = 1_000_000_000;

/// Of the node or of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// Processor time, of all processors together.
    pub(crate) cpu_nanoseconds: u64,
    pub(crate) memory_bytes: u64,
}

/// One machine, by its object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MachineUsage {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) node: Usage,
    pub(crate) machines: Vec<MachineUsage>,
}

/// The node as a whole.
pub(crate) fn node() -> Usage {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Usage { cpu_nanoseconds: busy(&stat), memory_bytes: occupied(&memory) }
}

/// A process with its threads; nothing if it is gone.
pub(crate) fn process(pid: i32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage {
        cpu_nanoseconds: spent(&stat)?,
        memory_bytes: kibibytes(&status, "VmRSS:") * 1024,
    })
}

fn nanoseconds(ticks: u64) -> u64 {
    ticks.saturating_mul(NANOSECONDS / TICKS_PER_SECOND)
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn busy(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map(|text| text.parse().unwrap_or(0)).collect();
    nanoseconds([0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum())
}

/// Memory that cannot be given to others, as the kernel estimates it.
fn occupied(meminfo: &str) -> u64 {
    let total = kibibytes(meminfo, "MemTotal:");
    total.saturating_sub(kibibytes(meminfo, "MemAvailable:")) * 1024
}

/// `/proc/PID/stat`, in which the name may contain anything, even brackets.
fn spent(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(nanoseconds(ticks(11)? + ticks(12)?))
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "cpu  100 10 50 1000 20 3 2 0 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(busy(stat), 165 * 10_000_000);
        let memory = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n";
        assert_eq!(occupied(memory), 600 * 1024);
        let stat = "42 (qemu) odd) name) S 1 42 42 0 -1 4194560 1 2 3 4 70 30 5 6 20 0 1 0 100";
        assert_eq!(spent(stat), Some(100 * 10_000_000));
        assert_eq!(spent("garbage"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = process(std::process::id() as i32).expect("it runs");
        assert!(own.memory_bytes > 0 && node().memory_bytes > 0);
        assert_eq!(process(-1), None);
    }
}
