//! The parts of a server that belong to a cluster with several management nodes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Api;
use base::{Chain, Tasks};
use hci::cluster::{API_URL, ETCD_URL};
use quorum::node_of;
use tracing::error;

use super::extensions::{ManagementFacts, ManagementHandle, StoreKindInUse};
use super::{identities, names};
use crate::cli::{ServerArgs, StoreKind};
use crate::command::join::Membership;
use crate::command::management::{
    EndRequest, EtcdSupervisor, ManagedEtcd, MoveWatch, PeerFollower, ProcessEnd, VoterReplacer,
};
use crate::data_dir::Layout;
use crate::in_process;

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
    let Some(managed) = managed else { return Vec::new() };
    vec![
        (API_URL.to_owned(), names::url(advertise)),
        (ETCD_URL.to_owned(), managed.record.client_url()),
    ]
}

/// Provides the server's state and keys to other nodes.
pub(super) fn open(
    handle: &ManagementHandle,
    args: &ServerArgs,
    layout: &Layout,
    api: &Api,
    managed: Option<&ManagedEtcd>,
) {
    let own = args.encryption.encryption_key_file.clone();
    handle.open(ManagementFacts {
        client: in_process::client(api.clone(), identities::controllers()),
        layout: layout.clone(),
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
pub(super) fn start(
    args: &ServerArgs,
    layout: &Layout,
    advertise: SocketAddr,
    api: &Api,
    (own, managed): (Option<&str>, Option<&ManagedEtcd>),
    tasks: &Tasks,
) -> EndRequest {
    let end = EndRequest::new();
    // A server without an agent votes under the name of the node that it was.
    let Some(node) = own.or(managed.map(|managed| node_of(&managed.record.member))) else {
        return end;
    };
    let client = in_process::client(api.clone(), identities::node(node));
    let (layout, node) = (layout.clone(), node.to_owned());
    if let Some(managed) = managed {
        let process = managed.process.clone();
        let supervisor = EtcdSupervisor { layout: layout.clone(), process, end: end.clone() };
        tasks.spawn("etcd supervisor", supervisor.run(tasks.stop_signal()));
        let replacer = VoterReplacer {
            client: in_process::client(api.clone(), identities::controllers()),
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
    end
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
    }
}
