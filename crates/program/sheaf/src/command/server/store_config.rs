//! Where the objects are, with which encryption, and which backups of them are made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use store::Config;

use super::store_backups::{BackupSource, StoreBackups};
use crate::cli::{EncryptedStore, ServerArgs, StoreKind};
use crate::command::encryption;
use crate::command::management::ManagedEtcd;
use crate::data_dir::Layout;

/// Where objects are stored and how, and a key that was made for it.
pub(super) async fn store_config(
    args: &ServerArgs,
    layout: &Layout,
    managed: Option<&ManagedEtcd>,
) -> Result<(Config, Option<PathBuf>)> {
    let store = match args.store {
        StoreKind::Sqlite => EncryptedStore::Embedded,
        StoreKind::Etcd => EncryptedStore::Etcd,
    };
    let flags = &args.encryption;
    let own = flags.encryption_key_file.clone().unwrap_or_else(|| layout.encryption_keys());
    let seals = flags.encrypts_secrets(store);
    // Objects were encrypted before they were moved into etcd.
    let is_file = store == EncryptedStore::Embedded && managed.is_none();
    if seals && is_file {
        encryption::note_plain_secrets(layout, &own)?;
    }
    let chosen = encryption::choose(flags, &own, seals)?;
    let made = chosen.made();
    if seals && is_file {
        let sealing = encryption::choose(flags, &own, seals)?.sealing;
        let rewritten = encryption::encrypt_plain_secrets(layout, sealing).await;
        if rewritten.is_err() {
            encryption::give_up(made.as_deref());
        }
        rewritten?;
    }
    let mut config = match (args.store, managed) {
        (StoreKind::Sqlite, Some(managed)) => Config::etcd(managed.config()),
        (StoreKind::Sqlite, None) => Config::sqlite(layout.database()),
        (StoreKind::Etcd, _) => Config::etcd(crate::command::store::etcd_config(&args.etcd)?),
    };
    config.sealing = Arc::new(chosen.sealing);
    Ok((config, made))
}

/// Backups of a store that Sheaf operates, unless they are switched off.
pub(super) fn store_backups(
    args: &ServerArgs,
    layout: &Layout,
    managed: Option<&ManagedEtcd>,
) -> Option<StoreBackups> {
    if args.store == StoreKind::Etcd || args.store_backup_hours == 0 {
        return None;
    }
    Some(StoreBackups {
        source: managed.map_or_else(
            || BackupSource::File(layout.database()),
            |managed| BackupSource::Etcd(managed.config()),
        ),
        directory: layout.store_backups(),
        interval: Duration::from_secs(u64::from(args.store_backup_hours) * 3600),
        keep: usize::try_from(args.store_backup_keep).unwrap_or(usize::MAX),
    })
}
