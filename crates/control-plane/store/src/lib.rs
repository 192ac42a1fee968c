//! Durable keys, values and revisions, and the history between them.
//!
//! A [`Store`] keeps bytes under `(table, name)` and gives every successful write
//! the next [`Revision`] of one sequence that spans all tables and is never reused.
//! It is two halves behind one handle:
//!
//! ```text
//!   write ──► engine (SQLite file | etcd) ──► durable ──► mirror ──► get, list, watch
//! ```
//!
//! The *engine* decides whether a write succeeds and makes it durable. The *mirror*
//! holds the whole current state and the recent events in memory and answers every
//! read. Only the engine feeds the mirror, in revision order and after the write is
//! synced, which gives the invariants that the rest of the system needs:
//!
//! - no revision is visible before it is durable;
//! - a write that returned is visible to every later read of the same handle;
//! - a list at revision R followed by a watch from R misses nothing and repeats nothing.
//!
//! The crate knows nothing of Kubernetes: the caller's [`Shape`] defines the meaning of a value,
//! and the form in which it is kept in memory.

mod config;
mod etcd;
mod mirror;
mod reencrypt;
mod revision;
mod seal;
mod shape;
mod sqlite;
mod store;
mod watch;
mod write;

pub use config::{Config, Engine, EtcdConfig, EtcdTls, Retention, SqliteConfig};
pub use etcd::{
    CopyError, CopyProgress, EtcdBackupError, LinkError, OpenError as EtcdOpenError, backup_etcd,
    copy, raise_revisions,
};
pub use mirror::{Compacted, Page, Range};
pub use reencrypt::{ReencryptError, reencrypt};
pub use revision::Revision;
pub use seal::{Method, SealError, SealKey, SealRule, Sealing, SecretError, TableFilter};
pub use shape::{Event, Shape, StoredVersion};
pub use sqlite::{BackupError, OpenError as SqliteOpenError, RestoreError, backup, restore};
pub use store::{FenceError, OpenError, Store, Unhealthy};
pub use watch::{WatchError, Watcher};
pub use write::{Cause, Expect, KeyError, MAX_VALUE, Write, WriteChange, WriteError, Written};
