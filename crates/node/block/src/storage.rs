//! The storage process of a node: all its replicas and all volumes that are attached to it.
//!
//! ```text
//!  DIR/state.json        what is to be served, replaced in one step with each change
//!  DIR/replicas/ID/      replicas, unless they were given another place
//!  DIR/records/ID.json   control planes of volumes that only this node knows
//!  DIR/witness/ID        what replicas answered: proves that they were not replaced by a copy
//!  DIR/control.sock      requests, one line of JSON each way: see `protocol`
//!  DIR/lock              held by the process that serves
//! ```
//!
//! A process that was killed serves again, by itself and on the same sockets, what it served
//! before: clients that connect again and repeat what was not answered (QEMU's
//! `reconnect-delay`) notice a pause. One that is asked to stop releases its volumes first, so
//! that the next one has nothing to compare.
//!
//! Engines of other nodes reach its replicas over TLS, and each replica only from the nodes that it
//! was granted to: see `grants`.
//!
//! It does not decide where replicas belong, which node may attach a volume or how to react to a
//! failure. Its supervisor does, as a [`Client`]; a volume whose record is kept elsewhere
//! ([`RecordPlace::Asked`]) requests it from the supervisor and waits as long as there is none.

mod access;
mod acl;
mod addresses;
mod base;
mod change;
mod client;
mod grants;
mod protocol;
mod records;
mod replicas;
mod serve;
mod state;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::acl::are_supported as supports_access_lists;
use self::change::Changes;
pub use self::client::{Client, ClientError};
pub use self::protocol::{
    Answered, Attachment, BaseOf, MAX_ANSWER, NewReplica, Question, RecordAnswer, RecordPlace,
    RecordQuestion, ReplicaAt, ReplicaState, Reply, Request, Secret, StorageStatus, VolumeState,
    WaitingEngine, WorkProgress,
};
use self::records::Records;
use self::state::StoredState;
use self::volumes::Live;
use crate::ids::{BootId, ReplicaId, VolumeId};
use crate::run::{Address, Driver, Handle, Listener, NotServed, Shard, TlsFiles, TlsFilesError};

/// The longest name of a socket that the kernel takes.
const MAX_SOCKET_PATH: usize = 107;

/// How a storage process is to run.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    pub dir: PathBuf,
    /// Where engines of other nodes reach the replicas here.
    pub listen: Option<Address>,
    /// This node's certificates: without them nothing leaves the machine.
    pub tls: Option<TlsFiles>,
    pub driver: Driver,
    /// Names this life of the kernel, if it is not to be asked: a test cuts the power of nothing
    /// but files.
    pub boot: Option<BootId>,
}

/// Why a storage process cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("--dir {dir} is used by another process")]
    InUse { dir: PathBuf },
    #[error("--dir {dir}: its path is too long for the sockets in it; {max} bytes are possible")]
    DirTooLong { dir: PathBuf, max: usize },
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not the state of a storage process")]
    State { path: PathBuf, source: serde_json::Error },
    #[error("{path} is of version {found}; this program knows version {known}")]
    Version { path: PathBuf, found: u32, known: u32 },
    #[error("cannot listen on {address}")]
    Listen { address: Address, source: io::Error },
    #[error("{address} is reachable by others and needs the certificates of a node")]
    NoTls { address: Address },
    #[error(transparent)]
    Tls(#[from] TlsFilesError),
    #[error("the data path failed")]
    Shard { source: io::Error },
}

/// A storage process that is ready to serve.
#[derive(Debug)]
pub struct Storage {
    shard: Shard,
    shared: Arc<Shared>,
    /// Held as long as it serves.
    _lock: File,
}

/// State shared by the threads of a storage process.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    handle: Handle,
    listen: Option<Address>,
    boot: BootId,
    records: Arc<Records>,
    changes: Arc<Changes>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: StoredState,
    live: BTreeMap<VolumeId, Live>,
    /// Why volumes that are to be served are not.
    failed: BTreeMap<VolumeId, String>,
    /// Replicas that are served, and why others are not.
    replicas: BTreeMap<ReplicaId, Result<(), NotServed>>,
    /// Operations on these are under way; others must wait.
    busy: BTreeSet<Thing>,
}

