//! The volumes of this node: attaches, queries and detaches them.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::access::give;
use super::change::Changes;
use super::protocol::{Attachment, NewReplica, RecordPlace, VolumeState};
use super::records::AskedControl;
use super::serve::Refused;
use super::{MAX_SOCKET_PATH, Shared, Thing};
use crate::ids::{EngineId, ReplicaId, VolumeId};
use crate::repl::control::{ControlError, ControlPlane, FileControl, Record};
use crate::repl::engine::{Config, Notice};
use crate::run::{
    Address, AdminError, AdminReply, AdminRequest, Listener, Place, VolumeKey, VolumeOptions,
    VolumeStatus,
};

/// A volume that is served.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) key: VolumeKey,
    /// Why it is not served any more.
    over: Arc<Mutex<Option<String>>>,
}

/// Why a volume was not attached, or what was asked of it not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("volume {volume} is being changed; try again")]
    Busy { volume: VolumeId },
    #[error("volume {volume} is not attached")]
    NotAttached { volume: VolumeId },
    #[error("volume {volume} is attached; detach it first")]
    Attached { volume: VolumeId },
    #[error("volume {volume} is attached in another way; detach it first")]
    Different { volume: VolumeId },
    #[error("nbd, nbdTcp or vhost is needed: where clients connect")]
    NoFrontEnd,
    #[error("replicas: a volume has at least one")]
    NoReplicas,
    #[error("replicas: {replica} is named twice")]
    Twice { replica: ReplicaId },
    #[error("replicas: {replica} is not on this node; say where it is with `at`")]
    NoReplica { replica: ReplicaId },
    #[error("{field} {path:?} must be absolute, and no longer than {MAX_SOCKET_PATH} bytes")]
    Path { field: &'static str, path: PathBuf },
    #[error("cannot listen on {address}")]
    Listen { address: Address, source: io::Error },
    #[error("volume {volume} has no record on this node")]
    NoRecord { volume: VolumeId },
    #[error("cannot use the record of volume {volume}")]
    Record { volume: VolumeId, source: ControlError },
    #[error("volume {volume} is not served: {why}")]
    Over { volume: VolumeId, why: String },
    #[error("cannot do that to volume {volume}")]
    Admin { volume: VolumeId, source: AdminError },
    #[error("no passphrase is known for volume {volume}")]
    NoPassphrase { volume: VolumeId },
    #[error("cannot set the owner of {path}")]
    Give { path: PathBuf, source: io::Error },
    #[error("the storage process is ending; try again")]
    Ending,
}

impl Shared {
    /// Serves again what was attached.
    pub(super) fn restore(self: &Arc<Self>) {
        let boot = self.boot.to_string();
        let (attachments, survived) = {
            let mut inner = self.inner();
            // A guest that was served in another life of the kernel is gone.
            let survived = inner.state.boot == boot;
            inner.state.boot = boot;
            (inner.state.volumes.values().cloned().collect::<Vec<_>>(), survived)
        };
        for attachment in attachments {
            if attachment.encrypted {
                // The client that knows the passphrase is not connected yet.
                let (shared, thread) = (Arc::clone(self), std::thread::Builder::new());
                let reopen = move || shared.reopen(&attachment, survived);
                if let Err(error) = thread.name("storage-unlock".to_owned()).spawn(reopen) {
                    tracing::error!(%error, "cannot wait for a passphrase");
                }
            } else {
                self.reopen(&attachment, survived);
            }
        }
    }

    /// Makes a volume of this node alone.
    pub(super) fn create(&self, volume: VolumeId, size: u64) -> Result<(), Refused> {
        // The record comes last: without it there is no volume.
        let _busy = self.busy(Thing::Volume(volume)).ok_or(VolumeError::Busy { volume })?;
        let path = self.record(volume);
        if path.exists() {
            return Ok(());
        }
        let replica = ReplicaId(volume.0);
        self.create_replica(&NewReplica {
            volume,
            replica,
            size,
            dir: None,
            existing: false,
            base: None,
        })?;
        FileControl::create(&path, &Record::new([replica]))
            .map_err(|source| VolumeError::Record { volume, source })?;
        Ok(())
    }

