//! Changes of the role of a node that runs: `sheaf node demote` makes a worker of a management node,
//! `sheaf node promote` the reverse. The label of its Node says which it is to be, and only the
//! control plane writes it; the node follows by a restart in the other role.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use base::{Stop, clock};
use hci::cluster::{MANAGEMENT_ROLE, WORKER_ROLE};
use kube::Client;
use quorum::{EtcdRecord, node_of};
use tracing::info;

use super::standby::first_membership;
use super::{EndRequest, NodeFeed, ProcessEnd};
use crate::cli::NodeRole;
use crate::command::join::Membership;
use crate::data_dir::Layout;

/// Follows the role of a node that serves no API.
pub(in crate::command) struct RoleFollower {
    pub(in crate::command) client: Client,
    pub(in crate::command) node: String,
    /// That it runs in.
    pub(in crate::command) role: String,
    pub(in crate::command) end: EndRequest,
}

impl RoleFollower {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        let mut feed = NodeFeed::named(self.client.clone(), &self.node);
        loop {
            let nodes = tokio::select! {
                nodes = feed.changed() => nodes,
                () = stop.requested() => return,
            };
            let labels = nodes.into_iter().find_map(|node| node.metadata.labels);
            if let Some(end) = change(&self.role, &labels.unwrap_or_default()) {
                info!(change = ?end, "the role of this node has changed; restarting");
                return self.end.request(end);
            }
        }
    }
}

/// The restart that brings a node in this role to that of its labels.
fn change(role: &str, labels: &BTreeMap<String, String>) -> Option<ProcessEnd> {
    let has = |label: &str| labels.get(label).is_some_and(|value| value == "true");
    let (worker, management) = (NodeRole::Worker.word(), NodeRole::Management.word());
    match (has(WORKER_ROLE), has(MANAGEMENT_ROLE)) {
        (true, false) if role == management => Some(ProcessEnd::Demoted),
        (false, true) if role == worker => Some(ProcessEnd::Promoted),
        _ => None,
    }
}

/// Restarts as a worker.
pub(in crate::command) fn demote_and_restart(layout: &Layout) -> Result<()> {
    let lock = layout.take()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(become_worker(layout))?;
    drop(lock);
    super::restart()
}

/// Leaves etcd, so that the next start is that of a worker. Can be repeated after a crash in any step:
/// a start without `etcd.json` and with a membership runs as the role that this says.
pub(super) async fn become_worker(layout: &Layout) -> Result<()> {
    let record = super::record(layout)?;
    let mut membership = match (Membership::load(layout)?, &record) {
        (Some(known), _) => known,
        (None, Some(record)) => first_membership(layout, node_of(&record.member))?,
        (None, None) => {
            anyhow::bail!("the data directory does not belong to a node that joined a cluster")
        }
    };
    membership.set_role(NodeRole::Worker);
    membership.save(layout)?;
    if let Some(record) = record {
        let process = super::etcd_process(layout, &record)?;
        process.stop().await?;
        // Before its data goes: a voter without data refuses to start.
        EtcdRecord::remove(&layout.etcd_record())?;
        process.set_aside(&format!("etcd.removed-{}", clock::now().as_second()))?;
    }
    info!("this node is a worker from now on");
    Ok(())
}

/// Restarts as a node that becomes a management node.
pub(in crate::command) fn promote_and_restart(layout: &Layout) -> Result<()> {
    let membership = Membership::load(layout)?;
    let mut membership =
        membership.context("the data directory does not belong to a node that joined a cluster")?;
    membership.set_role(NodeRole::Management);
    membership.save(layout)?;
    super::restart()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_follows_the_role_of_its_labels() {
        use ProcessEnd::{Demoted, Promoted};
        for (role, labels, expected) in [
            ("worker", &[WORKER_ROLE][..], None),
            ("worker", &[MANAGEMENT_ROLE], Some(Promoted)),
            ("management", &[MANAGEMENT_ROLE], None),
            ("management", &[WORKER_ROLE], Some(Demoted)),
            // In between, and a Node that is not known.
            ("management", &[WORKER_ROLE, MANAGEMENT_ROLE], None),
            ("worker", &[WORKER_ROLE, MANAGEMENT_ROLE], None),
            ("management", &[], None),
            ("worker", &[], None),
            ("witness", &[WORKER_ROLE], None),
        ] {
            let labels = labels.iter().map(|&key| (key.to_owned(), "true".to_owned())).collect();
            assert_eq!(change(role, &labels), expected, "{role} {labels:?}");
        }
    }
}
