//! Keeps guests from the hosts of the cluster: hands the addresses of nodes and of the API to the
//! node's network (`net::Network::guard_hosts`) as they change. Nothing is handed over before the
//! nodes have been listed, so that a restart leaves the rules as they are.

use std::time::Duration;

use base::{Chain, Stop};
use net::Network;
use tokio::sync::watch;
use tracing::warn;

use crate::egress::ClusterRanges;

/// Between two attempts to change the network.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until `stop`; the rules stay.
pub(crate) async fn run(
    network: Network,
    mut cluster: watch::Receiver<ClusterRanges>,
    mut stop: Stop,
) {
    let guests = network.bridge().gateway.trunc();
    let mut is_failing = false;
    loop {
        let hosts = cluster.borrow_and_update().as_ref().map(|known| known.hosts(guests));
        let mut is_behind = false;
        if let Some(hosts) = hosts
            && let Err(failure) = network.guard_hosts(hosts).await
        {
            is_behind = true;
            if !is_failing {
                warn!(error = %Chain(&failure), "cannot keep guests from the hosts of the cluster");
            }
        }
        is_failing = is_behind;
        tokio::select! {
            changed = cluster.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if is_behind => {}
            () = stop.requested() => return,
        }
    }
}
