//! Guests that share their memory: their rings are served here, between the sockets.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use super::Shard;
use super::admin::Handle;
use super::client::Origin;
use super::engine::VolumeKey;
use super::sources::Source;
use crate::repl::engine::{GuestError, GuestReply, GuestRequest, GuestResult};
use crate::run::poll::{PollInterest, Token};
use crate::vhost::request::{Kind, Status};
use crate::vhost::{
    Attach, DeviceId, Memory, Notice, Ring, RingError, Setup, TakenRequest, converse,
};

/// A disk of a guest.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) volume: usize,
    rings: BTreeMap<usize, Token>,
    notice: Option<Notice>,
    /// To end the conversation.
    stream: UnixStream,
}

/// A ring among what a shard waits for.
#[derive(Debug)]
pub(super) struct RingSource {
    pub(super) ring: Ring,
    pub(super) device: DeviceId,
    index: usize,
}

impl Shard {
    /// Lets in the QEMU that has connected.
    pub(super) fn accept_guest(&mut self, token: Token) {
        loop {
            let Some(Source::GuestListener { volume, listener }) = self.sources.get(token) else {
                return;
            };
            let at = *volume;
            let stream = match listener.accept_unix() {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a guest");
                    return;
                }
            };
            if let Err(error) = self.meet(at, stream) {
                tracing::warn!(%error, "cannot serve a guest");
            }
        }
    }

    fn meet(&mut self, at: usize, stream: UnixStream) -> std::io::Result<()> {
        let device = self.next_device;
        self.next_device += 1;
        let volume = VolumeKey { at, life: self.volumes[at].life };
        let attach = Attached { handle: self.handle.clone(), device, volume };
        let kept = stream.try_clone()?;
        let thread = std::thread::Builder::new().name("block-guest".to_owned());
        thread.stack_size(256 << 10).spawn(move || converse(device, stream, Box::new(attach)))?;
        let rings = BTreeMap::new();
        self.guests.insert(device, Guest { volume: at, rings, notice: None, stream: kept });
        Ok(())
    }

    fn ring_start(&mut self, device: DeviceId, index: usize, setup: Setup) -> bool {
        let Some(guest) = self.guests.get_mut(&device) else { return false };
        let ring = match Ring::new(setup) {
            Ok(ring) => ring,
            Err(error) => {
                tracing::warn!(device, index, %error, "cannot serve virtqueue");
                return false;
            }
        };
        let token = self.sources.insert(Source::Ring(Box::new(RingSource { ring, device, index })));
        guest.rings.insert(index, token);
        let Some(source) = self.sources.get(token) else { return false };
        if self.poll.add(source, token, PollInterest::READ).is_err() {
            self.end_ring(token);
            return false;
        }
        // Requests that were in the ring before it started do not cause a kick.
        self.ring_ready(token);
        true
    }

    fn ring_stop(&mut self, device: DeviceId, index: usize, done: mpsc::Sender<u16>) {
        let token = self.guests.get(&device).and_then(|guest| guest.rings.get(&index).copied());
        let Some(token) = token else { return };
        if let Some(Source::Ring(source)) = self.sources.get_mut(token) {
            source.ring.drain(done);
        }
        self.end_if_drained(token);
    }

    fn end_if_drained(&mut self, token: Token) {
        if let Some(Source::Ring(source)) = self.sources.get_mut(token)
            && source.ring.is_drained()
        {
            source.ring.notify();
            self.end_ring(token);
        }
    }

    fn end_ring(&mut self, token: Token) {
        if let Some(Source::Ring(source)) = self.sources.remove(token)
            && let Some(guest) = self.guests.get_mut(&source.device)
        {
            guest.rings.remove(&source.index);
        }
    }

    /// Unanswered requests stay in flight, for the next process that the guest connects to.
    pub(super) fn guest_gone(&mut self, device: DeviceId) {
        let Some(guest) = self.guests.remove(&device) else { return };
        let _ = guest.stream.shutdown(std::net::Shutdown::Both);
        for token in guest.rings.into_values() {
            self.sources.remove(token);
        }
    }

    /// Ends the devices of a volume.
    pub(super) fn guests_of(&self, at: usize) -> Vec<DeviceId> {
        self.guests.iter().filter(|(_, guest)| guest.volume == at).map(|(id, _)| *id).collect()
    }

    /// Notifies the guests of a volume that it has another size.
    pub(super) fn guests_grow(&self, at: usize) {
        let guests = self.guests.values().filter(|guest| guest.volume == at);
        guests.filter_map(|guest| guest.notice.as_ref()).for_each(Notice::config_changed);
    }

    pub(super) fn close_rings(&mut self, at: usize) {
        for device in self.guests_of(at) {
            for token in self.guests[&device].rings.values() {
                if let Some(Source::Ring(source)) = self.sources.get_mut(*token) {
                    source.ring.close();
                }
            }
        }
    }

    /// A guest has kicked, or may have more.
    pub(super) fn ring_ready(&mut self, token: Token) {
        loop {
            let Some(Source::Ring(source)) = self.sources.get_mut(token) else { return };
            let Some(guest) = self.guests.get(&source.device) else { return };
            let at = guest.volume;
            if self.volumes[at].engine.is_saturated() {
                return self.paused.push(token);
            }
            match source.ring.take() {
                Ok(Some(taken)) => self.ring_asks(token, at, taken),
                Ok(None) => return self.emptied.push(token),
                Err(error) => return self.ring_broken(token, &error),
            }
        }
    }

    /// Nothing that it says can be believed any more; the guest has to reset its device.
    fn ring_broken(&mut self, token: Token, error: &RingError) {
        tracing::warn!(%error, "virtqueue stopped");
        if let Some(Source::Ring(source)) = self.sources.get_mut(token) {
            source.ring.close();
        }
    }

    fn ring_asks(&mut self, token: Token, at: usize, taken: TakenRequest) {
        let Some(Source::Ring(source)) = self.sources.get_mut(token) else { return };
        let TakenRequest { head, kind } = taken;
        let durable = source.ring.durable;
        let request = match kind {
            Kind::Read { offset, length } => GuestRequest::Read { offset, length },
            Kind::Write { offset, data } => GuestRequest::Write { offset, data, fua: durable },
            Kind::Flush => GuestRequest::Flush,
            Kind::Discard { offset, length } if length > 0 => {
                GuestRequest::Discard { offset, length }
            }
            Kind::WriteZeroes { offset, length } if length > 0 => {
                GuestRequest::WriteZeroes { offset, length, fua: durable }
            }
            Kind::Discard { .. } | Kind::WriteZeroes { .. } => {
                return self.complete_in_ring(token, head, &[], Status::Ok);
            }
            Kind::Name => {
                source.ring.answer_name(head);
                return self.rung.push(token);
            }
            Kind::Unsupported => {
                return self.complete_in_ring(token, head, &[], Status::Unsupported);
            }
            Kind::Bad => return self.complete_in_ring(token, head, &[], Status::IoError),
        };
        self.volumes[at].ask(Origin::Ring { token, head }, request);
    }

    pub(super) fn ring_answered(&mut self, token: Token, head: u16, result: GuestResult) {
        match result {
            Ok(GuestReply::Data(data)) => self.complete_in_ring(token, head, &data, Status::Ok),
            Ok(GuestReply::Done | GuestReply::Map(_)) => {
                self.complete_in_ring(token, head, &[], Status::Ok);
            }
            // Stays in flight: the next process that serves the volume gets the request again.
            Err(GuestError::Shutdown) => {}
            Err(_) => self.complete_in_ring(token, head, &[], Status::IoError),
        }
    }

    fn complete_in_ring(&mut self, token: Token, head: u16, data: &[u8], status: Status) {
        let Some(Source::Ring(source)) = self.sources.get_mut(token) else { return };
        if source.ring.answer(head, data, status) {
            self.rung.push(token);
        }
    }

    /// From now on guests kick again for new requests in the rings that were emptied. Requests
    /// that they added during this turn are taken in the next.
    pub(super) fn listen_to_rings(&mut self) {
        for token in std::mem::take(&mut self.emptied) {
            let Some(Source::Ring(source)) = self.sources.get_mut(token) else { continue };
            match source.ring.listen() {
                Ok(true) => self.waiting_rings.push(token),
                Ok(false) => {}
                Err(error) => self.ring_broken(token, &error),
            }
        }
    }

    /// Notifies guests of their answers, once for all of a turn.
    pub(super) fn ring_guests(&mut self) {
        for token in std::mem::take(&mut self.rung) {
            if let Some(Source::Ring(source)) = self.sources.get_mut(token) {
                source.ring.notify();
            }
            self.end_if_drained(token);
        }
    }
}

