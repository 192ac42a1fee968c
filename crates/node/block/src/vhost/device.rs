//! The vhost-user protocol with QEMU about a device: its features, where the guest's memory and
//! rings are, when they start and stop. The content of the rings is not handled here.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use vm_memory::{FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

use super::config::{MAX_RING, QUEUES, WRITEBACK, feature, space};
use super::inflight::Region;
use super::{Attach, DeviceId, Memory, Notice, Setup};

/// Speaks with QEMU until one of the two ends it.
pub(crate) fn converse(device: DeviceId, stream: UnixStream, attach: Box<dyn Attach>) {
    let device_state = Arc::new(Mutex::new(Device::new(attach)));
    let peeked = stream.try_clone();
    let mut handler = BackendReqHandler::from_stream(stream, device_state.clone());
    loop {
        if let Ok(stream) = &peeked
            && let Ok(Some(notice)) = Notice::peek(stream)
        {
            let device = device_state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            device.attach.set_notice(notice);
        }
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected | Error::SocketBroken(_) | Error::PartialMessage) => break,
            Err(Error::SocketRetry(_)) => {}
            Err(error) => {
                tracing::warn!(device, %error, "vhost-user device closed");
                break;
            }
        }
    }
    let device = device_state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    device.attach.end();
}

struct Device {
    attach: Box<dyn Attach>,
    features: u64,
    memory: Option<Arc<Memory>>,
    /// Where QEMU has what the guest has: start, length and the guest's address.
    windows: Vec<(u64, u64, u64)>,
    rings: Vec<RingState>,
    inflight: Option<Region>,
    writeback: bool,
}

#[derive(Default)]
struct RingState {
    size: u16,
    addresses: Option<(u64, u64, u64)>,
    base: u16,
    kick: Option<File>,
    call: Option<File>,
    enabled: bool,
    running: bool,
}