    pub(super) fn delete(&self, volume: VolumeId) -> Result<(), Refused> {
        let _busy = self.busy(Thing::Volume(volume)).ok_or(VolumeError::Busy { volume })?;
        if self.inner().state.volumes.contains_key(&volume) {
            return Err(VolumeError::Attached { volume }.into());
        }
        let path = self.record(volume);
        for path in [path.with_extension("lock"), path] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let source = ControlError::Io(error);
                    return Err(VolumeError::Record { volume, source }.into());
                }
                _ => {}
            }
        }
        let of =
            |(id, kept): (&ReplicaId, &super::state::Kept)| (kept.volume == volume).then_some(*id);
        let replicas: Vec<ReplicaId> = self.inner().state.replicas.iter().filter_map(of).collect();
        for replica in replicas {
            self.remove_replica(replica)?;
        }
        Ok(())
    }

    pub(super) fn attach(&self, attachment: Attachment) -> Result<(), Refused> {
        let volume = attachment.volume;
        check(&attachment)?;
        let _busy = self.busy(Thing::Volume(volume)).ok_or(VolumeError::Busy { volume })?;
        {
            let inner = self.inner();
            let served = inner.live.get(&volume).is_some_and(|live| live.over().is_none());
            match inner.state.volumes.get(&volume) {
                Some(same) if *same == attachment && served => return Ok(()),
                Some(other) if *other != attachment && served => {
                    return Err(VolumeError::Different { volume }.into());
                }
                _ => {}
            }
        }
        self.forget(volume);
        self.open_volume(&attachment, false)?;
        let mut inner = self.inner();
        inner.state.volumes.insert(volume, attachment);
        Ok(self.save(&inner)?)
    }

    /// `survived`: a guest that used the volume before may still be there.
    pub(super) fn open_volume(
        &self,
        attachment: &Attachment,
        survived: bool,
    ) -> Result<(), VolumeError> {
        let volume = attachment.volume;
        let control = self.control(attachment)?;
        let mut places = Vec::new();
        for replica in &attachment.replicas {
            let here = matches!(self.inner().replicas.get(&replica.id), Some(Ok(())));
            places.push((
                replica.id,
                match &replica.at {
                    Some(address) => Place::of(Some(address.clone()), replica.node.clone()),
                    // With others there, one that cannot be opened is no reason to stop.
                    None if here || attachment.replicas.len() > 1 => Place::Here,
                    None => return Err(VolumeError::NoReplica { replica: replica.id }),
                },
            ));
        }
        let encryption = if attachment.encrypted { Some(self.unlocking(volume)?) } else { None };
        let nbd = attachment.nbd.iter().cloned().map(Address::Unix);
        let listeners = bind(nbd.chain(attachment.nbd_tcp.map(Address::Tcp)))?;
        let guests = bind(attachment.vhost.iter().cloned().map(Address::Unix))?;
        let grant = self.inner().state.grants.get(&volume).copied();
        give(attachment, grant.unwrap_or_default())?;
        let over = Arc::new(Mutex::new(None));
        let mut config = Config::new(volume, EngineId::random(), attachment.node.clone());
        config.guest_survived = survived;
        let options = VolumeOptions {
            config,
            replicas: places,
            control,
            name: volume.to_string(),
            listeners,
            guests,
            encryption,
            standby: attachment.standby,
            notices: notices(volume, over.clone(), self.changes.clone()),
        };
        let key = self.handle.with(move |shard| shard.add_volume(options));
        let key = key.ok_or(VolumeError::Ending)?;
        let mut inner = self.inner();
        inner.failed.remove(&volume);
        inner.live.insert(volume, Live { key, over });
        Ok(())
    }

    fn control(
        &self,
        attachment: &Attachment,
    ) -> Result<Box<dyn ControlPlane + Send>, VolumeError> {
        let volume = attachment.volume;
        match attachment.record {
            RecordPlace::Asked => {
                Ok(Box::new(AskedControl { records: self.records.clone(), volume }))
            }
            RecordPlace::File => {
                let path = self.record(volume);
                if !path.exists() {
                    return Err(VolumeError::NoRecord { volume });
                }
                let opened = FileControl::open(&path);
                let fail = |source| VolumeError::Record { volume, source };
                Ok(Box::new(opened.map_err(fail)?))
            }
        }
    }

    pub(super) fn detach(&self, volume: VolumeId) -> Result<(), Refused> {
        let _busy = self.busy(Thing::Volume(volume)).ok_or(VolumeError::Busy { volume })?;
        self.forget(volume);
        let mut inner = self.inner();
        if inner.state.volumes.remove(&volume).is_some() {
            self.save(&inner)?;
        }
        Ok(())
    }

    /// Releases a volume, if it is served.
    fn forget(&self, volume: VolumeId) {
        let key = self.inner().live.get(&volume).map(|live| live.key);
        if let Some(key) = key {
            // Takes as long as the volume's last requests and its record do.
            self.handle.release(key);
            self.inner().live.remove(&volume);
        }
    }

    pub(super) fn ask_volume(
        &self,
        volume: VolumeId,
        request: AdminRequest,
    ) -> Result<AdminReply, Refused> {
        let key = {
            let inner = self.inner();
            let live = inner.live.get(&volume).ok_or(VolumeError::NotAttached { volume })?;
            if let Some(why) = live.over() {
                return Err(VolumeError::Over { volume, why }.into());
            }
            live.key
        };
        let switches = matches!(request, AdminRequest::Switch);
        let (gone, came) = match &request {
            AdminRequest::Replace { old, new, at } => (Some(*old), Some((*new, at.clone(), None))),
            AdminRequest::AddReplica { replica, at, node } => {
                (Some(*replica), Some((*replica, at.clone(), node.clone())))
            }
            AdminRequest::DropReplica { replica } => (Some(*replica), None),
            _ => (None, None),
        };
        let asked = self.handle.ask(key, request);
        let reply = asked.map_err(|source| VolumeError::Admin { volume, source })?;
        if switches {
            let mut inner = self.inner();
            if let Some(attachment) = inner.state.volumes.get_mut(&volume) {
                attachment.standby = false;
            }
            self.save(&inner)?;
        }
        if gone.is_some() {
            let mut inner = self.inner();
            if let Some(attachment) = inner.state.volumes.get_mut(&volume) {
                attachment.replicas.retain(|it| Some(it.id) != gone);
                let came = came.map(|(id, at, node)| super::ReplicaAt { id, at, node });
                attachment.replicas.extend(came);
            }
            self.save(&inner)?;
        }
        Ok(reply)
    }

    pub(super) fn volume_states(&self) -> Vec<VolumeState> {
        let attachments: Vec<(Attachment, Option<VolumeKey>, Option<String>)> = {
            let inner = self.inner();
            let of = |attachment: &Attachment| match inner.live.get(&attachment.volume) {
                Some(live) => (attachment.clone(), Some(live.key), live.over()),
                None => {
                    let why = inner.failed.get(&attachment.volume).cloned();
                    (attachment.clone(), None, why)
                }
            };
            inner.state.volumes.values().map(of).collect()
        };
        let state = |(attachment, key, error): (Attachment, Option<VolumeKey>, Option<String>)| {
            let status = key.and_then(|key| self.volume_status(key));
            VolumeState { attachment, status, error }
        };
        attachments.into_iter().map(state).collect()
    }

    fn volume_status(&self, key: VolumeKey) -> Option<VolumeStatus> {
        match self.handle.ask(key, AdminRequest::Status) {
            Ok(AdminReply::Status(status)) => Some(*status),
            _ => None,
        }
    }

    fn record(&self, volume: VolumeId) -> PathBuf {
        self.dir.join("records").join(format!("{volume}.json"))
    }
}

