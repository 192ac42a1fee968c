//! A volume with its replicas on one machine, and a file as its control plane: for benches, tests
//! and first experiments.
//!
//! ```text
//!  DIR/volume.json      which replicas there are        DIR/record.json   the control plane
//!  DIR/replica-N/       a replica's files               DIR/replica-N.sock its process
//!  DIR/control.sock     `status`, `snapshot` and so on  DIR/replica-N.log  what it says
//!  DIR/witness/         proof that a replica's files were not replaced by an older copy
//!  DIR/standby.sock     the same of an engine on standby
//! ```
//!
//! The engine runs in this process, each replica in one of its own, unless they are to be in this
//! one too. Any of them may be killed: a running process is found by its socket, and a missing one
//! is started. A volume is held by one engine at a time, by a lock on its directory; another may
//! be on standby, and is the heir of the lock.

mod control;
mod description;
mod heir;
mod process;
mod replace;
mod salvage;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::control::{ClientError, LabReply, LabRequest, ReplicaStatus, ask};
use self::description::Description;
use self::heir::Hold;
pub use self::heir::handover;
pub use self::process::{ServeError, ServeOptions, serve};
use self::replace::replace_unusable;
use self::salvage::read_claim;
pub use self::salvage::{Salvaged, salvage};
use super::{Address, Driver, Encryption, Handle, Listener, Place, Shard, VolumeOptions, chain};
use crate::crypt::luks::Cost;
use crate::crypt::{HEADER, Passphrase};
use crate::ids::{EngineId, ReplicaId, VolumeId};
use crate::repl::control::{ControlError, FileControl, Record};
use crate::repl::engine::{Config, Notice};
use crate::store::files::Directory;
use crate::store::geometry::{BLOCK, MAX_VOLUME};
use crate::store::{CreateError, CreateOptions, OpenError};

/// More copies than this are a mistake.
pub const MAX_REPLICAS: usize = 8;

/// Options of a laboratory.
pub struct LabOptions {
    pub dir: PathBuf,
    /// Needed for a new volume.
    pub size: Option<u64>,
    /// Needed for a new volume.
    pub replicas: Option<usize>,
    /// Where clients connect.
    pub nbd: Vec<Address>,
    /// Unix sockets that guests which share their memory connect to.
    pub vhost: Vec<PathBuf>,
    /// Serve the replicas in this process.
    pub in_process: bool,
    /// Leave the volume to the engine that has it until the first write, or [`handover`].
    pub standby: bool,
    pub driver: Driver,
    /// Makes a new volume an encrypted one; opens one that is.
    pub passphrase: Option<Passphrase>,
    /// The command that serves the replica in a directory: it ends up in [`serve`].
    pub spawn: Box<dyn Fn(&ServeOptions) -> Command + Send + Sync>,
    /// Is called with each event of the volume.
    pub notices: Box<dyn FnMut(&Notice) + Send>,
}

impl std::fmt::Debug for LabOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabOptions").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Why a volume cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("--size {size} is not possible: {reason}")]
    Size { size: u64, reason: &'static str },
    #[error("--size is needed for a new volume")]
    NoSize,
    #[error(
        "--size {requested} is not the size of the volume in {dir}, which is {found}; `resize` \
         changes it"
    )]
    OtherSize { dir: PathBuf, requested: u64, found: u64 },
    #[error("--replicas {count} is not possible: a volume has 1 to {MAX_REPLICAS}")]
    Replicas { count: usize },
    #[error("--replicas {requested} is not what the volume in {dir} has, which is {found}")]
    OtherReplicas { dir: PathBuf, requested: usize, found: usize },
    #[error("the volume in {dir} is encrypted: a passphrase is needed")]
    NoPassphrase { dir: PathBuf },
    #[error("the volume in {dir} is not encrypted; only a new one can be")]
    NotEncrypted { dir: PathBuf },
    #[error("--dir {dir} is used by another process")]
    InUse { dir: PathBuf },
    #[error("a standby engine is already running in --dir {dir}")]
    StandsBy { dir: PathBuf },
    #[error("--standby needs replicas in processes of their own, not --in-process")]
    StandbyInProcess,
    #[error("there is no replica {index}; they are 0 to {}", count - 1)]
    NoReplica { index: usize, count: usize },
    #[error("replica {index} is the only one in sync: there is nothing to salvage")]
    NothingToSalvage { index: usize },
    #[error("replica {live} is in sync and can be read; --force gives it up")]
    Live { live: usize },
    #[error("--dir {dir}: its path is too long for the sockets in it; {max} bytes are possible")]
    DirTooLong { dir: PathBuf, max: usize },
    #[error("{path} is not the description of a volume")]
    Description { path: PathBuf, source: serde_json::Error },
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: Address, source: io::Error },
    #[error("cannot create the replica in {path}")]
    Create { path: PathBuf, source: CreateError },
    #[error("cannot open the replica in {path}")]
    Open { path: PathBuf, source: OpenError },
    #[error("cannot start the process of replica {index}")]
    Spawn { index: usize, source: io::Error },
    #[error("replica {index} did not come up; see {log}")]
    NotUp { index: usize, log: PathBuf },
    #[error("cannot use the volume's record")]
    Record { source: ControlError },
    #[error("the data path failed")]
    Shard { source: io::Error },
    #[error("the volume is not served any more: {why}")]
    Over { why: String },
}