impl Device {
    fn new(attach: Box<dyn Attach>) -> Self {
        Self {
            attach,
            features: 0,
            memory: None,
            windows: Vec::new(),
            rings: (0..QUEUES).map(|_| RingState::default()).collect(),
            inflight: None,
            writeback: true,
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingState> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// The guest's address of what QEMU has at another.
    fn translate(&self, address: u64) -> Result<u64> {
        let of = |(start, length, guest): &(u64, u64, u64)| {
            let offset = address.checked_sub(*start)?;
            (offset < *length).then(|| guest + offset)
        };
        self.windows.iter().find_map(of).ok_or(Error::InvalidParam)
    }

    /// Starts a ring that has everything it needs.
    fn try_start(&mut self, index: usize) -> Result<()> {
        let negotiated = |bit| self.features & bit > 0;
        let durable = !self.writeback || !negotiated(feature::FLUSH);
        let event_idx = negotiated(feature::EVENT_IDX);
        // Without the extended protocol rings are enabled from the start.
        let enabled = self.rings[index].enabled || !negotiated(feature::PROTOCOL);
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        let number = u16::try_from(index).map_err(|_| Error::InvalidParam)?;
        let size = self.rings[index].size;
        let inflight = self.inflight.as_ref().and_then(|region| region.queue(number, size));
        let ring = &mut self.rings[index];
        let (Some((descriptors, available, used)), true, false) =
            (ring.addresses, enabled, ring.running)
        else {
            return Ok(());
        };
        let Some(kick) = ring.kick.take() else { return Ok(()) };
        let base = ring.base;
        let call = ring.call.take();
        let setup = Setup {
            memory,
            size,
            descriptors,
            available,
            used,
            base,
            event_idx,
            kick,
            call,
            inflight,
            durable,
        };
        ring.running = true;
        match self.attach.start(index, setup) {
            true => Ok(()),
            false => Err(Error::BackendInternalError),
        }
    }

    fn halt(&mut self, index: usize) -> Option<u16> {
        if !std::mem::take(&mut self.rings[index].running) {
            return None;
        }
        let (done, stopped) = mpsc::channel();
        self.attach.stop(index, done);
        stopped.recv().ok()
    }

    fn halt_all(&mut self) {
        for index in 0..self.rings.len() {
            if let Some(base) = self.halt(index) {
                self.rings[index].base = base;
            }
        }
    }
}

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.halt_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.halt_all();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(feature::ALL)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !feature::ALL > 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut mapped = Vec::new();
        let mut windows = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let (size, guest) = (region.memory_size, region.guest_phys_addr);
            let place = FileOffset::new(file, region.mmap_offset);
            let length = usize::try_from(size).map_err(|_| Error::InvalidParam)?;
            let mapping = MmapRegion::from_file(place, length).map_err(|error| {
                Error::ReqHandlerError(std::io::Error::other(error.to_string()))
            })?;
            let address = GuestAddress(guest);
            mapped.push(GuestRegionMmap::new(mapping, address).ok_or(Error::InvalidParam)?);
            windows.push((region.user_addr, size, guest));
        }
        mapped.sort_by_key(|region| vm_memory::GuestMemoryRegion::start_addr(region).0);
        let memory = Memory::from_regions(mapped).map_err(|_| Error::InvalidParam)?;
        let memory = Arc::new(memory);
        self.windows = windows;
        self.memory = Some(memory.clone());
        self.attach.set_memory(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if size == 0 || size > MAX_RING || !size.is_power_of_two() {
            return Err(Error::InvalidParam);
        }
        self.ring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let addresses =
            (self.translate(descriptor)?, self.translate(available)?, self.translate(used)?);
        self.ring(index)?.addresses = Some(addresses);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?;
        if let Some(base) = self.halt(index as usize) {
            self.ring(index)?.base = base;
        }
        let ring = self.ring(index)?;
        (ring.kick, ring.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(ring.base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        if let Some(file) = &fd {
            rustix::io::ioctl_fionbio(file, true)
                .map_err(|errno| Error::ReqHandlerError(errno.into()))?;
        }
        self.ring(u32::from(index))?.kick = fd;
        self.try_start(usize::from(index))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let ring = self.ring(u32::from(index))?;
        match ring.running {
            true => self.attach.set_call(usize::from(index), fd),
            false => ring.call = fd,
        }
        Ok(())
    }

    fn set_vring_err(&mut self, _index: u8, _fd: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(QUEUES))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        match enable {
            true => self.try_start(index as usize),
            // The guest's driver stops a ring by asking for its base.
            false => Ok(()),
        }
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let space = space(self.attach.size(), self.writeback);
        let (start, length) = (offset as usize, size as usize);
        let mut bytes = vec![0; length];
        if let Some(known) = space.get(start..) {
            let count = known.len().min(length);
            bytes[..count].copy_from_slice(&known[..count]);
        }
        Ok(bytes)
    }

    fn set_config(&mut self, offset: u32, buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        match (offset as usize, buf) {
            (WRITEBACK, [writeback @ (0 | 1)]) => {
                self.writeback = *writeback == 1;
                Ok(())
            }
            _ => Err(Error::InvalidParam),
        }
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (inflight.num_queues, inflight.queue_size);
        if queues > QUEUES || size > MAX_RING {
            return Err(Error::InvalidParam);
        }
        let fail = |error| Error::ReqHandlerError(std::io::Error::other(error));
        let file = Region::make(queues, size).map_err(fail)?;
        let kept = file.try_clone().map_err(Error::ReqHandlerError)?;
        let bytes = Region::bytes(queues, size);
        self.inflight = Some(Region::open(kept, 0, bytes, queues, size).map_err(fail)?);
        Ok((VhostUserInflight::new(bytes, 0, queues, size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = *inflight;
        if num_queues > QUEUES || queue_size > MAX_RING {
            return Err(Error::InvalidParam);
        }
        let region = Region::open(file, mmap_offset, mmap_size, num_queues, queue_size);
        let fail = |error| Error::ReqHandlerError(std::io::Error::other(error));
        self.inflight = Some(region.map_err(fail)?);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _backend: GpuBackend) -> Result<()> {
        unsupported("a disk has no screen")
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        unsupported("shared objects")
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        unsupported("memory slots")
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        unsupported("single memory regions")
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        unsupported("single memory regions")
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        unsupported("device state")
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported("device state")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported("shared memory regions")
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        unsupported("a log of changed memory")
    }
}
