//! A former voter that another node has replaced while it was down: it keeps its keys and its Node,
//! and is on standby.

use anyhow::{Context as _, Result};
use auth::pki::{CertificateFacts, NodeFiles};
use base::clock;
use hci::cluster::WORKER_ROLE;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use quorum::{EtcdProcess, EtcdRecord, Phase, node_of};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::{debug, info};

use super::peers::read_servers;
use super::plan::has_label;
use crate::command::join::Membership;
use crate::command::program::node_client;
use crate::data_dir::Layout;

/// On a Node: its member of etcd is removed, and the Node is deleted next.
pub(in crate::command) const REMOVAL: &str = "sheaf.io/removal";

/// The standing of a node without a seat, as the API servers of the others report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The node was removed from the cluster.
    Removed,
    /// Another node votes in its place.
    Replaced,
    /// The node is a worker.
    Demoted,
    /// No server answers.
    Unknown,
}

/// Asks the other API servers whether this node still belongs to the cluster.
pub(super) async fn standing(layout: &Layout, record: &EtcdRecord) -> Standing {
    current_nodes(layout, record).await.0
}

/// The same, with the Nodes that a server answers now: those that this node has seen may be from
/// before the last server went away.
pub(super) async fn current_nodes(layout: &Layout, record: &EtcdRecord) -> (Standing, Vec<Node>) {
    let name = node_of(&record.member);
    let known = Membership::load(layout).ok().flatten().map(|known| known.urls);
    let mut urls = read_servers(layout);
    urls.extend(known.unwrap_or_default());
    for url in &urls {
        let asked = async {
            let client = node_client(layout, url).await?;
            let found = Api::<Node>::all(client).list(&ListParams::default()).await;
            anyhow::Ok(found)
        };
        match asked.await {
            Ok(Ok(found)) => return (among(name, &found.items), found.items),
            Ok(Err(kube::Error::Api(status))) if [401, 403].contains(&status.code) => {
                return (Standing::Removed, Vec::new());
            }
            Ok(Err(failure)) => debug!(%url, error = %base::Chain(&failure), "no answer"),
            Err(failure) => debug!(%url, error = %base::Chain(&*failure), "no answer"),
        }
    }
    (Standing::Unknown, Vec::new())
}

/// The member of a node that is removed goes before its Node, which is marked by then.
fn among(name: &str, nodes: &[Node]) -> Standing {
    let own = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
    let Some(own) = own else { return Standing::Removed };
    if has_label(own, WORKER_ROLE) {
        return Standing::Demoted;
    }
    let annotations = own.metadata.annotations.as_ref();
    match annotations.is_some_and(|all| all.contains_key(REMOVAL)) {
        true => Standing::Removed,
        false => Standing::Replaced,
    }
}

/// Notes that this node waits for a seat, and puts the data of the former member aside. The next
/// start runs as a node that has joined. Killed in between, it finds data of a member that is not
/// listed, and puts it aside then.
pub(in crate::command) async fn stand_by(
    layout: &Layout,
    record: &EtcdRecord,
    process: &EtcdProcess,
) -> Result<()> {
    let node = node_of(&record.member);
    if Membership::load(layout)?.is_none() {
        first_membership(layout, node)?.save(layout)?;
    }
    EtcdRecord::new(Phase::Joining, node, record.address, record.others.clone())
        .save(&layout.etcd_record())?;
    process.stop().await?;
    process.set_aside(&format!("etcd.removed-{}", clock::now().as_second()))?;
    info!("another node votes in place of this one, which is on standby from now on");
    Ok(())
}

/// Of the node that made the cluster, and never joined it.
pub(super) fn first_membership(layout: &Layout, node: &str) -> Result<Membership> {
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
        let node = |name: &str, annotations: serde_json::Value| -> Node {
            let metadata = serde_json::json!({"name": name, "annotations": annotations});
            serde_json::from_value(serde_json::json!({"metadata": metadata})).unwrap()
        };
        let mut nodes = [
            node("n1", serde_json::json!({})),
            node("n2", serde_json::json!({REMOVAL: "member"})),
            node("n4", serde_json::json!({})),
        ];
        let labels = nodes[2].metadata.labels.get_or_insert_default();
        labels.insert(WORKER_ROLE.to_owned(), "true".to_owned());
        assert_eq!(among("n1", &nodes), Standing::Replaced);
        assert_eq!(among("n2", &nodes), Standing::Removed);
        assert_eq!(among("n3", &nodes), Standing::Removed);
        assert_eq!(among("n4", &nodes), Standing::Demoted);
    }
}