impl Storage {
    /// Locks the directory. [`run`](Self::run) serves the replicas and volumes that its state
    /// lists.
    pub fn new(options: &StorageOptions) -> Result<Self, StorageError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| StorageError::Io { path, source }
        };
        std::fs::create_dir_all(&options.dir).map_err(io(&options.dir))?;
        let dir = options.dir.canonicalize().map_err(io(&options.dir))?;
        let max = MAX_SOCKET_PATH - "/control.sock".len();
        if dir.as_os_str().len() > max {
            return Err(StorageError::DirTooLong { dir, max });
        }
        for inner in ["replicas", "records"] {
            let path = dir.join(inner);
            std::fs::create_dir_all(&path).map_err(io(&path))?;
        }
        let lock = lock(&dir)?;
        let state = StoredState::load(&dir)?;
        let mut shard =
            Shard::new(options.driver).map_err(|source| StorageError::Shard { source })?;
        shard.stay();
        match (&options.tls, &options.listen) {
            (Some(files), _) => shard.secure_from(files.clone())?,
            (None, Some(address)) if !address.is_local() => {
                return Err(StorageError::NoTls { address: address.clone() });
            }
            (None, _) => {}
        }
        let changes: Arc<Changes> = Arc::default();
        let notified = changes.clone();
        shard.on_waiting_engine(move || notified.notify());
        // Before clients can connect.
        shard.set_grants(state.replica_grants.clone());
        let listen = options.listen.as_ref().map(|address| listen(&mut shard, address));
        let inner = Inner {
            state,
            live: BTreeMap::new(),
            failed: BTreeMap::new(),
            replicas: BTreeMap::new(),
            busy: BTreeSet::new(),
        };
        let shared = Shared {
            dir,
            handle: shard.handle(),
            listen: listen.transpose()?,
            boot: options.boot.unwrap_or_else(crate::run::boot),
            records: Arc::default(),
            changes,
            inner: Mutex::new(inner),
        };
        Ok(Self { shard, shared: Arc::new(shared), _lock: lock })
    }

    /// To stop it from other threads.
    pub fn handle(&self) -> Handle {
        self.shared.handle.clone()
    }

    /// Where engines of other nodes connect, with the port that the kernel chose.
    pub fn address(&self) -> Option<&Address> {
        self.shared.listen.as_ref()
    }

    /// Whether files are served by io_uring.
    pub fn uses_uring(&self) -> bool {
        self.shard.uses_uring()
    }

    /// Serves until it is stopped; `ready` is called when everything that was attached is on its
    /// way and requests are taken.
    pub fn run(mut self, ready: impl FnOnce() + Send + 'static) -> Result<(), StorageError> {
        let path = self.shared.dir.join("control.sock");
        let io = |source| StorageError::Io { path: path.clone(), source };
        // The directory is locked, so whoever had it is gone.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let shared = self.shared.clone();
        let control = path.clone();
        let thread = std::thread::Builder::new().name("storage-control".to_owned());
        thread.spawn(move || serve::serve(&shared, &control, ready)).map_err(io)?;
        let result = self.shard.run().map_err(|source| StorageError::Shard { source });
        let _ = std::fs::remove_file(&path);
        result
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from what is being changed; nothing if another operation does.
    fn busy(&self, thing: Thing) -> Option<Busy<'_>> {
        let free = self.inner().busy.insert(thing);
        free.then(|| Busy { shared: self, thing })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Volume(VolumeId),
    Replica(ReplicaId),
}

/// Something is being changed, until this is dropped.
struct Busy<'a> {
    shared: &'a Shared,
    thing: Thing,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.shared.inner().busy.remove(&self.thing);
    }
}

fn listen(shard: &mut Shard, address: &Address) -> Result<Address, StorageError> {
    let fail = |source| StorageError::Listen { address: address.clone(), source };
    let listener = Listener::bind(address).map_err(fail)?;
    let bound = listener.address().map_err(fail)?;
    shard.listen_for_engines(listener).map_err(fail)?;
    Ok(bound)
}

/// Keeps others out for as long as the file is open, whatever happens to this process.
fn lock(dir: &Path) -> Result<File, StorageError> {
    let path = dir.join("lock");
    let io = |source| StorageError::Io { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StorageError::InUse { dir: dir.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(io(source)),
    }
}
