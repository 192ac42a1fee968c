//! Moving a store from its file into etcd, when one node becomes several.
//!
//! The values are written again, so each gets a new revision; the offset is set first, to the last
//! revision of the file, which puts all of them above it. Clients find that their revisions are
//! too old and list again. A key marks the copy as unfinished until its end, and no store opens on
//! top of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::sync::mpsc;

use super::link::{EtcdLink, LinkError};
use super::value::{Tag, sealed};
use super::{Offset, OpenError};
use crate::config::EtcdConfig;
use crate::sqlite;

/// Values per transaction; etcd allows 128 operations and 1.5 MiB.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 1 << 20;

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    pub copied: u64,
    pub total: u64,
}

/// Why a store could not be copied. Data that was written stays marked as unfinished.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: sqlite::OpenError },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: rusqlite::Error },
    #[error("cannot connect to etcd")]
    Connect { source: OpenError },
    #[error("cannot write to etcd")]
    Write { source: LinkError },
    #[error("there are keys under {prefix} already")]
    NotEmpty { prefix: String },
    #[error("etcd has {found} of {expected} values after the copy")]
    Incomplete { found: u64, expected: u64 },
    #[error("the copy was interrupted")]
    Interrupted,
}

/// Copies the store in the file `from`, which must not be open, to an empty place in
/// etcd.
pub async fn copy(
    from: &Path,
    to: &EtcdConfig,
    mut progress: impl FnMut(CopyProgress),
) -> Result<(), CopyError> {
    let path = from.to_owned();
    let opening = tokio::task::spawn_blocking(move || sqlite::SqliteReader::open(&path));
    let reader = opening.await.map_err(|_| CopyError::Interrupted)?;
    let open = |source| CopyError::Open { path: from.to_owned(), source };
    let reader = reader.map_err(open)?;
    let total = reader.entries;

    // Values are copied as they are: encrypted ones stay encrypted.
    let link = EtcdLink::connect(to, Arc::default())
        .await
        .map_err(|source| CopyError::Connect { source })?;
    begin(&link, Offset::after(reader.revision)).await?;
    let (sender, mut batches) = mpsc::channel(4);
    let reading = tokio::task::spawn_blocking(move || read(&reader, &sender));
    let (mut copied, tag) = (0, Tag::new_v4());
    progress(CopyProgress { copied, total });
    while let Some(batch) = batches.recv().await {
        copied += batch.len() as u64;
        let key = |(table, name, _): &Row| link.keys.value(table, name);
        let puts: Vec<TxnOp> =
            batch.into_iter().map(|row| TxnOp::put(key(&row), sealed(&row.2, tag), None)).collect();
        link.txn(Txn::new().and_then(puts)).await.map_err(|source| CopyError::Write { source })?;
        progress(CopyProgress { copied, total });
    }
    let read = reading.await.map_err(|_| CopyError::Interrupted)?;
    read.map_err(|source| CopyError::Read { path: from.to_owned(), source })?;
    check(&link, total).await?;
    link.delete(link.keys.copying()).await.map_err(|source| CopyError::Write { source })
}

type Row = (String, String, Vec<u8>);

/// Our own records while a copy goes on: its mark and the offset.
const RECORDS: u64 = 2;

/// Whether all of the file arrived.
async fn check(link: &EtcdLink, expected: u64) -> Result<(), CopyError> {
    let all = GetOptions::new().with_prefix().with_count_only();
    let count = link.get(link.keys.root(), all).await;
    let count = count.map_err(|source| CopyError::Write { source })?.count().cast_unsigned();
    let found = count.saturating_sub(RECORDS);
    if found == expected { Ok(()) } else { Err(CopyError::Incomplete { found, expected }) }
}

/// Claims the empty place for this copy.
async fn begin(link: &EtcdLink, offset: Offset) -> Result<(), CopyError> {
    let write = |source| CopyError::Write { source };
    let any = GetOptions::new().with_prefix().with_count_only();
    let count = link.get(link.keys.root(), any).await.map_err(write)?.count();
    let (copying, stored) = (link.keys.copying(), link.keys.offset());
    let absent = |key: &str| Compare::mod_revision(key, CompareOp::Equal, 0);
    let claim = Txn::new().when([absent(&copying), absent(&stored)]).and_then([
        TxnOp::put(copying, "", None),
        TxnOp::put(stored, offset.get().to_string(), None),
    ]);
    if count > 0 || !link.txn(claim).await.map_err(write)?.succeeded() {
        return Err(CopyError::NotEmpty { prefix: link.keys.prefix().to_owned() });
    }
    Ok(())
}

fn read(reader: &sqlite::SqliteReader, batches: &mpsc::Sender<Vec<Row>>) -> rusqlite::Result<()> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    reader.each(|table, name, value| {
        if batch.len() == BATCH || (bytes + value.len() > BATCH_BYTES && !batch.is_empty()) {
            // Fails only if the copy was given up.
            let _ = batches.blocking_send(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += name.len() + value.len();
        batch.push((table.to_owned(), name.to_owned(), value.to_vec()));
    })?;
    let _ = batches.blocking_send(batch);
    Ok(())
}
