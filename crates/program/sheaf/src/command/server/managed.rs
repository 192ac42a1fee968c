//! The parts of a server that belong to a cluster with several management nodes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base::Chain;
use hci::cluster::{AGENT_GRANTS, API_URL, ETCD_URL};
use quorum::node_of;
use tracing::error;

use super::extensions::{ManagementFacts, ManagementHandle, StoreKindInUse};
use super::stages::StartingServer;
use super::{identities, names};
use crate::cli::{ServerArgs, StoreKind};
use crate::command::join::Membership;
use crate::command::management::{
    EtcdSupervisor, ManagedEtcd, MoveWatch, PeerFollower, ProcessEnd, VoterReplacer,
};
use crate::data_dir::Layout;

/// How long a server that could not start waits before it begins anew.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The arguments of a node that joined, as those of a server: it has the name of its node, and
/// listens where others reach it.
pub(super) fn effective(args: &ServerArgs, layout: &Layout) -> Result<ServerArgs> {
    let mut args = args.clone();
    let Some(membership) = Membership::load(layout)? else { return Ok(args) };
    let record = crate::command::management::record(layout)?;
    let record = record.context("the data directory has no etcd.json")?;
    args.node_name = Some(membership.node);
    args.advertise_address = Some(args.advertise_address.unwrap_or(record.address));
    if args.listen.ip().is_loopback() {
        args.listen.set_ip(record.address);
    }
    Ok(args)
}

/// Annotations of this server's Node, by which others find it.
pub(super) fn annotations(
    managed: Option<&ManagedEtcd>,
    advertise: SocketAddr,
) -> Vec<(String, String)> {
    let mut annotations = vec![(AGENT_GRANTS.to_owned(), "true".to_owned())];
    if let Some(managed) = managed {
        annotations.push((API_URL.to_owned(), names::url(advertise)));
        annotations.push((ETCD_URL.to_owned(), managed.record.client_url()));
    }
    annotations
}

/// Provides the server's state and keys to other nodes.
pub(super) fn open(handle: &ManagementHandle, server: &StartingServer<'_>) {
    let StartingServer { args, layout, managed, .. } = server;
    let own = args.encryption.encryption_key_file.clone();
    handle.open(ManagementFacts {
        client: server.client(identities::controllers()),
        layout: Layout::clone(layout),
        end: server.end.clone(),
        pki: layout.pki(),
        encryption_keys: own.unwrap_or_else(|| layout.encryption_keys()),
        service_range: args.service_cluster_ip_range.clone(),
        store: match (managed, args.store) {
            (Some(managed), _) => StoreKindInUse::ManagedEtcd(Box::new(managed.clone())),
            (None, StoreKind::Sqlite) => StoreKindInUse::Sqlite,
            (None, StoreKind::Etcd) => StoreKindInUse::ExternalEtcd,
        },
    });
}

/// Keeps etcd running and follows the other servers; with SQLite, waits until there are some.
pub(super) fn start(server: &StartingServer<'_>) {
    let StartingServer { args, layout, managed, own, advertise, end, tasks, .. } = server;
    // A server without an agent votes under the name of the node that it was.
    let voter = managed.as_ref().map(|managed| node_of(&managed.record.member));
    let Some(node) = own.as_deref().or(voter) else { return };
    let client = server.client(identities::node(node));
    let (layout, node) = (Layout::clone(layout), node.to_owned());
    if let Some(managed) = managed {
        let process = managed.process.clone();
        let supervisor = EtcdSupervisor { layout: layout.clone(), process, end: end.clone() };
        tasks.spawn("etcd supervisor", supervisor.run(tasks.stop_signal()));
        let replacer = VoterReplacer {
            client: server.client(identities::controllers()),
            managed: managed.clone(),
            replace_after: args.replace_voter_after.unsigned_abs(),
        };
        tasks.spawn("voters", replacer.run(tasks.stop_signal()));
        let follower = PeerFollower { client, layout, node };
        tasks.spawn("peers", follower.run(tasks.stop_signal()));
    } else if args.store == StoreKind::Sqlite && !advertise.ip().is_loopback() {
        let (address, end) = (advertise.ip(), end.clone());
        let watch = MoveWatch { client, layout, node, address, end };
        tasks.spawn("move watch", watch.run(tasks.stop_signal()));
    }
}

/// A server that cannot start on etcd begins anew: its member may have lost the majority again.
pub(super) async fn retry(failure: &(dyn std::error::Error + 'static)) -> ProcessEnd {
    error!(error = %Chain(failure), "cannot start on etcd; trying again");
    tokio::time::sleep(RETRY_DELAY).await;
    ProcessEnd::Restart
}

/// The last step of the process when its tasks have ended.
pub(super) fn finish(end: Option<ProcessEnd>, layout: &Layout) -> Result<()> {
    match end {
        None => Ok(()),
        Some(ProcessEnd::Upgrade) => crate::command::program::begin_trial(layout),
        Some(ProcessEnd::Restart) => crate::command::management::restart(),
        Some(ProcessEnd::Removed) => anyhow::bail!(crate::command::management::REMOVED),
        Some(ProcessEnd::StandBy) => crate::command::management::stand_by_and_restart(layout),
        Some(ProcessEnd::Demoted) => crate::command::management::demote_and_restart(layout),
        Some(ProcessEnd::Promoted) => crate::command::management::promote_and_restart(layout),
    }
}
