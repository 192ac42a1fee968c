//! The way of the objects from etcd back into an SQLite file, on the last management node. It is taken
//! at a start, before anything is served, so that no write comes in between.
//!
//! A kill before `etcd.json` says `returned` leaves etcd as it is, and the next start begins the file
//! anew; after it, the file counts and etcd is only put aside.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use base::{Chain, clock};
use quorum::{EtcdRecord, InitialCluster, Phase, PhaseEvent};
use tokio::time::Instant;
use tracing::{info, warn};

use super::store::ManagedEtcd;
use crate::data_dir::Layout;

/// Whether the objects are in SQLite now.
pub(super) async fn complete(layout: &Layout, record: &mut EtcdRecord) -> Result<bool> {
    let path = layout.etcd_record();
    if record.phase == Phase::Returning {
        if let Err(failure) = export(layout, record).await {
            let reason = Chain(&*failure).to_string();
            warn!(error = reason, "cannot move objects into SQLite; still using etcd");
            discard_file(layout)?;
            record.return_failure = Some(reason);
            record.advance(PhaseEvent::ExportFailed, &path)?;
            return Ok(false);
        }
        // From here on etcd is history.
        record.advance(PhaseEvent::Exported, &path)?;
    }
    put_etcd_aside(layout, record).await?;
    Ok(true)
}

/// Writes all objects into a new file, which continues the revisions of etcd.
async fn export(layout: &Layout, record: &EtcdRecord) -> Result<()> {
    let process = super::etcd_process(layout, record)?;
    process.ensure(&InitialCluster::Known)?;
    let managed = ManagedEtcd { record: record.clone(), process };
    managed.until_majority().await?;
    let members = managed.members().await?.list().await.context("cannot list etcd's members")?;
    if members.len() != 1 {
        bail!("etcd has {} members, and SQLite is for one management node", members.len());
    }
    discard_file(layout)?;
    info!("moving objects from etcd into SQLite");
    let began = Instant::now();
    let objects = store::backup_etcd(&managed.config(), &layout.database()).await;
    let objects = objects.context("cannot write the objects into a file")?;
    info!(objects, seconds = began.elapsed().as_secs_f32(), "objects are in SQLite");
    Ok(())
}

/// Removes the file of an attempt that was not completed: it never counted.
fn discard_file(layout: &Layout) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = layout.database().into_os_string();
        name.push(suffix);
        let path = PathBuf::from(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            outcome => outcome.with_context(|| format!("cannot remove {}", path.display()))?,
        }
    }
    Ok(())
}

/// Ends etcd and puts its data out of the way. Can be repeated.
async fn put_etcd_aside(layout: &Layout, record: &EtcdRecord) -> Result<()> {
    if !layout.root.join("etcd").exists() {
        return Ok(());
    }
    let process = super::etcd_process(layout, record)?;
    process.stop().await?;
    let kept = format!("etcd.returned-{}", clock::now().as_second());
    process.set_aside(&kept)?;
    info!(directory = kept, "the data of etcd is not used any more");
    Ok(())
}
