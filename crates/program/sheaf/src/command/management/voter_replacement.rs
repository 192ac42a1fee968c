//! Replacement of lost etcd voters: removes the member of a lost voter, so that a management node on
//! standby becomes a voter. Runs on the management node whose member leads etcd, or on one of them
//! if the witness leads. `quorum::VoterWatch` decides. The Node of a server that is no voter any
//! more is marked as one on standby.

use std::time::Duration;

use anyhow::Result;
use base::{Chain, Stop};
use hci::cluster::{API_URL, CONTROL_PLANE, ETCD_URL, MANAGEMENT_ROLE, WORKER_ROLE};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use quorum::{VoterStep, VoterView, VoterWatch};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info, warn};

use super::{ManagedEtcd, NodeFeed, plan};

/// How often the status of members is read: etcd does not report when one stops answering.
const RECHECK_INTERVAL: Duration = Duration::from_secs(15);

pub(in crate::command) struct VoterReplacer {
    /// Reads and patches Nodes.
    pub(in crate::command) client: Client,
    pub(in crate::command) managed: ManagedEtcd,
    /// How long a voter may be unreachable.
    pub(in crate::command) replace_after: Duration,
}

impl VoterReplacer {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        let mut feed = NodeFeed::all(self.client.clone());
        let mut nodes = None;
        let (mut watch, began) = (VoterWatch::default(), Instant::now());
        let mut ticks = tokio::time::interval(RECHECK_INTERVAL.min(self.replace_after / 4));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = feed.changed() => {
                    nodes = Some(changed);
                    continue;
                }
                _ = ticks.tick() => {}
                () = stop.requested() => return,
            }
            let Some(nodes) = &nodes else { continue };
            if let Err(failure) = Box::pin(self.check(nodes, &mut watch, began.elapsed())).await {
                debug!(error = %Chain(&*failure), "cannot read the members of etcd");
            }
        }
    }

    async fn check(&self, nodes: &[Node], watch: &mut VoterWatch, now: Duration) -> Result<()> {
        let members = self.managed.members().await?;
        let own = members.status().await?;
        let (listed, states) = self.managed.confirmed_states().await?;
        let healthy: Vec<u64> = states.iter().flatten().map(|state| state.id).collect();
        let step = watch.step(&VoterView {
            own: own.id,
            leader: own.leader,
            members: &listed,
            healthy: &healthy,
            candidates: &plan::voter_candidates(nodes),
            nodes: &nodes
                .iter()
                .filter_map(|node| node.metadata.name.as_deref())
                .collect::<Vec<_>>(),
            now,
            replace_after: self.replace_after,
        });
        match step {
            VoterStep::Leave => return Ok(()),
            VoterStep::Replace { id, node } => {
                warn!(node, "voter of etcd is lost; another node takes its place");
                return Ok(members.remove(id).await?);
            }
            VoterStep::RemoveForeign { id, node } => {
                warn!(node, "voter of etcd belongs to a node that was removed; removing it");
                return Ok(members.remove(id).await?);
            }
            VoterStep::RemoveLearner { id } => {
                warn!(
                    member = format!("{id:x}"),
                    "learner of etcd is not in sync in time; removing it"
                );
                return Ok(members.remove(id).await?);
            }
            VoterStep::Nothing => {}
        }
        for node in plan::former_servers(nodes, &listed) {
            let own = nodes.iter().find(|own| own.metadata.name.as_deref() == Some(node));
            let is_worker = own.is_some_and(|own| plan::has_label(own, WORKER_ROLE));
            let patch = Patch::Merge(no_server_patch(!is_worker));
            let api = Api::<Node>::all(self.client.clone());
            api.patch(node, &PatchParams::default(), &patch).await?;
            info!(
                node,
                is_worker, "node is no member of etcd; marked as a node without API server"
            );
        }
        Ok(())
    }
}

/// The patch of the Node of a former voter: it serves no API. Unless it is a worker now, it may become
/// a voter again.
pub(in crate::command) fn no_server_patch(may_vote: bool) -> Value {
    let role = if may_vote { json!("true") } else { Value::Null };
    json!({"metadata": {
        "labels": {CONTROL_PLANE: null, MANAGEMENT_ROLE: role},
        "annotations": {API_URL: null, ETCD_URL: null},
    }})
}
