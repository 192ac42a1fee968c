//! Rewrites all values that are not encrypted with the current configuration: after a first key, a
//! new key, or when encryption was turned off.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;

use crate::config::{Config, Engine};
use crate::etcd::CopyProgress;
use crate::revision::Revision;
use crate::shape::Shape;
use crate::sqlite;
use crate::store::{OpenError, Store};
use crate::write::{Expect, Write, WriteChange, WriteError};

/// Why not everything was rewritten. Values that were rewritten stay so; the run may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReencryptError {
    #[error("cannot open the store")]
    Open { source: OpenError },
    #[error("cannot write {table} {name} again")]
    Write { table: String, name: String, source: WriteError },
    #[error("cannot drop the history of the store")]
    Scrub { source: rusqlite::Error },
}

/// Writes everything again that `config.sealing` (see [`crate::Sealing::counting_stale`])
/// finds to be kept otherwise, and returns how many those were.
///
/// A file must not be open elsewhere, and loses its history, which has the old values. etcd may be
/// in use: values that others change meanwhile were encrypted by them. Its history is left to its
/// own compaction.
pub async fn reencrypt(
    config: Config,
    mut progress: impl FnMut(CopyProgress),
) -> Result<u64, ReencryptError> {
    let sealing = Arc::clone(&config.sealing);
    let file = match &config.engine {
        Engine::Sqlite(sqlite) => Some(sqlite.path.clone()),
        Engine::Etcd(_) => None,
    };
    let tasks = Tasks::default();
    let store = Store::open(config, PlainValues, &tasks)
        .await
        .map_err(|source| ReencryptError::Open { source })?;
    let mut stale = sealing.stale();
    stale.retain(|(table, name)| store.get(table, name).is_some());
    let total = stale.len() as u64;
    for (copied, (table, name)) in (1..).zip(stale) {
        if let Some(entry) = store.get(&table, &name) {
            let write = Write {
                table: table.as_str().into(),
                name: name.as_str().into(),
                expect: Expect::At(entry.revision),
                change: WriteChange::Put(entry.item.clone()),
            };
            match store.write(write).await {
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(source) => return Err(ReencryptError::Write { table, name, source }),
            }
        }
        progress(CopyProgress { copied, total });
    }
    drop(store);
    tasks.stop(Duration::from_secs(10)).await;
    if let Some(file) = file {
        sqlite::scrub(&file).map_err(|source| ReencryptError::Scrub { source })?;
    }
    Ok(total)
}

/// Values as they are.
struct PlainValues;

impl Shape for PlainValues {
    type Item = Bytes;
    type Frame = ();

    fn shape(&self, _: &str, _: &str, value: Bytes, _: Revision, _: Revision) -> Bytes {
        value
    }

    fn weight(&self, item: &Bytes) -> usize {
        item.len()
    }
}
