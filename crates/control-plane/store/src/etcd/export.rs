//! A backup of a store in etcd: a file like that of the other engine, as of one revision. It can be
//! restored on one node, or moved into a new etcd from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcd_client::{GetOptions, GetResponse};

use super::link::{EtcdLink, LinkError, revision};
use super::load::{after, end_of_prefix};
use super::value::opened;
use super::{Offset, OpenError, established_offset};
use crate::config::EtcdConfig;
use crate::sqlite::{BackupError, BackupWriter, ExportedRow};

/// Keys per page: some megabytes of usual values.
const PAGE: i64 = 500;

/// Why a store in etcd could not be backed up.
#[derive(Debug, thiserror::Error)]
pub enum EtcdBackupError {
    #[error("cannot connect to etcd")]
    Connect { source: OpenError },
    #[error("cannot read from etcd")]
    Read { source: LinkError },
    #[error(transparent)]
    File(#[from] BackupError),
    #[error("the backup was interrupted")]
    Interrupted,
}

/// Writes all values as of now to the file `to`, which must not exist; answers how many there are.
/// The store may be in use meanwhile. Values that are encrypted stay so.
pub async fn backup_etcd(from: &EtcdConfig, to: &Path) -> Result<u64, EtcdBackupError> {
    let connect = |source| EtcdBackupError::Connect { source };
    let link = EtcdLink::connect(from, Arc::default()).await.map_err(connect)?;
    let offset = established_offset(&link).await.map_err(connect)?;
    let root = link.keys.root();
    let end = end_of_prefix(&root);
    let page = |start: Vec<u8>, at: i64| {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_revision(at);
        link.get(start, options)
    };
    let read = |source| EtcdBackupError::Read { source };
    let path: PathBuf = to.to_owned();
    let mut writer = blocking(move || BackupWriter::create(&path)).await?;
    let mut here = page(root.into_bytes(), 0).await.map_err(read)?;
    // All further pages are of the same moment as the first.
    let at = revision(here.header());
    let mut count = 0;
    loop {
        let rows = exported(&link, offset, &here);
        count += rows.len() as u64;
        writer = blocking(move || writer.add(&rows).map(|()| writer)).await?;
        match here.kvs().last() {
            Some(last) if here.more() => here = page(after(last), at).await.map_err(read)?,
            _ => break,
        }
    }
    let revision = offset.revision(at);
    blocking(move || writer.finish(revision)).await?;
    Ok(count)
}

fn exported(link: &EtcdLink, offset: Offset, page: &GetResponse) -> Vec<ExportedRow> {
    let row = |kv: &etcd_client::KeyValue| {
        let (table, name) = link.keys.parse(kv.key())?;
        Some(ExportedRow {
            table: table.to_owned(),
            name: name.to_owned(),
            revision: offset.revision(kv.mod_revision()),
            created: offset.revision(kv.create_revision()),
            value: opened(kv.value()).0.to_vec(),
        })
    };
    page.kvs().iter().filter_map(row).collect()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, EtcdBackupError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| EtcdBackupError::Interrupted)??)
}