/// The shard handle of a device's thread.
struct Attached {
    handle: Handle,
    device: DeviceId,
    volume: VolumeKey,
}

impl Attach for Attached {
    fn size(&self) -> u64 {
        let volume = self.volume;
        let size = move |shard: &mut Shard| {
            shard.place(volume).map_or(0, |at| shard.volumes[at].engine.status().size)
        };
        self.handle.with(size).unwrap_or(0)
    }

    fn start(&self, ring: usize, setup: Setup) -> bool {
        let device = self.device;
        self.handle.with(move |shard| shard.ring_start(device, ring, setup)).unwrap_or(false)
    }

    fn stop(&self, ring: usize, done: mpsc::Sender<u16>) {
        let device = self.device;
        self.handle.with(move |shard| shard.ring_stop(device, ring, done));
    }

    fn set_call(&self, ring: usize, call: Option<File>) {
        self.each(move |at, it| {
            if at == ring {
                it.set_call(call.as_ref().and_then(|call| call.try_clone().ok()));
            }
        });
    }

    fn set_memory(&self, memory: Arc<Memory>) {
        self.each(move |_, ring| ring.set_memory(memory.clone()));
    }

    fn set_notice(&self, notice: Notice) {
        let device = self.device;
        self.handle.with(move |shard| {
            if let Some(guest) = shard.guests.get_mut(&device) {
                guest.notice = Some(notice);
            }
        });
    }

    fn end(&self) {
        let device = self.device;
        self.handle.with(move |shard| shard.guest_gone(device));
    }
}

impl Attached {
    /// Does something with each ring of the device.
    fn each(&self, what: impl Fn(usize, &mut Ring) + Send + 'static) {
        let device = self.device;
        self.handle.with(move |shard| {
            let Some(guest) = shard.guests.get(&device) else { return };
            for (index, token) in &guest.rings {
                if let Some(Source::Ring(source)) = shard.sources.get_mut(*token) {
                    what(*index, &mut source.ring);
                }
            }
        });
    }
}
