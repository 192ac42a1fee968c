//! Replacement of lost etcd voters: removes the member of a lost voter, so that a management node on
//! standby becomes a voter. Runs on the management node whose member leads etcd, or on one of them
//! if the witness leads. `quorum::replaceable` decides. The Node of a server that is no voter any
//! more is marked as one on standby.
//!
//! The time without contact is measured by the clock of this process, from the moment that it leads:
//! another leader starts at zero, and clocks of other machines are not compared.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use base::{Chain, Stop};
use hci::cluster::{API_URL, CONTROL_PLANE, ETCD_URL, MANAGEMENT_ROLE};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use quorum::{MemberInfo, MemberStatus, node_of, replaceable};
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
        let mut silent = BTreeMap::new();
        let mut looks = tokio::time::interval(RECHECK_INTERVAL.min(self.replace_after / 4));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = feed.changed() => {
                    nodes = Some(changed);
                    continue;
                }
                _ = looks.tick() => {}
                () = stop.requested() => return,
            }
            let Some(nodes) = &nodes else { continue };
            if let Err(failure) = Box::pin(self.look(nodes, &mut silent)).await {
                debug!(error = %Chain(&*failure), "cannot look at the members of etcd");
            }
        }
    }

    async fn look(&self, nodes: &[Node], silent: &mut BTreeMap<String, Instant>) -> Result<()> {
        let members = self.managed.members().await?;
        let own = members.status().await?;
        let (listed, states) = self.managed.states().await?;
        if !plan::is_voter_replacer(own.id, own.leader, &listed, nodes) {
            silent.clear();
            return Ok(());
        }
        let now = Instant::now();
        record_unreachable(silent, &listed, &states, nodes, now);
        let silence = silent.iter().map(|(node, since)| (node.clone(), now - *since)).collect();
        let healthy: Vec<u64> = states.iter().flatten().map(|state| state.id).collect();
        let candidates = plan::voter_candidates(nodes);
        let name = &self.managed.record.member;
        let found = replaceable(&listed, &healthy, name, &candidates, &silence, self.replace_after);
        if let Some((id, node)) = found {
            warn!(node, "voter of etcd is lost; another node takes its place");
            members.remove(id).await?;
            return Ok(());
        }
        for node in plan::former_servers(nodes, &listed) {
            let patch = Patch::Merge(standby_patch());
            let api = Api::<Node>::all(self.client.clone());
            api.patch(node, &PatchParams::default(), &patch).await?;
            info!(node, "management node without a seat stands by");
        }
        Ok(())
    }
}

/// The patch of the Node of a former voter: it serves no API, and may become a voter again.
fn standby_patch() -> Value {
    json!({"metadata": {
        "labels": {CONTROL_PLANE: null, MANAGEMENT_ROLE: "true"},
        "annotations": {API_URL: null, ETCD_URL: null},
    }})
}

/// Records since when neither the etcd of a member nor the agent of its node has answered.
fn record_unreachable(
    silent: &mut BTreeMap<String, Instant>,
    members: &[MemberInfo],
    states: &[Option<MemberStatus>],
    nodes: &[Node],
    now: Instant,
) {
    let is_heard = |name: &str| {
        let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        node.is_some_and(plan::is_ready)
    };
    let mut seen = Vec::new();
    for (member, state) in members.iter().zip(states) {
        let node = node_of(&member.name);
        if state.is_none() && !is_heard(node) {
            silent.entry(node.to_owned()).or_insert(now);
            seen.push(node);
        }
    }
    silent.retain(|node, _| seen.contains(&node.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> MemberInfo {
        MemberInfo {
            id: 1,
            name: format!("{name}-00000001"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        }
    }

    fn state() -> Option<MemberStatus> {
        Some(MemberStatus {
            id: 1,
            leader: 1,
            db_size: 0,
            version: String::new(),
            revision: 1,
            raft_index: 1,
        })
    }

    #[tokio::test]
    async fn silence_is_counted_from_when_nothing_is_heard_any_more() {
        let node = |name: &str, ready: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let members = [member("n1"), member("n2"), member("n3"), member("n4")];
        let nodes = [node("n1", "Unknown"), node("n2", "True"), node("n3", "Unknown")];
        let states = [state(), None, None, None];
        let (mut silent, first) = (BTreeMap::new(), Instant::now());
        record_unreachable(&mut silent, &members, &states, &nodes, first);
        // A node that was deleted is not heard either.
        assert_eq!(silent.keys().collect::<Vec<_>>(), ["n3", "n4"]);
        let later = first + Duration::from_secs(60);
        record_unreachable(&mut silent, &members, &[state(), None, None, state()], &nodes, later);
        assert_eq!(silent, BTreeMap::from([("n3".to_owned(), first)]));
    }
}
