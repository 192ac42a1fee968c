//! Making a backup: every block with data is read, and sent if the target does not have it.
//!
//! ```text
//! lock ─► volume.cfg ─► backup cfg without a time ─► blocks ─► backup cfg with a time ─► volume.cfg
//! ```
//!
//! An attempt that is cut off leaves a configuration without a time, which is not taken for a
//! backup, and blocks that the next attempt finds and does not send again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::sync::{Mutex, PoisonError};

use base::clock;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::block::{self, Compression};
use crate::config::{BLOCK_SIZE_PARAMETER, BackupConfig, BlockRef, VolumeConfig};
use crate::layout;
use crate::lock::{Lock, LockError, LockKind};
use crate::store::{BackupStore, StoreError};

/// Blocks that are hashed, compressed or sent at a time.
const CONCURRENT_BLOCKS: usize = 4;

/// The data of a volume as it was at one moment.
pub trait BlockReader: Send {
    /// Bytes in all.
    fn size(&self) -> u64;

    fn read(&mut self, offset: u64, length: u64) -> impl Future<Output = io::Result<Bytes>> + Send;
}

/// The source of a backup, and its names.
#[derive(Debug, Clone, Default)]
pub struct BackupRequest {
    pub volume: String,
    pub backup: String,
    pub snapshot: String,
    /// RFC 3339, UTC.
    pub snapshot_created: String,
    pub labels: BTreeMap<String, String>,
    pub block_size: u64,
    /// Of a volume without backups; others keep what they have.
    pub compression: Compression,
    pub storage_class: String,
    /// Sends blocks although the target has them.
    pub is_full: bool,
}

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateProgress {
    /// Bytes of the volume that were read.
    pub read: u64,
    /// Bytes of the volume.
    pub size: u64,
}

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupResult {
    pub config: BackupConfig,
    pub volume: VolumeConfig,
    /// Blocks that were sent.
    pub sent: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot read the volume at {offset}")]
    Read { offset: u64, source: io::Error },
    #[error("cannot compress a block")]
    Compress(#[source] io::Error),
    #[error("backup block size {size} is invalid: it must be 2097152 or 16777216")]
    BlockSize { size: u64 },
    #[error("volume size {size} is no multiple of the backup block size {block_size}")]
    VolumeSize { size: u64, block_size: u64 },
    #[error("compression method of volume {volume} on the target is unknown")]
    Compression { volume: String, source: block::UnknownCompression },
    #[error("work on a block ended unexpectedly")]
    Interrupted,
}

impl BackupStore {
    /// Makes a backup, or goes on with one of this name that was cut off. One that is complete
    /// is left as it is.
    pub async fn create(
        &self,
        request: &BackupRequest,
        reader: &mut impl BlockReader,
        progress: impl Fn(CreateProgress) + Send,
    ) -> Result<BackupResult, CreateError> {
        let (size, block_size) = (reader.size(), request.block_size);
        if ![crate::BLOCK_SIZE, 8 * crate::BLOCK_SIZE].contains(&block_size) {
            return Err(CreateError::BlockSize { size: block_size });
        }
        if size % block_size != 0 {
            return Err(CreateError::VolumeSize { size, block_size });
        }
        layout::check_name(&request.backup).map_err(StoreError::from)?;
        let mut lock = self.lock(&request.volume, LockKind::Use).await?;
        let made = self.create_locked(request, reader, &progress, &mut lock).await;
        lock.release().await;
        made
    }

    async fn create_locked(
        &self,
        request: &BackupRequest,
        reader: &mut impl BlockReader,
        progress: &(impl Fn(CreateProgress) + Send),
        lock: &mut Lock<'_>,
    ) -> Result<BackupResult, CreateError> {
        let volume = self.begin_volume(request, reader.size()).await?;
        let method: Compression = volume.compression_method.parse().map_err(|source| {
            CreateError::Compression { volume: request.volume.clone(), source }
        })?;
        if let Some(config) = self.backup(&request.volume, &request.backup).await?
            && config.is_complete()
        {
            let volume = self.finish_volume(request, reader.size(), &config, 0).await?;
            return Ok(BackupResult { config, volume, sent: 0 });
        }
        let known = self.known_blocks(&volume, &request.backup).await?;
        let mut config = BackupConfig {
            name: request.backup.clone(),
            volume_name: request.volume.clone(),
            compression_method: method.name().to_owned(),
            ..BackupConfig::default()
        };
        let at = self.layout.backup_config(&request.volume, &request.backup);
        self.write(&at, &config).await?;

        let claimed = Mutex::default();
        let sender = BlockSender { store: self, request, method, known: &known, claimed };
        let sent = sender.send_all(reader, progress, lock).await?;

        config.snapshot_name.clone_from(&request.snapshot);
        config.snapshot_created_at.clone_from(&request.snapshot_created);
        config.labels.clone_from(&request.labels);
        let block_size = request.block_size.to_string();
        config.parameters = BTreeMap::from([(BLOCK_SIZE_PARAMETER.to_owned(), block_size)]);
        config.is_incremental = !request.is_full && !known.is_empty();
        config.size = sent.blocks.len() as u64 * request.block_size;
        config.newly_uploaded_data_size = sent.new_bytes;
        config.re_uploaded_data_size = sent.again_bytes;
        config.blocks = sent.blocks;
        config.created_time = clock::now_rfc3339();
        // Blocks that were found to exist do, for as long as the lock holds.
        lock.keep().await?;
        self.write(&at, &config).await?;
        let volume = self.finish_volume(request, reader.size(), &config, sent.new_blocks).await?;
        Ok(BackupResult { config, volume, sent: sent.new_blocks + sent.again_blocks })
    }

    async fn begin_volume(
        &self,
        request: &BackupRequest,
        size: u64,
    ) -> Result<VolumeConfig, StoreError> {
        if let Some(found) = self.volume(&request.volume).await? {
            return Ok(found);
        }
        let volume = VolumeConfig {
            name: request.volume.clone(),
            size,
            labels: request.labels.clone(),
            created_time: clock::now_rfc3339(),
            compression_method: request.compression.name().to_owned(),
            storage_class_name: request.storage_class.clone(),
            data_engine: "v1".to_owned(),
            ..VolumeConfig::default()
        };
        self.write(&self.layout.volume_config(&request.volume), &volume).await?;
        Ok(volume)
    }

    /// Blocks of the last complete backup: they need not be searched.
    async fn known_blocks(
        &self,
        volume: &VolumeConfig,
        own: &str,
    ) -> Result<BTreeSet<String>, StoreError> {
        let last = volume.last_backup_name.as_str();
        if last.is_empty() || last == own || !layout::is_valid_name(last) {
            return Ok(BTreeSet::new());
        }
        let found = self.backup(&volume.name, last).await?;
        let complete = found.filter(BackupConfig::is_complete);
        let blocks = complete.map(|own| own.blocks).unwrap_or_default();
        Ok(blocks.into_iter().map(|own| own.block_checksum).collect())
    }

    async fn finish_volume(
        &self,
        request: &BackupRequest,
        size: u64,
        backup: &BackupConfig,
        new_blocks: u64,
    ) -> Result<VolumeConfig, StoreError> {
        let found = self.volume(&request.volume).await?;
        let mut volume = match found {
            Some(found) => found,
            None => self.begin_volume(request, size).await?,
        };
        volume.size = size;
        volume.labels.clone_from(&request.labels);
        volume.last_backup_name.clone_from(&backup.name);
        volume.last_backup_at.clone_from(&backup.snapshot_created_at);
        volume.block_count += new_blocks;
        volume.storage_class_name.clone_from(&request.storage_class);
        self.write(&self.layout.volume_config(&request.volume), &volume).await?;
        Ok(volume)
    }
}

struct BlockSender<'a> {
    store: &'a BackupStore,
    request: &'a BackupRequest,
    method: Compression,
    known: &'a BTreeSet<String>,
    /// Blocks that were sent or are being sent: a volume can have the same one many times.
    claimed: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct SentBlocks {
    blocks: Vec<BlockRef>,
    new_blocks: u64,
    new_bytes: u64,
    again_blocks: u64,
    again_bytes: u64,
}

/// Result of sending one block.
struct SentBlock {
    block: BlockRef,
    /// Bytes of its file, if it was sent.
    bytes: u64,
    existed: bool,
}

impl BlockSender<'_> {
    async fn send_all(
        &self,
        reader: &mut impl BlockReader,
        progress: &(impl Fn(CreateProgress) + Send),
        lock: &mut Lock<'_>,
    ) -> Result<SentBlocks, CreateError> {
        let (size, step) = (reader.size(), self.request.block_size);
        let mut sent = SentBlocks::default();
        let mut running = FuturesUnordered::new();
        let mut offset = 0;
        while offset < size {
            lock.keep().await?;
            let data = reader.read(offset, step).await;
            let data = data.map_err(|source| CreateError::Read { offset, source })?;
            // An absent block reads as zeroes.
            if data.iter().any(|byte| *byte != 0) {
                if running.len() >= CONCURRENT_BLOCKS
                    && let Some(done) = running.next().await
                {
                    sent.add(done?);
                }
                running.push(self.send(offset, data));
            }
            offset += step;
            progress(CreateProgress { read: offset, size });
        }
        while let Some(done) = running.next().await {
            lock.keep().await?;
            sent.add(done?);
        }
        sent.blocks.sort_unstable_by_key(|own| own.offset);
        Ok(sent)
    }

    fn claim(&self, checksum: &str) -> bool {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.insert(checksum.to_owned())
    }

    async fn send(&self, offset: u64, data: Bytes) -> Result<SentBlock, CreateError> {
        let hashed = data.clone();
        let hashing = tokio::task::spawn_blocking(move || block::checksum(&hashed));
        let checksum = hashing.await.map_err(|_| CreateError::Interrupted)?;
        let at = self.store.layout.block(&self.request.volume, &checksum);
        // If the other one fails, so does the backup.
        let is_first = self.claim(&checksum);
        if !is_first {
            let block = BlockRef { offset, block_checksum: checksum };
            return Ok(SentBlock { block, bytes: 0, existed: true });
        }
        let existed = self.known.contains(&checksum) || self.store.exists(&at).await?;
        let block = BlockRef { offset, block_checksum: checksum };
        if existed && !self.request.is_full {
            return Ok(SentBlock { block, bytes: 0, existed });
        }
        let method = self.method;
        let packing = tokio::task::spawn_blocking(move || block::compress(&data, method));
        let file = packing.await.map_err(|_| CreateError::Interrupted)?;
        let file = file.map_err(CreateError::Compress)?;
        let bytes = file.len() as u64;
        self.store.put(&at, file.into()).await?;
        Ok(SentBlock { block, bytes, existed })
    }
}

impl SentBlocks {
    fn add(&mut self, own: SentBlock) {
        match (own.bytes, own.existed) {
            (0, _) => {}
            (bytes, false) => {
                self.new_blocks += 1;
                self.new_bytes += bytes;
            }
            (bytes, true) => {
                self.again_blocks += 1;
                self.again_bytes += bytes;
            }
        }
        self.blocks.push(own.block);
    }
}
