//! Backups of volumes in the format of Longhorn's backupstore, on S3 buckets and in directories.
//!
//! `url` reads the URLs of targets and backups, `layout` says which file is where, `config` how
//! `volume.cfg` and `backup_*.cfg` are written, `block` how a block is named and compressed: all
//! pure. `target` opens a bucket or a directory; `store` reads what is there, `create`, `restore`
//! and `delete` change it under the locks of `lock`.
//!
//! A backup is complete when its configuration has a time of creation, which is written last. This
//! crate knows neither Kubernetes nor where the data of a volume comes from.

mod block;
mod config;
mod create;
mod delete;
mod layout;
mod lock;
mod restore;
mod store;
mod target;
mod url;

pub use block::{Compression, UnknownCompression};
pub use config::{BackupConfig, BlockRef, VolumeConfig};
pub use create::{BackupRequest, BackupResult, BlockReader, CreateError, CreateProgress};
pub use delete::DeleteError;
pub use layout::{NameError, is_valid_name};
pub use lock::LockError;
pub use restore::{BlockWriter, RestoreError};
pub use store::{BackupStore, StoreError};
pub use target::{Credentials, TargetError};
pub use url::{BackupUrl, TargetUrl, UrlError};

/// Bytes of a block unless a backup says otherwise.
pub const BLOCK_SIZE: u64 = 2 << 20;

#[cfg(test)]
mod tests;
