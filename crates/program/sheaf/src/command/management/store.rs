//! The store of a management node at its start: the SQLite file, the move of the file into etcd,
//! or etcd.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base::{Chain, clock};
use futures_util::future::join_all;
use quorum::{
    EtcdProcess, EtcdRecord, InitialCluster, MemberError, MemberInfo, MemberStatus, Members, Phase,
    PhaseEvent, find_etcd,
};
use store::{EtcdConfig, EtcdTls};
use tokio::time::Instant;
use tracing::{info, warn};

use super::standby::{Standing, stand_by, standing};
use super::{role, sqlite_return};
use crate::data_dir::Layout;

const PREFIX: &str = "/registry";
/// How long an etcd of one member may take to answer.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a member may take to report its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a start that waits for a majority says so.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// A member of etcd that runs.
#[derive(Debug, Clone)]
pub(in crate::command) struct ManagedEtcd {
    pub(in crate::command) record: EtcdRecord,
    pub(in crate::command) process: EtcdProcess,
}

impl ManagedEtcd {
    /// Objects are read and written through the own member only: a client that cannot use it
    /// connects to the API server of another node.
    pub(in crate::command) fn config(&self) -> EtcdConfig {
        let tls = self.process.spec().tls.clone();
        EtcdConfig {
            endpoints: vec![self.record.client_url()],
            tls: Some(EtcdTls { ca: tls.ca, cert: Some(tls.certificate), key: Some(tls.key) }),
            prefix: PREFIX.to_owned(),
        }
    }

