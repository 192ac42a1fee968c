//! Removing a backup, and the blocks that no other backup of its volume refers to.
//!
//! The configuration is removed first, so that no backup is left whose blocks are missing. Blocks are
//! kept unless it is certain that no backup refers to them; the next deletion checks them again.

use std::collections::BTreeSet;

use crate::config::BackupConfig;
use crate::layout;
use crate::lock::{Lock, LockError, LockKind};
use crate::store::{BackupStore, StoreError};

/// Why a backup was not removed.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl BackupStore {
    /// Removes a backup, if it is there.
    pub async fn delete(&self, volume: &str, backup: &str) -> Result<(), DeleteError> {
        layout::check_name(backup).map_err(StoreError::from)?;
        if self.volume(volume).await?.is_none() {
            // The backup was never started, or another cluster removed it.
            return Ok(());
        }
        let mut lock = self.lock(volume, LockKind::Deletion).await?;
        let done = self.delete_locked(volume, backup, &mut lock).await;
        lock.release().await;
        done
    }

    async fn delete_locked(
        &self,
        volume: &str,
        backup: &str,
        lock: &mut Lock<'_>,
    ) -> Result<(), DeleteError> {
        self.remove(&self.layout.backup_config(volume, backup)).await?;
        let names = self.backups(volume).await?;
        let mut left = Vec::new();
        for name in &names {
            lock.keep().await?;
            match self.backup(volume, name).await {
                Ok(Some(config)) if config.is_complete() => left.push(config),
                // A backup in progress, or one that cannot be read, may refer to any block.
                Ok(_) | Err(StoreError::Config { .. }) => {
                    return Ok(self.note_last(volume, &left, None).await?);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        let used = used_blocks(&left);
        let at = self.layout.blocks(volume);
        let mut count = 0;
        let mut unused = Vec::new();
        for path in self.all_below(&at).await? {
            let file = path.filename().unwrap_or_default();
            match file.strip_suffix(".blk") {
                Some(checksum) if used.contains(checksum) => count += 1,
                Some(_) => unused.push(path),
                None => {}
            }
        }
        if self.backups(volume).await? != names {
            return Ok(self.note_last(volume, &left, None).await?);
        }
        for path in unused {
            lock.keep().await?;
            self.remove(&path).await?;
        }
        Ok(self.note_last(volume, &left, Some(count)).await?)
    }

    /// Writes the name of the latest backup into the configuration of the volume.
    async fn note_last(
        &self,
        volume: &str,
        left: &[BackupConfig],
        blocks: Option<u64>,
    ) -> Result<(), StoreError> {
        let Some(mut config) = self.volume(volume).await? else { return Ok(()) };
        let last = left.iter().max_by(|a, b| a.snapshot_created_at.cmp(&b.snapshot_created_at));
        config.last_backup_name = last.map(|own| own.name.clone()).unwrap_or_default();
        config.last_backup_at = last.map(|own| own.snapshot_created_at.clone()).unwrap_or_default();
        config.block_count = blocks.unwrap_or(config.block_count);
        self.write(&self.layout.volume_config(volume), &config).await
    }

    /// Removes all backups of a volume.
    pub async fn delete_volume(&self, volume: &str) -> Result<(), DeleteError> {
        layout::check_name(volume).map_err(StoreError::from)?;
        let lock = self.lock(volume, LockKind::Deletion).await?;
        let done = self.delete_volume_locked(volume).await;
        lock.release().await;
        Ok(done?)
    }

    async fn delete_volume_locked(&self, volume: &str) -> Result<(), StoreError> {
        // Configurations first: without them no backup refers to the blocks.
        for at in [self.layout.backups(volume), self.layout.blocks(volume)] {
            for path in self.all_below(&at).await? {
                self.remove(&path).await?;
            }
        }
        self.remove(&self.layout.volume_config(volume)).await
    }
}

fn used_blocks(backups: &[BackupConfig]) -> BTreeSet<&str> {
    let blocks = backups.iter().flat_map(|own| &own.blocks);
    blocks.map(|own| own.block_checksum.as_str()).collect()
}
