//! A guest in miniature: memory that is shared, one queue, and requests in it.
//!
//! It does what a driver in a guest does, without the guest: so much as a kick and an interrupt,
//! as eventfds, is what lies between the two.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use crate::figures::percentile;

/// Descriptors in the queue: three for each request.
const QUEUE: u16 = 128;
const MAX_DEPTH: usize = 32;
const MEMORY: usize = 64 << 20;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
/// After which answer the driver wants to be interrupted, and after which request the device
/// wants to be kicked: each behind the ring of the one that says so.
const INTERRUPT_AFTER: u64 = AVAILABLE + 4 + QUEUE as u64 * 2;
const KICK_AFTER: u64 = USED + 4 + QUEUE as u64 * 8;
const HEADERS: u64 = 0x1_0000;
const STATUS: u64 = 0x2_0000;
const DATA: u64 = 0x10_0000;

/// The result of a load on it.
#[derive(Debug)]
pub(super) struct Speed {
    pub(super) iops: f64,
    pub(super) p50_micros: f64,
    pub(super) p99_micros: f64,
    pub(super) requests: f64,
}

pub(super) struct Guest {
    frontend: Frontend,
    memory: GuestMemoryMmap<()>,
    kick: EventFd,
    call: EventFd,
    available: u16,
    /// The available index when the device was last notified, or needed no notification.
    announced: u16,
    used: u16,
    random: u64,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").finish_non_exhaustive()
    }
}

impl Guest {
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in("/dev/shm")?;
        file.set_len(MEMORY as u64)?;
        let memory = share(file)?;
        let mut frontend = Frontend::connect(socket, 1).context("cannot connect as a guest")?;
        let (kick, call) = (EventFd::new(0)?, EventFd::new(0)?);
        frontend.set_owner()?;
        // Protocol features, the modern device, a cache that is flushed, and neither kicks nor
        // interrupts while the other side is awake: the same features as Linux.
        let wanted = 1 << 30 | 1 << 32 | 1 << 9 | 1 << 29;
        ensure!(frontend.get_features()? & wanted == wanted, "the device lacks features");
        frontend.set_features(wanted)?;
        frontend.get_protocol_features()?;
        frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG)?;
        let region = memory.iter().next().context("memory has a region")?;
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo::from_guest_region(region)?])?;
        let host = memory.get_host_address(GuestAddress(0))? as u64;
        frontend.set_vring_num(0, QUEUE)?;
        frontend.set_vring_addr(
            0,
            &VringConfigData {
                queue_max_size: QUEUE,
                queue_size: QUEUE,
                flags: 0,
                desc_table_addr: host,
                used_ring_addr: host + USED,
                avail_ring_addr: host + AVAILABLE,
                log_addr: None,
            },
        )?;
        frontend.set_vring_base(0, 0)?;
        frontend.set_vring_call(0, &call)?;
        frontend.set_vring_kick(0, &kick)?;
        frontend.set_vring_enable(0, true)?;
        Ok(Self { frontend, memory, kick, call, available: 0, announced: 0, used: 0, random: 1 })
    }

    /// Random requests for a while, so many at once.
    pub(super) fn load(
        &mut self,
        write: bool,
        block: u32,
        depth: usize,
        span: u64,
        time: Duration,
    ) -> Result<Speed> {
        ensure!(depth <= MAX_DEPTH && block <= 1 << 20, "more than there is memory for");
        (0..depth).try_for_each(|slot| self.prepare(slot, write, block))?;
        let mut begun = vec![Instant::now(); depth];
        let mut took = Vec::new();
        let start = Instant::now();
        for (slot, begun) in begun.iter_mut().enumerate() {
            self.submit(slot, write, block, span)?;
            *begun = Instant::now();
        }
        self.announce()?;
        let mut open = depth;
        while open > 0 {
            self.sleep()?;
            while let Some(slot) = self.completed()? {
                took.push(begun[slot].elapsed());
                if start.elapsed() < time {
                    self.submit(slot, write, block, span)?;
                    begun[slot] = Instant::now();
                } else {
                    open -= 1;
                }
            }
            self.announce()?;
        }
        let elapsed = start.elapsed().as_secs_f64();
        Ok(Speed {
            iops: took.len() as f64 / elapsed,
            p50_micros: percentile(&mut took, 0.5) * 1e3,
            p99_micros: percentile(&mut took, 0.99) * 1e3,
            requests: took.len() as f64,
        })
    }

    /// The three descriptors of a request: its header, its data, its result.
    fn prepare(&self, slot: usize, write: bool, block: u32) -> Result<()> {
        let first = slot as u64 * 3;
        let (next, writable) = (1u16, 2u16);
        let data = if write { next } else { next | writable };
        let pieces = [
            (HEADERS + slot as u64 * 16, 16, next),
            (DATA + slot as u64 * (1 << 20), block, data),
            (STATUS + slot as u64, 1, writable),
        ];
        for (index, (address, length, flags)) in (first..).zip(pieces) {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(length.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend((index as u16 + 1).to_le_bytes());
            self.memory.write_slice(&bytes, GuestAddress(index * 16))?;
        }
        Ok(())
    }

    fn submit(&mut self, slot: usize, write: bool, block: u32, span: u64) -> Result<()> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let sector = self.random % (span / u64::from(block)) * u64::from(block / 512);
        let mut header = u32::from(write).to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        self.memory.write_slice(&header, GuestAddress(HEADERS + slot as u64 * 16))?;
        let place = AVAILABLE + 4 + u64::from(self.available % QUEUE) * 2;
        self.memory.write_obj(slot as u16 * 3, GuestAddress(place))?;
        self.available = self.available.wrapping_add(1);
        Ok(self.memory.store(self.available, GuestAddress(AVAILABLE + 2), Ordering::SeqCst)?)
    }

    /// Kicks the device for what was submitted, unless it polls by itself.
    fn announce(&mut self) -> Result<()> {
        fence(Ordering::SeqCst);
        let after: u16 = self.memory.load(GuestAddress(KICK_AFTER), Ordering::SeqCst)?;
        let new = self.available.wrapping_sub(self.announced);
        self.announced = self.available;
        if self.available.wrapping_sub(after).wrapping_sub(1) < new {
            self.kick.write(1)?;
        }
        Ok(())
    }

    /// Until there is an answer.
    fn sleep(&self) -> Result<()> {
        self.memory.store(self.used, GuestAddress(INTERRUPT_AFTER), Ordering::SeqCst)?;
        fence(Ordering::SeqCst);
        let used: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::SeqCst)?;
        if used == self.used {
            self.call.read()?;
        }
        Ok(())
    }

    /// A request that has been answered.
    fn completed(&mut self) -> Result<Option<usize>> {
        let used: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::Acquire)?;
        if used == self.used {
            return Ok(None);
        }
        let place = USED + 4 + u64::from(self.used % QUEUE) * 8;
        let head: u32 = self.memory.read_obj(GuestAddress(place))?;
        self.used = self.used.wrapping_add(1);
        let slot = head as usize / 3;
        let status: u8 = self.memory.read_obj(GuestAddress(STATUS + slot as u64))?;
        ensure!(status == 0, "a request failed with status {status}");
        Ok(Some(slot))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.frontend.get_vring_base(0);
    }
}

fn share(file: File) -> Result<GuestMemoryMmap<()>> {
    let range = (GuestAddress(0), MEMORY, Some(FileOffset::new(file, 0)));
    Ok(GuestMemoryMmap::from_ranges_with_files([range])?)
}
