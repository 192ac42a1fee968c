//! Reading what a target holds, and the few ways in which files are written and removed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{BackupConfig, VolumeConfig};
use crate::layout::{self, NameError, TargetLayout};

/// How long a lock waits for others to become visible.
const LOCK_DELAY: Duration = Duration::from_secs(2);
/// A configuration lists every block: 100 bytes for each of 2 MiB, so this is enough for 10 TiB.
const MAX_CONFIG: u64 = 512 << 20;

/// Backups of volumes in one place.
#[derive(Debug, Clone)]
pub struct BackupStore {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) layout: TargetLayout,
    pub(crate) lock_delay: Duration,
}

/// Why something could not be read from or written to a target.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("cannot {doing} {file}")]
    Request { doing: &'static str, file: String, source: object_store::Error },
    #[error("{file} cannot be understood")]
    Config { file: String, source: serde_json::Error },
    #[error("{file} has {size} bytes, more than a configuration has")]
    Overlong { file: String, size: u64 },
    #[error("{file} does not exist")]
    Missing { file: String },
}

impl BackupStore {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, path: &str) -> Self {
        Self { store, layout: TargetLayout::new(path), lock_delay: LOCK_DELAY }
    }

    /// Whether the target can be reached with these credentials.
    pub async fn check(&self) -> Result<(), StoreError> {
        let at = self.layout.volumes();
        let listed = self.store.list_with_delimiter(Some(&at)).await;
        listed.map(drop).map_err(failed("list", &at))
    }

    /// The names of all volumes with backups.
    pub async fn volumes(&self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for first in self.folders(&self.layout.volumes()).await? {
            for second in self.folders(&first).await? {
                for volume in self.folders(&second).await? {
                    let name = volume.filename().unwrap_or_default();
                    // Longhorn's locks of backing images are beside volumes.
                    if layout::is_valid_name(name) && self.layout.volume(name) == volume {
                        found.push(name.to_owned());
                    }
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    async fn folders(&self, at: &Path) -> Result<Vec<Path>, StoreError> {
        let listed = self.store.list_with_delimiter(Some(at)).await;
        Ok(listed.map_err(failed("list", at))?.common_prefixes)
    }

    /// The names of all backups of a volume, complete or not.
    pub async fn backups(&self, volume: &str) -> Result<Vec<String>, StoreError> {
        layout::check_name(volume)?;
        let at = self.layout.backups(volume);
        let listed = self.store.list_with_delimiter(Some(&at)).await;
        let files = listed.map_err(failed("list", &at))?.objects;
        let names = files.iter().filter_map(|own| layout::backup_of(own.location.filename()?));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Metadata of a volume's backups; nothing if there never was one.
    pub async fn volume(&self, volume: &str) -> Result<Option<VolumeConfig>, StoreError> {
        layout::check_name(volume)?;
        self.read(&self.layout.volume_config(volume)).await
    }

    /// A backup, complete or not.
    pub async fn backup(
        &self,
        volume: &str,
        backup: &str,
    ) -> Result<Option<BackupConfig>, StoreError> {
        layout::check_name(volume)?;
        layout::check_name(backup)?;
        self.read(&self.layout.backup_config(volume, backup)).await
    }

    /// A file beside the backups of volumes, Harvester's description of a machine for instance.
    pub async fn file(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.bytes(&self.layout.file(path)).await
    }

    pub async fn put_file(&self, path: &str, content: Bytes) -> Result<(), StoreError> {
        self.put(&self.layout.file(path), content).await
    }

    pub async fn remove_file(&self, path: &str) -> Result<(), StoreError> {
        self.remove(&self.layout.file(path)).await
    }

    /// The files below a folder, relative to it.
    pub async fn files(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let at = self.layout.file(folder);
        let all = self.all_below(&at).await?;
        let relative = |own: &Path| {
            let parts: Vec<String> =
                own.prefix_match(&at)?.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(all.iter().filter_map(relative).collect())
    }

    pub(crate) async fn all_below(&self, at: &Path) -> Result<Vec<Path>, StoreError> {
        let all = self.store.list(Some(at)).map_ok(|own| own.location);
        all.try_collect().await.map_err(failed("list", at))
    }

    pub(crate) async fn bytes(&self, at: &Path) -> Result<Option<Bytes>, StoreError> {
        let found = match self.store.get(at).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed("read", at))?,
        };
        if found.meta.size > MAX_CONFIG {
            return Err(StoreError::Overlong { file: at.to_string(), size: found.meta.size });
        }
        found.bytes().await.map(Some).map_err(failed("read", at))
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        at: &Path,
    ) -> Result<Option<T>, StoreError> {
        let Some(bytes) = self.bytes(at).await? else { return Ok(None) };
        let unread = |source| StoreError::Config { file: at.to_string(), source };
        serde_json::from_slice(&bytes).map(Some).map_err(unread)
    }

    pub(crate) async fn write(
        &self,
        at: &Path,
        value: &(impl Serialize + Sync),
    ) -> Result<(), StoreError> {
        let unwritten = |source| StoreError::Config { file: at.to_string(), source };
        let bytes = serde_json::to_vec(value).map_err(unwritten)?;
        self.put(at, bytes.into()).await
    }

    /// Replaces a file as a whole: no reader sees half of it.
    pub(crate) async fn put(&self, at: &Path, content: Bytes) -> Result<(), StoreError> {
        let written = self.store.put(at, PutPayload::from_bytes(content)).await;
        written.map(drop).map_err(failed("write", at))
    }

    pub(crate) async fn exists(&self, at: &Path) -> Result<bool, StoreError> {
        match self.store.head(at).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(failed("check for", at)(source)),
        }
    }

    /// Removes a file, if it is there.
    pub(crate) async fn remove(&self, at: &Path) -> Result<(), StoreError> {
        match self.store.delete(at).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(failed("remove", at)(source)),
        }
    }
}

pub(crate) fn failed(
    doing: &'static str,
    at: &Path,
) -> impl FnOnce(object_store::Error) -> StoreError {
    let file = at.to_string();
    move |source| StoreError::Request { doing, file, source }
}
