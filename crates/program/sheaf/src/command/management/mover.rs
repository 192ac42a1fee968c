//! On the only management node: waits until there are enough others, and begins the move of the
//! objects into etcd.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use base::{Chain, Stop, clock};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use quorum::{EtcdRecord, EtcdVersion, Phase, PhaseEvent, Support, find_etcd, next_phase};
use tracing::{info, warn};

use super::{EndRequest, NodeFeed, ProcessEnd, plan};
use crate::data_dir::Layout;

/// A move that failed is tried again without a change of any node.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

pub(in crate::command) struct MoveWatch {
    pub(in crate::command) client: Client,
    pub(in crate::command) layout: Layout,
    pub(in crate::command) node: String,
    pub(in crate::command) address: IpAddr,
    pub(in crate::command) end: EndRequest,
}

impl MoveWatch {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        // Management nodes and a witness: labels of two names cannot be selected at once.
        let mut feed = NodeFeed::all(self.client.clone());
        let mut nodes = Vec::new();
        let mut is_reported = false;
        loop {
            tokio::select! {
                changed = feed.changed() => nodes = changed,
                () = tokio::time::sleep(RECHECK_INTERVAL) => {}
                () = stop.requested() => return,
            }
            match self.move_if_due(&nodes) {
                Ok(true) => return,
                Ok(false) => is_reported = false,
                Err(failure) => {
                    if !is_reported {
                        warn!(error = %Chain(&*failure), "objects cannot move into etcd");
                    }
                    is_reported = true;
                }
            }
        }
    }

    /// Whether the move has begun.
    fn move_if_due(&self, nodes: &[Node]) -> Result<bool> {
        let record = super::record(&self.layout)?;
        let phase = record.as_ref().map(|record| &record.phase);
        if !plan::is_move_due(&self.node, nodes, phase, clock::now()) {
            return Ok(false);
        }
        let version = find_etcd()?;
        warn_if_outdated(version);
        let moving: Phase = next_phase(phase, PhaseEvent::MoveWanted)?;
        let record = EtcdRecord::new(moving, &self.node, self.address, Vec::new());
        record.save(&self.layout.etcd_record())?;
        info!("three voters are ready: restarting to move the objects into etcd");
        self.end.request(ProcessEnd::Restart);
        Ok(true)
    }
}

pub(in crate::command) fn warn_if_outdated(version: EtcdVersion) {
    if let Support::Outdated { fixed_in } = version.support() {
        warn!(%version, %fixed_in, "etcd lacks fixes of later releases; upgrade it");
    }
}
