//! `sheaf store`: backup, restore and moving to etcd.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use store::{Config, CopyProgress, EtcdConfig, EtcdTls};

use super::encryption;
use super::management::{self, ManagedEtcd};
use crate::cli::{EncryptedStore, EncryptionArgs, EtcdArgs, StoreCommand};
use crate::data_dir::Layout;

pub(super) fn run(command: StoreCommand) -> Result<()> {
    match command {
        StoreCommand::Backup { data, to } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            back_up(&layout, &to)?;
            let size = std::fs::metadata(&to).map(|file| file.len()).unwrap_or(0);
            super::print(&format!(
                "backed up to {} ({:.1} MB)\nrestore it with: sheaf store restore --data-dir NEW_DIR --from {}\nSecrets in it are encrypted: keep a copy of {}, and not beside the backup\n",
                to.display(),
                size as f64 / 1e6,
                to.display(),
                layout.encryption_keys().display()
            ))
        }
        StoreCommand::Restore { data, from } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            let _lock = layout.take()?;
            let to = layout.database();
            store::restore(&from, &to)
                .with_context(|| format!("cannot restore {}", from.display()))?;
            super::print(&format!(
                "restored into {}\nCertificates and tokens are not part of a backup: copy pki/ and tokens.csv if\nclients shall keep theirs, and encryption.keys, without which secrets cannot be read. Then\nstart `sheaf server --data-dir {}`\n",
                to.display(),
                layout.root.display()
            ))
        }
        StoreCommand::Reencrypt { data, encryption, new_key, etcd } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            reencrypt(&layout, &encryption, new_key, &etcd)
        }
        StoreCommand::Copy { data, etcd } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            let from = layout.database();
            require_file(&from)?;
            let _lock = layout.take()?;
            let to = etcd_config(&etcd)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut bar = Bar::default();
            runtime
                .block_on(store::copy(&from, &to, |progress| bar.show(progress)))
                .with_context(|| format!("cannot copy {} to etcd", from.display()))?;
            bar.finish();
            super::print(&format!(
                "copied {} objects to {}\nstart the server with: sheaf server --store etcd --etcd-endpoints {}\n",
                bar.copied,
                etcd.etcd_endpoints.join(", "),
                etcd.etcd_endpoints.join(",")
            ))
        }
    }
}

fn reencrypt(layout: &Layout, args: &EncryptionArgs, new_key: bool, etcd: &EtcdArgs) -> Result<()> {
    let embedded = etcd.etcd_endpoints.is_empty();
    let (_lock, mut config) = if embedded {
        require_file(&layout.database())?;
        (Some(layout.take()?), Config::sqlite(layout.database()))
    } else {
        (None, Config::etcd(etcd_config(etcd)?))
    };
    let own = args.encryption_key_file.clone().unwrap_or_else(|| layout.encryption_keys());
    let store = if embedded { EncryptedStore::Embedded } else { EncryptedStore::Etcd };
    let seals = args.encrypts_secrets(store);
    if new_key && !seals {
        bail!("--new-key needs --encrypt-secrets: nothing would be encrypted with the new key");
    }
    if new_key {
        // Written before it is used; the older ones go only when nothing needs them.
        let mut keys = vec![encryption::generate()?];
        keys.extend(encryption::read(&own)?);
        encryption::write(&own, &keys)?;
    }
    config.sealing = Arc::new(encryption::choose(args, &own, seals)?.sealing.counting_stale());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut bar = Bar::default();
    let count = runtime
        .block_on(store::reencrypt(config, |progress| bar.show(progress)))
        .context("cannot rewrite all objects; it is safe to run this again")?;
    bar.finish();
    if embedded && args.encryption_provider_config.is_none() {
        let mut keys = encryption::read(&own)?;
        keys.truncate(usize::from(seals));
        encryption::write(&own, &keys)?;
    }
    let kept = if seals || args.encryption_provider_config.is_some() {
        "as its configuration says"
    } else {
        "plain"
    };
    super::print(&format!("{count} objects were written again; everything is kept {kept}\n"))
}

/// Copies all objects, wherever they are.
fn back_up(layout: &Layout, to: &Path) -> Result<()> {
    let record = management::record(layout)?.filter(quorum::EtcdRecord::is_voter);
    let Some(record) = record else {
        let from = layout.database();
        require_file(&from)?;
        return store::backup(&from, to)
            .with_context(|| format!("cannot back up {}", from.display()));
    };
    let process = management::etcd_process(layout, &record)?;
    let from = ManagedEtcd { record, process }.config();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let copied = runtime.block_on(store::backup_etcd(&from, to));
    copied.map(drop).context("cannot back up etcd")
}

fn require_file(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    bail!("there is no embedded store at {}", path.display())
}

/// The etcd configuration that the flags request, validated.
pub(super) fn etcd_config(args: &EtcdArgs) -> Result<EtcdConfig> {
    if args.etcd_endpoints.is_empty() {
        bail!("--etcd-endpoints is missing: name at least one, like http://127.0.0.1:2379");
    }
    for endpoint in &args.etcd_endpoints {
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            bail!("--etcd-endpoints {endpoint:?} is not a URL: begin with http:// or https://");
        }
    }
    let tls = match (&args.etcd_cafile, &args.etcd_certfile, &args.etcd_keyfile) {
        (None, None, None) => None,
        (None, _, _) => bail!("--etcd-cafile is missing: it names the CA of etcd's certificates"),
        (Some(ca), cert, key) => {
            for file in [Some(ca), cert.as_ref(), key.as_ref()].into_iter().flatten() {
                std::fs::metadata(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
            }
            Some(EtcdTls { ca: ca.clone(), cert: cert.clone(), key: key.clone() })
        }
    };
    let prefix = args.etcd_prefix.trim_end_matches('/').to_owned();
    Ok(EtcdConfig { endpoints: args.etcd_endpoints.clone(), tls, prefix })
}

/// A progress line on a terminal, silence elsewhere.
#[derive(Default)]
struct Bar {
    copied: u64,
}

impl Bar {
    fn show(&mut self, progress: CopyProgress) {
        self.copied = progress.copied;
        let mut err = std::io::stderr();
        if err.is_terminal() {
            let share = progress.copied * 40 / progress.total.max(1);
            let bar = "#".repeat(usize::try_from(share).unwrap_or(0));
            let _ = write!(err, "\r[{bar:<40}] {}/{}", progress.copied, progress.total);
            let _ = err.flush();
        }
    }

    fn finish(&self) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}