/// A volume that is ready to be served.
#[derive(Debug)]
pub struct Lab {
    shard: Shard,
    shared: Arc<Shared>,
    ended: Arc<Mutex<Option<End>>>,
}

/// Why a volume is not served any more.
struct End {
    why: String,
    /// Another engine serves it, with the same replicas.
    fenced: bool,
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// State shared by the threads of a laboratory.
pub(super) struct Shared {
    dir: PathBuf,
    description: Mutex<Description>,
    handle: Handle,
    driver: Driver,
    in_process: bool,
    /// Whether the volume is ours.
    hold: Mutex<Hold>,
    spawn: Box<dyn Fn(&ServeOptions) -> Command + Send + Sync>,
    /// Children that were started here, to be waited for.
    children: Mutex<Vec<std::process::Child>>,
    /// Why replicas cannot be used; they are replaced once the others serve the volume.
    unusable: Mutex<BTreeMap<usize, String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Lab {
    /// Makes the volume if there is none, starts what does not run, and takes the volume.
    pub fn new(options: LabOptions) -> Result<Self, LabError> {
        let LabOptions { dir, size, replicas, nbd, vhost, in_process, driver, .. } = options;
        let LabOptions { spawn, notices, passphrase, standby, .. } = options;
        check_size(size)?;
        if standby && in_process {
            return Err(LabError::StandbyInProcess);
        }
        if let Some(count) = replicas
            && !(1..=MAX_REPLICAS).contains(&count)
        {
            return Err(LabError::Replicas { count });
        }
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| LabError::Io { path, source }
        };
        std::fs::create_dir_all(&dir).map_err(io(&dir))?;
        let dir = dir.canonicalize().map_err(io(&dir))?;
        check_length(&dir)?;
        let hold = if standby { Hold::stand_by(&dir)? } else { Hold::take(&dir)? };
        let description = Description::load_or_create(&dir, size, replicas, passphrase.is_some())?;
        let encryption = passphrase.map(|passphrase| Encryption {
            passphrase,
            format: true,
            cost: Cost::default(),
        });
        let hidden = if description.encrypted { HEADER } else { 0 };
        // First, so that an address that is taken leaves nothing behind that runs.
        let listeners = bind(nbd)?;
        let guests = bind(vhost.into_iter().map(Address::Unix))?;
        let mut shard = Shard::new(driver).map_err(|source| LabError::Shard { source })?;
        let shared = Arc::new(Shared {
            dir: dir.clone(),
            handle: shard.handle(),
            driver,
            in_process,
            hold: Mutex::new(hold),
            spawn,
            children: Mutex::default(),
            unusable: Mutex::default(),
            description: Mutex::new(description.clone()),
        });
        let is_new = !dir.join("record.json").exists();
        let mut places = Vec::new();
        let mut unusable: Vec<(usize, LabError)> = Vec::new();
        for (index, replica) in description.replicas.iter().enumerate() {
            let path = shared.replica_dir(index);
            if is_new && !standby {
                create_replica(&path, description.volume, *replica, description.size + hidden)?;
            }
            let served = match in_process {
                true => read_claim(&dir, index, *replica).and_then(|_| {
                    let open = |source| LabError::Open { path: path.clone(), source };
                    shard.add_replica(&path).map(drop).map_err(open)
                }),
                false if standby => shared.start_replica(index).map(drop),
                false => read_claim(&dir, index, *replica)
                    .and_then(|_| shared.start_replica(index).map(drop)),
            };
            if let Err(error) = served {
                tracing::error!(index, error = chain(&error), "a replica cannot be served");
                unusable.push((index, error));
            }
            let place = match in_process {
                true => Place::Here,
                false => Place::At(Address::Unix(shared.socket(index))),
            };
            places.push((*replica, place));
        }
        if unusable.len() == places.len() {
            let (_, error) = unusable.remove(0);
            return Err(error);
        }
        shared.note_unusable(&unusable);
        let ended = Arc::new(Mutex::new(None));
        let volume = VolumeOptions {
            config: config(description.volume),
            replicas: places,
            control: Box::new(open_record(&dir, &description)?),
            name: String::new(),
            listeners,
            guests,
            encryption,
            standby,
            notices: keep_end(ended.clone(), replace_unusable(&shared, notices)),
        };
        shard.add_volume(volume);
        Ok(Self { shard, shared, ended })
    }

