//! Writing a backup to an empty volume: each block is verified by its checksum before it is used.

use std::future::Future;
use std::io;

use futures_util::StreamExt as _;
use futures_util::stream;

use crate::block::{self, BlockError, Compression, UnknownCompression};
use crate::config::{BackupConfig, BlockRef};
use crate::lock::{Lock, LockError, LockKind};
use crate::store::{BackupStore, StoreError};

/// Blocks that are fetched and verified at a time.
const CONCURRENT_BLOCKS: usize = 4;

/// Where restored data goes. It reads as zeroes where nothing was written.
pub trait BlockWriter: Send {
    /// Bytes in all.
    fn size(&self) -> u64;

    fn write(&mut self, offset: u64, data: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Returns when all that was written is durable.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("backup {backup} of volume {volume} does not exist on the backup target")]
    NoBackup { volume: String, backup: String },
    #[error("backup {backup} of volume {volume} is not complete")]
    Incomplete { volume: String, backup: String },
    #[error("backup {backup} cannot be used: {why}")]
    Unusable { backup: String, why: &'static str },
    #[error("backup {backup} needs the backing image {image}, which is not part of it")]
    BackingImage { backup: String, image: String },
    #[error(transparent)]
    Compression(#[from] UnknownCompression),
    #[error("block {checksum} is missing on the backup target")]
    NoBlock { checksum: String },
    #[error("backup is damaged")]
    Block(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the volume has {has} bytes; the backup needs {wants}")]
    Small { has: u64, wants: u64 },
    #[error("cannot write to the volume at {offset}")]
    Write { offset: u64, source: io::Error },
    #[error("cannot flush the volume")]
    Flush(#[source] io::Error),
    #[error("work on a block ended unexpectedly")]
    Interrupted,
}

impl RestoreError {
    /// Whether another attempt ends the same way.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Store(_)
                | Self::Lock(_)
                | Self::Write { .. }
                | Self::Flush(_)
                | Self::Interrupted
        )
    }
}

/// A backup whose list of blocks makes sense.
struct CheckedBackup {
    blocks: Vec<BlockRef>,
    block_size: u64,
    method: Compression,
    /// Bytes up to the end of the last block.
    end: u64,
}

fn check(config: BackupConfig) -> Result<CheckedBackup, RestoreError> {
    let backup = config.name.clone();
    let unusable = |why| RestoreError::Unusable { backup: backup.clone(), why };
    if !config.single_file.file_path.is_empty() {
        return Err(unusable("it is a single file, a format of the first versions of Longhorn"));
    }
    let block_size = config.block_size().ok_or_else(|| unusable("its block size is unknown"))?;
    let mut blocks = config.blocks;
    blocks.sort_unstable_by_key(|own| own.offset);
    if blocks.iter().any(|own| !block::is_checksum(&own.block_checksum)) {
        return Err(unusable("a checksum of a block is malformed"));
    }
    let aligned =
        |own: &BlockRef| own.offset.is_multiple_of(block_size) && own.offset < u64::MAX / 2;
    if !blocks.iter().all(aligned) {
        return Err(unusable("the offset of a block is no multiple of the block size"));
    }
    if blocks.windows(2).any(|pair| pair[0].offset == pair[1].offset) {
        return Err(unusable("two blocks have the same offset"));
    }
    let end = blocks.last().map_or(0, |own| own.offset + block_size);
    let method = config.compression_method.parse()?;
    Ok(CheckedBackup { blocks, block_size, method, end })
}

impl BackupStore {
    /// Writes all blocks of a backup; `progress` is given the blocks that are written and all.
    pub async fn restore(
        &self,
        volume: &str,
        backup: &str,
        writer: &mut impl BlockWriter,
        progress: impl Fn(u64, u64) + Send,
    ) -> Result<(), RestoreError> {
        let mut lock = self.lock(volume, LockKind::Use).await?;
        let done = self.restore_locked(volume, backup, writer, &progress, &mut lock).await;
        lock.release().await;
        done
    }

    async fn restore_locked(
        &self,
        volume: &str,
        backup: &str,
        writer: &mut impl BlockWriter,
        progress: &(impl Fn(u64, u64) + Send),
        lock: &mut Lock<'_>,
    ) -> Result<(), RestoreError> {
        let named = || (volume.to_owned(), backup.to_owned());
        let found = self.backup(volume, backup).await?.ok_or_else(|| {
            let (volume, backup) = named();
            RestoreError::NoBackup { volume, backup }
        })?;
        if !found.is_complete() {
            let (volume, backup) = named();
            return Err(RestoreError::Incomplete { volume, backup });
        }
        let image = self.volume(volume).await?.map(|own| own.backing_image_name);
        if let Some(image) = image.filter(|image| !image.is_empty()) {
            return Err(RestoreError::BackingImage { backup: backup.to_owned(), image });
        }
        let checked = check(found)?;
        if writer.size() < checked.end {
            return Err(RestoreError::Small { has: writer.size(), wants: checked.end });
        }
        let all = checked.blocks.len() as u64;
        let (method, size) = (checked.method, checked.block_size);
        let fetching = stream::iter(checked.blocks)
            .map(|own| self.fetch(volume, own, method, size))
            .buffered(CONCURRENT_BLOCKS);
        let mut fetching = std::pin::pin!(fetching);
        let mut written = 0;
        while let Some(fetched) = fetching.next().await {
            let (offset, data) = fetched?;
            lock.keep().await?;
            let done = writer.write(offset, &data).await;
            done.map_err(|source| RestoreError::Write { offset, source })?;
            written += 1;
            progress(written, all);
        }
        writer.flush().await.map_err(RestoreError::Flush)
    }

    async fn fetch(
        &self,
        volume: &str,
        own: BlockRef,
        method: Compression,
        size: u64,
    ) -> Result<(u64, Vec<u8>), RestoreError> {
        let at = self.layout.block(volume, &own.block_checksum);
        let file = self.bytes(&at).await?;
        let missing = || RestoreError::NoBlock { checksum: own.block_checksum.clone() };
        let file = file.ok_or_else(missing)?;
        let name = own.block_checksum.clone();
        let opening = move || block::open(&file, method, &name, size);
        let opened = tokio::task::spawn_blocking(opening).await;
        let opened = opened.map_err(|_| RestoreError::Interrupted)?;
        let data = opened.map_err(|failure: BlockError| RestoreError::Block(failure.into()))?;
        Ok((own.offset, data))
    }
}
