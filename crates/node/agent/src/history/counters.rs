//! Counters of the kernel and QEMU: processor time, memory, bytes to and from disks and networks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::machine::{LiveMachine, NetworkLocation};
use crate::usage;

/// Timeout of QEMU's counters.
const QMP_TIMEOUT: Duration = Duration::from_secs(1);
/// Sector size of the kernel's counters, for every disk.
const SECTOR: u64 = 512;

/// Counters since the start of a host or machine; `None` where there is no counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageCounters {
    pub(super) cpu_nanoseconds: u64,
    pub(super) memory_bytes: u64,
    pub(super) disk_read: Option<u64>,
    pub(super) disk_written: Option<u64>,
    pub(super) network_received: Option<u64>,
    pub(super) network_sent: Option<u64>,
}

impl UsageCounters {
    fn of(usage: usage::Usage, disk: Option<(u64, u64)>, network: Option<(u64, u64)>) -> Self {
        Self {
            cpu_nanoseconds: usage.cpu_nanoseconds,
            memory_bytes: usage.memory_bytes,
            disk_read: disk.map(|(read, _)| read),
            disk_written: disk.map(|(_, written)| written),
            network_received: network.map(|(received, _)| received),
            network_sent: network.map(|(_, sent)| sent),
        }
    }
}

pub(super) fn of_node() -> UsageCounters {
    let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let networks = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let is_disk = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
    let is_port = |name: &str| Path::new("/sys/class/net").join(name).join("device").exists();
    UsageCounters::of(usage::node(), disk_bytes(&disks, is_disk), port_bytes(&networks, is_port))
}

/// The counters of a machine; `None` if its process has ended.
pub(super) async fn of_machine(live: &LiveMachine) -> Option<UsageCounters> {
    let usage = usage::process(live.running.process().pid)?;
    let disk = tokio::time::timeout(QMP_TIMEOUT, guest_disks(live)).await.ok().flatten();
    Some(UsageCounters::of(usage, disk, guest_networks(live)))
}

async fn guest_disks(live: &LiveMachine) -> Option<(u64, u64)> {
    let stats = live.running.qmp().await.ok()?.block_stats().await.ok()?;
    let read = stats.iter().map(|disk| disk.read_bytes).sum();
    Some((read, stats.iter().map(|disk| disk.write_bytes).sum()))
}

/// Bytes sent by a tap are received by the guest. `None` without taps.
fn guest_networks(live: &LiveMachine) -> Option<(u64, u64)> {
    let attachments = live.attachments();
    let taps = attachments.iter().filter_map(|attachment| match &attachment.place {
        NetworkLocation::Nat { tap, .. } | NetworkLocation::Bridge { tap, .. } => {
            let folder = Path::new("/sys/class/net").join(tap).join("statistics");
            let count =
                |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
            Some((count("tx_bytes")?, count("rx_bytes")?))
        }
        _ => None,
    });
    sum(taps)
}

fn sum(pairs: impl Iterator<Item = (u64, u64)>) -> Option<(u64, u64)> {
    pairs.reduce(|(read, written), (more, and)| (read + more, written + and))
}

/// Bytes read from and written to whole disks: `/proc/diskstats`.
fn disk_bytes(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
    let disks = diskstats.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let sectors = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let counted = is_disk(fields.get(2)?);
        counted.then_some((sectors(5)? * SECTOR, sectors(9)? * SECTOR))
    });
    sum(disks)
}

/// Bytes received and sent by network cards: `/proc/net/dev`.
fn port_bytes(dev: &str, is_port: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
    let ports = dev.lines().filter_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<&str> = counts.split_whitespace().collect();
        let bytes = |at: usize| counts.get(at)?.parse::<u64>().ok();
        is_port(name.trim()).then_some((bytes(0)?, bytes(8)?))
    });
    sum(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_ports_are_summed_without_what_lies_on_them() {
        let disks = "   8  0 sda 10 0 100 5 20 0 200 9 0 1 1\n   8  1 sda1 10 0 100 5 20 0 200 9\n \
                     254 0 vda 1 0 1 1 1 0 2 1 0\n   7 0 loop0 1 0 1 1 1 0 1 1\n";
        let is_disk = |name: &str| ["sda", "vda"].contains(&name);
        assert_eq!(disk_bytes(disks, is_disk), Some((101 * 512, 202 * 512)));
        assert_eq!(disk_bytes("", is_disk), None);
        let ports = "Inter-|   Receive\n face |bytes\n    lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n  \
                     eth0:1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n";
        assert_eq!(port_bytes(ports, |name| name == "eth0"), Some((1000, 2000)));
        assert_eq!(port_bytes(ports, |_| false), None);
    }
}