    /// Waits until the member answers and has a majority, for a limited time.
    pub(super) async fn until_majority(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let asked = async { self.members().await?.has_quorum().await };
            match asked.await {
                Ok(()) => return Ok(()),
                Err(failure) if Instant::now() > deadline => {
                    return Err(failure).context("etcd does not answer");
                }
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// The same after a read that needs a majority: a member that lags behind lists others than there
    /// are, and a voter would be removed that the others need.
    pub(in crate::command) async fn confirmed_states(
        &self,
    ) -> Result<(Vec<MemberInfo>, Vec<Option<MemberStatus>>), MemberError> {
        self.members().await?.has_quorum().await?;
        self.states().await
    }

    /// All members, and the state of each that answers.
    pub(in crate::command) async fn states(
        &self,
    ) -> Result<(Vec<MemberInfo>, Vec<Option<MemberStatus>>), MemberError> {
        let members = self.members().await?.list().await?;
        let tls = &self.process.spec().tls;
        let state = |member: &MemberInfo| {
            let urls = member.client_urls.clone();
            async move {
                if urls.is_empty() {
                    return None;
                }
                let asked = async { Members::connect(&urls, tls).await?.status().await };
                tokio::time::timeout(STATUS_TIMEOUT, asked).await.ok()?.ok()
            }
        };
        let states = join_all(members.iter().map(state)).await;
        Ok((members, states))
    }

    /// Completes a recovery: members that are lost may have had writes that clients have seen, so
    /// that revisions go on far above. Only a member that is alone does it, before its server
    /// starts: others would go on with the revisions of before.
    pub(super) async fn raise_revisions(&mut self, layout: &Layout) -> Result<()> {
        if !self.record.is_recovering {
            return Ok(());
        }
        let listed = self.members().await?.list().await.context("cannot list etcd's members")?;
        if listed.len() == 1 {
            let raised = store::raise_revisions(&self.config()).await;
            raised.context("cannot raise the revisions of the store")?;
            info!("revisions are above those that clients may have seen before the recovery");
        }
        self.record.is_recovering = false;
        Ok(self.record.save(&layout.etcd_record())?)
    }

    pub(in crate::command) async fn members(&self) -> Result<Members, quorum::MemberError> {
        Members::connect(&[self.record.client_url()], &self.process.spec().tls).await
    }
}

/// The member of etcd that objects are in; nothing if they are in SQLite. A move that was begun is
/// completed or undone first.
pub(in crate::command) async fn open(layout: &Layout) -> Result<Option<ManagedEtcd>> {
    let Some(mut record) = super::record(layout)? else {
        if layout.root.join("etcd").exists() {
            bail!(
                "{} is missing, but there is an etcd directory: restore it, or choose another \
                 --data-dir",
                layout.etcd_record().display()
            );
        }
        return Ok(None);
    };
    match record.phase {
        Phase::Refused { .. } => return Ok(None),
        Phase::Joining => bail!(
            "this node is still joining the cluster: start it with --join as before, or remove {}",
            layout.etcd_record().display()
        ),
        Phase::Moving => {
            if !Box::pin(complete_move(layout, &mut record)).await? {
                return Ok(None);
            }
        }
        Phase::Returning | Phase::Returned => {
            if Box::pin(sqlite_return::complete(layout, &mut record)).await? {
                return Ok(None);
            }
        }
        Phase::Voter => {}
    }
    retire_file(layout)?;
    let process = super::etcd_process(layout, &record)?;
    let mut managed = ManagedEtcd { record, process };
    managed.process.ensure(&InitialCluster::Known)?;
    match Box::pin(wait_for_majority(layout, &managed)).await? {
        Majority::Reached => {
            Box::pin(managed.raise_revisions(layout)).await?;
            Ok(Some(managed))
        }
        Majority::Replaced => {
            stand_by(layout, &managed.record, &managed.process).await?;
            super::restart()?;
            Ok(None)
        }
        Majority::Demoted => {
            role::become_worker(layout).await?;
            super::restart()?;
            Ok(None)
        }
    }
}

/// Whether the objects are in etcd now.
async fn complete_move(layout: &Layout, record: &mut EtcdRecord) -> Result<bool> {
    let path = layout.etcd_record();
    let Err(failure) = move_into_etcd(layout, record).await else {
        // From here on the file is history.
        record.advance(PhaseEvent::Copied, &path)?;
        return Ok(true);
    };
    let reason = Chain(&*failure).to_string();
    warn!(error = reason, "cannot move objects into etcd; still using SQLite");
    undo(layout, record).await?;
    record.advance(PhaseEvent::CopyFailed { at: clock::now(), reason }, &path)?;
    Ok(false)
}

/// Copies the file into an etcd of one member. The result of an earlier attempt is discarded: it
/// never counted.
async fn move_into_etcd(layout: &Layout, record: &EtcdRecord) -> Result<()> {
    let version = find_etcd()?;
    let process = super::etcd_process(layout, record)?;
    process.stop().await?;
    process.discard()?;
    process.ensure(&InitialCluster::New)?;
    let managed = ManagedEtcd { record: record.clone(), process };
    managed.until_majority().await?;
    info!(%version, "moving objects from SQLite into etcd");
    let began = Instant::now();
    let mut copied = 0;
    store::copy(&layout.database(), &managed.config(), |progress| copied = progress.copied)
        .await
        .context("cannot copy the objects")?;
    info!(objects = copied, seconds = began.elapsed().as_secs_f32(), "objects are in etcd");
    Ok(())
}

async fn undo(layout: &Layout, record: &EtcdRecord) -> Result<()> {
    let process = super::etcd_process(layout, record)?;
    process.stop().await?;
    process.discard()?;
    Ok(())
}

/// Puts the SQLite file out of the way, so that nothing can start on it by mistake.
fn retire_file(layout: &Layout) -> Result<()> {
    let file = layout.database();
    if !file.exists() {
        return Ok(());
    }
    let to = file.with_extension("db.moved");
    let beside = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    std::fs::rename(&file, &to).with_context(|| format!("cannot rename {}", file.display()))?;
    // The write-ahead log that SQLite has not merged yet belongs to the file; usually it is empty.
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::rename(beside(&file, suffix), beside(&to, suffix));
    }
    info!(file = %to.display(), "the SQLite file is not used any more");
    Ok(())
}

/// The end of the wait for a majority.
enum Majority {
    Reached,
    /// Another node votes in place of this one.
    Replaced,
    /// This node is a worker.
    Demoted,
}

/// Waits for as long as it takes: without a majority there is nothing to serve. A node that was
/// removed meanwhile waits in vain.
async fn wait_for_majority(layout: &Layout, managed: &ManagedEtcd) -> Result<Majority> {
    let mut reported = Instant::now();
    loop {
        let asked = async { managed.members().await?.has_quorum().await };
        let Err(failure) = asked.await else { return Ok(Majority::Reached) };
        if reported.elapsed() >= REPORT_INTERVAL {
            reported = Instant::now();
            warn!(error = %Chain(&failure), "waiting for a majority of etcd's members");
        }
        if managed.process.find().is_none() && super::is_removed(layout, &managed.process).await {
            match standing(layout, &managed.record).await {
                Standing::Removed => bail!(super::REMOVED),
                Standing::Replaced => return Ok(Majority::Replaced),
                Standing::Demoted => return Ok(Majority::Demoted),
                // The others decide; they do not answer at the moment.
                Standing::Unknown => {}
            }
        }
        // The process may have ended at once, for example because its port is in use.
        if let Err(failure) = managed.process.ensure(&InitialCluster::Known) {
            warn!(error = %Chain(&failure), "cannot start etcd");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
