//! Where a store lives and how much history it keeps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::seal::Sealing;

#[derive(Debug, Clone)]
pub struct Config {
    pub engine: Engine,
    pub retention: Retention,
    /// Encryption of values; none by default.
    pub sealing: Arc<Sealing>,
}

impl Config {
    /// A store in one SQLite file with the usual retention.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        let sqlite = SqliteConfig { path: path.into(), quota: None };
        Self {
            engine: Engine::Sqlite(sqlite),
            retention: Retention::default(),
            sealing: Arc::default(),
        }
    }

    /// A store in etcd with the usual retention.
    pub fn etcd(etcd: EtcdConfig) -> Self {
        Self {
            engine: Engine::Etcd(etcd),
            retention: Retention::default(),
            sealing: Arc::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Engine {
    Sqlite(SqliteConfig),
    Etcd(EtcdConfig),
}

#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// The database file. Its directory must exist; `-wal`, `-shm` and `.lock`
    /// files appear beside it.
    pub path: PathBuf,
    /// The size in bytes above which writes are refused as if the disk were full.
    pub quota: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// Like `https://10.0.0.1:2379`; all of one cluster.
    pub endpoints: Vec<String>,
    pub tls: Option<EtcdTls>,
    /// The prefix of all our keys. No slash at its end.
    pub prefix: String,
}

impl EtcdConfig {
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, tls: None, prefix: "/registry".to_owned() }
    }
}

/// PEM files; certificate and key go together.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    pub ca: PathBuf,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// How much history stays available to watches and to lists of the past.
///
/// The events of a burst of changes are useful to watchers that lost their connection during it,
/// and those reconnect soon. So they are kept for a short time, and the long retention is for
/// tables with few changes.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Events older than this may be dropped.
    pub age: Duration,
    /// Events are dropped earlier when the values that only they refer to exceed this many bytes per
    /// table.
    pub bytes: usize,
    /// Events older than this may be dropped when they hold more than `calm` bytes per table.
    pub fresh: Duration,
    pub calm: usize,
    /// The minimum of events per table, which the other limits do not drop.
    pub events: usize,
}

impl Retention {
    /// How often events that may be dropped are searched for.
    pub(crate) fn pace(&self) -> Duration {
        (self.age.min(self.fresh) / 10).clamp(Duration::from_millis(50), Duration::from_secs(15))
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            // etcd's, as Kubernetes has it compacted.
            age: Duration::from_secs(300),
            bytes: 16 << 20,
            // The minimum that Kubernetes' watch cache keeps.
            fresh: Duration::from_secs(75),
            calm: 512 << 10,
            events: 100,
        }
    }
}
