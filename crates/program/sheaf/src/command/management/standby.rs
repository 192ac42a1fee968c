//! A former voter that another node has replaced while it was down: it keeps its keys and its Node,
//! and is on standby.

use anyhow::{Context as _, Result};
use auth::pki::{CertificateFacts, NodeFiles};
use base::clock;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use quorum::{EtcdProcess, EtcdRecord, Phase, node_of};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::{debug, info};

use super::peers::read_servers;
use crate::command::join::Membership;
use crate::command::program::node_client;
use crate::data_dir::Layout;

/// On a Node: its member of etcd is removed, and the Node is deleted next.
pub(in crate::command) const REMOVAL: &str = "sheaf.io/removal";

/// The standing of a node without a seat, as the API servers of the others tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The node was removed from the cluster.
    Removed,
    /// Another node votes in its place.
    Replaced,
    /// Nobody answers.
    Unknown,
}

/// Asks the other API servers whether this node still belongs to the cluster.
pub(super) async fn standing(layout: &Layout, record: &EtcdRecord) -> Standing {
    let node = node_of(&record.member);
    let known = Membership::load(layout).ok().flatten().map(|known| known.urls);
    let mut urls = read_servers(layout);
    urls.extend(known.unwrap_or_default());
    for url in &urls {
        let asked = async {
            let client = node_client(layout, url).await?;
            let found = Api::<Node>::all(client).get(node).await;
            anyhow::Ok(found)
        };
        match asked.await {
            Ok(Ok(found)) => return of_node(&found),
            Ok(Err(kube::Error::Api(status))) if [401, 403, 404].contains(&status.code) => {
                return Standing::Removed;
            }
            Ok(Err(failure)) => debug!(%url, error = %base::Chain(&failure), "no answer"),
            Err(failure) => debug!(%url, error = %base::Chain(&*failure), "no answer"),
        }
    }
    Standing::Unknown
}

/// The member of a node that is removed goes before its Node, which is marked by then.
fn of_node(node: &Node) -> Standing {
    let annotations = node.metadata.annotations.as_ref();
    match annotations.is_some_and(|all| all.contains_key(REMOVAL)) {
        true => Standing::Removed,
        false => Standing::Replaced,
    }
}

/// Puts the data of the former member aside, and notes that this node waits for a seat. The next
/// start runs as a node that has joined.
pub(in crate::command) async fn stand_by(
    layout: &Layout,
    record: &EtcdRecord,
    process: &EtcdProcess,
) -> Result<()> {
    let node = node_of(&record.member);
    if Membership::load(layout)?.is_none() {
        first_membership(layout, node)?.save(layout)?;
    }
    process.stop().await?;
    process.set_aside(&format!("etcd.removed-{}", clock::now().as_second()))?;
    EtcdRecord::new(Phase::Joining, node, record.address, record.others.clone())
        .save(&layout.etcd_record())?;
    info!("another node votes in place of this one, which stands by from now on");
    Ok(())
}

/// Of the node that made the cluster, and never joined it.
fn first_membership(layout: &Layout, node: &str) -> Result<Membership> {
    let files = NodeFiles::open(&layout.pki()).context("cannot open the key of this node")?;
    let ca = files.ca_pem()?.context("the CA of the cluster is missing")?;
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).context("cannot read the CA")?;
    let pin = CertificateFacts::of(&ca).context("cannot read the CA")?.public_key_pin();
    Ok(Membership::of_management(pin, node.to_owned(), read_servers(layout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_being_removed_does_not_stand_by() {
        let node = |annotations: serde_json::Value| -> Node {
            serde_json::from_value(serde_json::json!({"metadata": {"annotations": annotations}}))
                .unwrap()
        };
        assert_eq!(of_node(&node(serde_json::json!({}))), Standing::Replaced);
        assert_eq!(of_node(&node(serde_json::json!({REMOVAL: "member"}))), Standing::Removed);
    }
}