impl Live {
    fn over(&self) -> Option<String> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn bind(addresses: impl Iterator<Item = Address>) -> Result<Vec<Listener>, VolumeError> {
    let one = |address| {
        Listener::bind(&address).map_err(|source| VolumeError::Listen { address, source })
    };
    addresses.map(one).collect()
}

/// Checks an attachment alone.
fn check(attachment: &Attachment) -> Result<(), VolumeError> {
    let Attachment { nbd, nbd_tcp, vhost, .. } = attachment;
    if nbd.is_none() && nbd_tcp.is_none() && vhost.is_none() {
        return Err(VolumeError::NoFrontEnd);
    }
    for (field, path) in [("nbd", nbd), ("vhost", vhost)] {
        if let Some(path) = path
            && (path.is_relative() || path.as_os_str().len() > MAX_SOCKET_PATH)
        {
            return Err(VolumeError::Path { field, path: path.clone() });
        }
    }
    if attachment.replicas.is_empty() {
        return Err(VolumeError::NoReplicas);
    }
    let mut seen = BTreeSet::new();
    match attachment.replicas.iter().find(|it| !seen.insert(it.id)) {
        Some(twice) => Err(VolumeError::Twice { replica: twice.id }),
        None => Ok(()),
    }
}

/// Remembers why a volume ended, and logs every notice.
fn notices(
    volume: VolumeId,
    over: Arc<Mutex<Option<String>>>,
    changes: Arc<Changes>,
) -> Box<dyn FnMut(&Notice) + Send> {
    Box::new(move |notice| {
        tracing::info!(%volume, notice = ?notice, "volume");
        let why = match notice {
            Notice::Fenced { by } => format!("another engine took it as generation {by}"),
            Notice::Faulted { why } => why.to_string(),
            Notice::Closed => "it was released".to_owned(),
            _ => return changes.notify(),
        };
        *over.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        changes.notify();
    })
}
