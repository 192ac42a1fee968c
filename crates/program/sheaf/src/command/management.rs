//! Tasks of a management node besides serving the API, in a cluster with several of them: it runs
//! a member of etcd, follows the other servers, and moves the objects of a single node into etcd.

pub(super) mod candidate;
mod keys;
mod member_join;
mod mover;
mod node_feed;
mod peers;
mod plan;
pub(super) mod recover;
mod role;
mod sqlite_return;
mod standby;
mod store;
mod supervisor;
pub(super) mod view;
mod voter_replacement;

use std::path::Path;

use anyhow::{Context as _, Result};
use auth::pki::EtcdFiles;
use base::clock;
use quorum::{EtcdProcess, EtcdRecord, EtcdSpec, Members, TlsFiles};
use tokio::sync::watch;

use super::join::Membership;
use crate::data_dir::Layout;

pub(super) use keys::{KEYS_PATH, ManagementKeys};
pub(super) use member_join::MemberJoin;
pub(super) use mover::{MoveWatch, warn_if_outdated};
pub(super) use node_feed::NodeFeed;
pub(super) use peers::{PeerFollower, api_urls, read_servers};
pub(super) use plan::management_nodes;
pub(super) use role::{RoleFollower, demote_and_restart, promote_and_restart};
pub(super) use standby::{REMOVAL, stand_by};
pub(super) use store::{ManagedEtcd, open as open_store};
pub(super) use supervisor::EtcdSupervisor;
pub(super) use voter_replacement::{VoterReplacer, no_server_patch};

/// Why this process ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    /// To begin anew in another role, or with another store.
    Restart,
    /// To try another program.
    Upgrade,
    /// Its member of etcd was removed: the node is not part of the cluster any more.
    Removed,
    /// Another node votes in its place: it waits for a seat.
    StandBy,
    /// It is a worker from now on.
    Demoted,
    /// It is to become a management node.
    Promoted,
}

/// Asks the process to end; clones share it.
#[derive(Debug, Clone)]
pub(super) struct EndRequest(watch::Sender<Option<ProcessEnd>>);

impl EndRequest {
    pub(super) fn new() -> Self {
        Self(watch::channel(None).0)
    }

    pub(super) fn request(&self, end: ProcessEnd) {
        self.0.send_if_modified(|known| known.is_none().then(|| *known = Some(end)).is_some());
    }

    /// Resolves when a request has come.
    pub(super) async fn requested(&self) -> ProcessEnd {
        let mut asked = self.0.subscribe();
        match asked.wait_for(Option::is_some).await.map(|end| *end) {
            Ok(Some(end)) => end,
            _ => std::future::pending().await,
        }
    }
}

/// Replaces this process by a new one of the same program with the same arguments. Guests, storage
/// and etcd go on; the service manager sees the same process.
pub(super) fn restart() -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "sheaf".into());
    let failure = std::process::Command::new("/proc/self/exe").arg0(name).args(words).exec();
    Err(failure).context("cannot restart this program")
}

/// Gives up a seat that another node has, and restarts as a node that waits for one.
pub(super) fn stand_by_and_restart(layout: &Layout) -> Result<()> {
    let lock = layout.take()?;
    let record = record(layout)?.context("the data directory has no etcd.json")?;
    let process = etcd_process(layout, &record)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(stand_by(layout, &record, &process))?;
    drop(runtime);
    drop(lock);
    restart()
}

/// The member of etcd on this node, with a certificate that is good now.
pub(super) fn etcd_process(layout: &Layout, record: &EtcdRecord) -> Result<EtcdProcess> {
    let files = etcd_files(layout, record).context("cannot set up the certificate of etcd")?;
    let root = std::path::absolute(&layout.root).context("cannot resolve the data directory")?;
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let tls = TlsFiles {
        ca: absolute(&files.ca),
        certificate: absolute(&files.certificate),
        key: absolute(&files.key),
    };
    Ok(EtcdProcess::new(EtcdSpec {
        root,
        member: record.member.clone(),
        client_url: record.client_url(),
        peer_url: record.peer_url(),
        tls,
    }))
}

/// A management node issues its certificate; a witness has one that a management node signed.
fn etcd_files(layout: &Layout, record: &EtcdRecord) -> Result<EtcdFiles> {
    let pki = layout.pki();
    if Membership::load(layout)?.is_some_and(|known| known.is_witness()) {
        return EtcdFiles::existing(&pki).context("no management node has signed one yet");
    }
    Ok(EtcdFiles::open(&pki, record.address, clock::now())?)
}

/// Last message of a node that was removed from its cluster.
pub(super) const REMOVED: &str = "this node was removed from the cluster; to let it in again, \
     remove its data directory and create a token: sheaf token create --role management";

/// Whether the others run without the member of this node. A removed member ends with status 0, as
/// one that was asked to end; only others that have a majority know.
async fn is_removed(layout: &Layout, process: &EtcdProcess) -> bool {
    let Ok(Some(record)) = record(layout) else { return false };
    for other in &record.others {
        let listed = async {
            let other = std::slice::from_ref(other);
            let members = Members::connect(other, &process.spec().tls).await?;
            // A member that lags behind may not know this one yet.
            members.has_quorum().await?;
            members.list().await
        };
        if listed.await.is_ok_and(|all| all.iter().all(|own| own.name != record.member)) {
            return true;
        }
    }
    false
}

/// This node's record of its etcd setup.
pub(super) fn record(layout: &Layout) -> Result<Option<EtcdRecord>> {
    EtcdRecord::load(&layout.etcd_record()).context("cannot read how far etcd is set up")
}

/// Whether this data directory is that of a management node that serves the API, and not of one that
/// is still joining.
pub(super) fn is_server(layout: &Layout) -> Result<bool> {
    Ok(record(layout)?.is_some_and(|record| record.is_server()))
}
