//! Follows the other management nodes: where their etcd and their API servers are. Both are noted
//! in the data directory, for the next start and for commands on this machine.

use anyhow::{Context as _, Result};
use base::{Chain, Stop};
use hci::cluster::CONTROL_PLANE;
use kube::Client;
use tracing::warn;

pub(in crate::command) use super::plan::api_urls;
use super::{NodeFeed, plan};
use crate::data_dir::Layout;

pub(in crate::command) struct PeerFollower {
    pub(in crate::command) client: Client,
    pub(in crate::command) layout: Layout,
    pub(in crate::command) node: String,
}

impl PeerFollower {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        let mut feed = NodeFeed::new(self.client.clone(), &format!("{CONTROL_PLANE}=true"));
        loop {
            let nodes = tokio::select! {
                nodes = feed.changed() => nodes,
                () = stop.requested() => return,
            };
            let etcd = plan::etcd_urls(&nodes, &self.node);
            if let Err(failure) = self.note(etcd, &api_urls(&nodes)) {
                warn!(error = %Chain(&*failure), "cannot note the other management nodes");
            }
        }
    }

    fn note(&self, etcd: Vec<String>, api: &[String]) -> Result<()> {
        if let Some(mut record) = super::record(&self.layout)?
            && record.others != etcd
        {
            record.others = etcd;
            record.save(&self.layout.etcd_record())?;
        }
        if read_servers(&self.layout) != api {
            let path = self.layout.servers();
            let text = serde_json::to_string(api).context("cannot encode the URLs")?;
            auth::kubeconfig::write_kubeconfig(&path, &text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// The API servers that were known last; none in a cluster with one.
pub(in crate::command) fn read_servers(layout: &Layout) -> Vec<String> {
    let text = std::fs::read_to_string(layout.servers()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
