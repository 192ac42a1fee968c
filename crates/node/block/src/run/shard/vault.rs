//! Unlocking encrypted volumes, and changing their passphrases.
//!
//! ```text
//!  engine active ─► thread: reads the header through the engine, tries the passphrase (slow)
//!                     └─► Command::Unlock ─► clients are let in, or the volume ends and says why
//! ```

use std::io;
use std::sync::mpsc;

use bytes::Bytes;

use super::Shard;
use super::admin::Handle;
use super::client::Origin;
use super::engine::VolumeKey;
use crate::crypt::luks::{self, Cost, HeaderDisk, LuksError};
use crate::crypt::{Cipher, Passphrase};
use crate::repl::engine::{Command, Event, GuestReply, GuestRequest, GuestResult, LockFault};

/// A piece of a header that is read or written at once.
const PIECE: usize = 256 << 10;

/// How a volume is encrypted.
#[derive(Clone, Debug)]
pub struct Encryption {
    pub passphrase: Passphrase,
    /// Makes a header if the volume is empty.
    pub format: bool,
    /// Of guessing the passphrase of a header that is made.
    pub cost: Cost,
}

/// A change of the passphrases that open a volume.
#[derive(Clone, Debug)]
pub enum KeyChange {
    Add { known: Passphrase, new: Passphrase, cost: Cost },
    Change { old: Passphrase, new: Passphrase, cost: Cost },
    Remove { passphrase: Passphrase },
}

impl Handle {
    /// Changes who can open an encrypted volume that is served. Takes as long as guessing does.
    pub fn change_keys(&self, volume: VolumeKey, change: &KeyChange) -> Result<(), LuksError> {
        let disk = &mut Remote { handle: self.clone(), volume };
        match change {
            KeyChange::Add { known, new, cost } => luks::add_passphrase(disk, known, new, *cost),
            KeyChange::Change { old, new, cost } => luks::change_passphrase(disk, old, new, *cost),
            KeyChange::Remove { passphrase } => luks::remove_passphrase(disk, passphrase),
        }
    }
}

impl Shard {
    /// Has an encrypted volume unlocked; clients are let in after that.
    pub(super) fn begin_unlock(&mut self, at: usize, encryption: Encryption) {
        let handle = self.handle();
        let volume = VolumeKey { at, life: self.volumes[at].life };
        let thread = std::thread::Builder::new().name("block-unlock".to_owned());
        let spawned = thread.spawn(move || {
            let result = unlock(&handle, volume, &encryption);
            handle.with(move |shard| shard.unlocked(volume, result));
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start a thread to unlock a volume");
            let fault = Command::Unlock(Err(LockFault::Unreadable));
            self.volumes[at].events.push_back(Event::Command(fault));
        }
    }

    fn unlocked(&mut self, volume: VolumeKey, result: Result<Cipher, LockFault>) {
        let Some(at) = self.place(volume) else { return };
        let opens = result.is_ok();
        self.engine_event(at, Event::Command(Command::Unlock(result)));
        if opens {
            self.let_in(at);
        }
    }
}

fn unlock(
    handle: &Handle,
    volume: VolumeKey,
    encryption: &Encryption,
) -> Result<Cipher, LockFault> {
    let disk = &mut Remote { handle: handle.clone(), volume };
    let Encryption { passphrase, format, cost } = encryption;
    let unlocked = match luks::unlock(disk, passphrase) {
        Err(LuksError::NotEncrypted) if *format => luks::format(disk, passphrase, *cost),
        other => other,
    };
    unlocked.map_err(|error| {
        let why = fault(&error);
        tracing::error!(%error, "cannot unlock the volume");
        why
    })
}

fn fault(error: &LuksError) -> LockFault {
    match error {
        LuksError::WrongPassphrase | LuksError::Empty => LockFault::WrongPassphrase,
        LuksError::NotEncrypted => LockFault::NotEncrypted,
        LuksError::HoldsData => LockFault::HoldsData,
        LuksError::Damaged => LockFault::Damaged,
        LuksError::Unsupported { .. } => LockFault::Unsupported,
        LuksError::Full | LuksError::Last | LuksError::Io { .. } => LockFault::Unreadable,
    }
}

/// The header of a volume that a shard serves, from another thread.
struct Remote {
    handle: Handle,
    volume: VolumeKey,
}

impl Remote {
    fn ask(&self, request: GuestRequest) -> io::Result<GuestReply> {
        let (answer, answered) = mpsc::channel();
        let volume = self.volume;
        self.handle.with(move |shard| shard.guest_from_thread(volume, request, answer));
        let result = answered.recv().map_err(|_| io::ErrorKind::NotConnected)?;
        result.map_err(io::Error::other)
    }
}

impl HeaderDisk for Remote {
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut found = Vec::with_capacity(len);
        while found.len() < len {
            let length = (len - found.len()).min(PIECE) as u32;
            let offset = offset + found.len() as u64;
            match self.ask(GuestRequest::ReadHeader { offset, length })? {
                GuestReply::Data(data) if !data.is_empty() => found.extend_from_slice(&data),
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(found)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        for (at, piece) in (offset..).step_by(PIECE).zip(data.chunks(PIECE)) {
            let data = Bytes::copy_from_slice(piece);
            self.ask(GuestRequest::WriteHeader { offset: at, data })?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask(GuestRequest::Flush).map(drop)
    }
}

/// Another thread waits for a request.
#[derive(Debug)]
pub(super) struct Waiter(mpsc::Sender<GuestResult>);

impl Waiter {
    pub(super) fn send(self, result: GuestResult) {
        let _ = self.0.send(result);
    }
}

impl Shard {
    fn guest_from_thread(
        &mut self,
        volume: VolumeKey,
        request: GuestRequest,
        answer: mpsc::Sender<GuestResult>,
    ) {
        if let Some(at) = self.place(volume) {
            self.volumes[at].ask(Origin::Thread(Waiter(answer)), request);
        }
    }
}