    /// To stop it, and to ask it, from other threads.
    pub fn handle(&self) -> Handle {
        self.shared.handle.clone()
    }

    /// Serves until it is stopped, or until the volume is lost to another engine.
    pub fn run(mut self) -> Result<(), LabError> {
        let control = heir::listen(&self.shared)?;
        let result = self.shard.run().map_err(|source| LabError::Shard { source });
        drop(self.shard);
        drop(control);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let fenced = ended.as_ref().is_some_and(|end| end.fenced);
        if !self.shared.in_process && !fenced && self.shared.is_held() {
            self.shared.stop_replicas();
        }
        result?;
        ended.map_or(Ok(()), |End { why, .. }| Err(LabError::Over { why }))
    }
}

fn bind(addresses: impl IntoIterator<Item = Address>) -> Result<Vec<Listener>, LabError> {
    let one =
        |address| Listener::bind(&address).map_err(|source| LabError::Listen { address, source });
    addresses.into_iter().map(one).collect()
}

/// Remembers why the volume ended, if not by a request.
fn keep_end(
    ended: Arc<Mutex<Option<End>>>,
    mut then: Box<dyn FnMut(&Notice) + Send>,
) -> Box<dyn FnMut(&Notice) + Send> {
    Box::new(move |notice| {
        let end = match notice {
            Notice::Fenced { by } => Some(End {
                why: format!("another engine took it as generation {by}"),
                fenced: true,
            }),
            Notice::Faulted { why } => Some(End { why: why.to_string(), fenced: false }),
            _ => None,
        };
        if end.is_some() {
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = end;
        }
        then(notice);
    })
}

fn config(volume: VolumeId) -> Config {
    Config {
        // Processes on one machine answer at once or are gone.
        open_wait: Duration::from_secs(2),
        ..Config::new(volume, EngineId::random(), "lab")
    }
}

fn check_size(size: Option<u64>) -> Result<(), LabError> {
    let Some(size) = size else { return Ok(()) };
    let reason = if size == 0 {
        "a volume is not empty"
    } else if !size.is_multiple_of(BLOCK) {
        "it is not a multiple of 4096"
    } else if size > MAX_VOLUME {
        "the largest volume is 15 TiB"
    } else {
        return Ok(());
    };
    Err(LabError::Size { size, reason })
}

/// The longest name of a socket, less what is put after the directory.
fn check_length(dir: &Path) -> Result<(), LabError> {
    const MAX: usize = 107 - "/replica-00.sock".len();
    match dir.as_os_str().len() <= MAX {
        true => Ok(()),
        false => Err(LabError::DirTooLong { dir: dir.to_owned(), max: MAX }),
    }
}

/// Makes the files of a replica, unless they are there.
fn create_replica(
    path: &Path,
    volume: VolumeId,
    replica: ReplicaId,
    size: u64,
) -> Result<(), LabError> {
    std::fs::create_dir_all(path)
        .map_err(|source| LabError::Io { path: path.to_owned(), source })?;
    let mut files = Directory::new(path);
    if crate::store::read_super(&mut files).is_ok_and(|found| found.replica == replica) {
        return Ok(());
    }
    let fail = |source| LabError::Create { path: path.to_owned(), source };
    crate::store::create(&mut files, &CreateOptions::new(volume, replica, size)).map_err(fail)
}

fn open_record(dir: &Path, description: &Description) -> Result<FileControl, LabError> {
    let path = dir.join("record.json");
    let fail = |source| LabError::Record { source };
    match path.exists() {
        true => FileControl::open(&path).map_err(fail),
        false => {
            let record = Record::new(description.replicas.iter().copied());
            FileControl::create(&path, &record).map_err(fail)
        }
    }
}
