//! A node that was declared lost and is back. Before it takes machines again, no guest may run on
//! it whose instance is over: such a guest may have been started elsewhere. The tasks of machines
//! kill them; here it is found out, by a fresh list, that none is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Chain;
use hci::failover::{LOST, REJOINED};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use qemu::RunDir;
use serde_json::json;
use tracing::{debug, info};

use crate::api::{merge, vmis};
use crate::config::Config;

/// Between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Rejoin {
    client: Client,
    node: String,
    machines: PathBuf,
    /// The declaration that was not answered yet.
    token: Option<String>,
}

impl Rejoin {
    pub(super) fn new(client: Client, config: &Config) -> Self {
        let (node, machines) = (config.node_name.clone(), config.machines_dir());
        Self { client, node, machines, token: None }
    }

    /// Takes over the declaration of the own Node, as it is now.
    pub(super) fn observe(&mut self, node: &Node) {
        self.token = declaration(node).map(str::to_owned);
    }

    /// Resolves when it is time to check; never while nothing was declared.
    pub(super) async fn due(&self) {
        match self.token {
            Some(_) => tokio::time::sleep(INTERVAL).await,
            None => std::future::pending().await,
        }
    }

    /// Answers the declaration if nothing runs here that must not.
    pub(super) async fn attempt(&mut self) {
        let Some(token) = self.token.clone() else { return };
        match self.stale_guests().await {
            Ok(stale) if stale.is_empty() => {}
            Ok(stale) => return debug!(?stale, "guests of finished instances still run"),
            Err(failure) => return debug!(error = %Chain(&failure), "cannot check guests"),
        }
        let patch = json!({"metadata": {"annotations": {REJOINED: token}}});
        match merge(&Api::<Node>::all(self.client.clone()), &self.node, &patch).await {
            Ok(_) => {
                info!("node was declared lost and is back; no guest of a finished instance runs");
                self.token = None;
            }
            Err(failure) => debug!(error = %Chain(&failure), "cannot report the return"),
        }
    }

    /// Guests that run here although their instances are over, gone or elsewhere.
    async fn stale_guests(&self) -> kube::Result<BTreeSet<String>> {
        let running = running(&self.machines);
        // A witness never has any, and may not read instances.
        if running.is_empty() {
            return Ok(running);
        }
        let label = format!("kubevirt.io/nodeName={}", self.node);
        let listed = vmis(&self.client).list(&ListParams::default().labels(&label)).await?;
        Ok(stale(running, &listed.items, &self.node))
    }
}

/// The token of a declaration that the node has not answered.
fn declaration(node: &Node) -> Option<&str> {
    let annotations = node.metadata.annotations.as_ref()?;
    let token = annotations.get(LOST)?;
    (annotations.get(REJOINED) != Some(token)).then_some(token)
}

/// The uids of machines whose processes exist.
fn running(machines: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(machines).into_iter().flatten().flatten();
    // A folder that cannot be read counts as running.
    let runs = |path: PathBuf| RunDir::new(path).is_locked().unwrap_or(true);
    let found = entries.filter(|entry| runs(entry.path()));
    found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn stale(running: BTreeSet<String>, listed: &[DynamicObject], node: &str) -> BTreeSet<String> {
    let is_current = |vmi: &&DynamicObject| {
        let status = &vmi.data["status"];
        let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        !over && status["nodeName"] == node
    };
    let current: BTreeSet<&str> =
        listed.iter().filter(is_current).filter_map(|vmi| vmi.metadata.uid.as_deref()).collect();
    running.into_iter().filter(|uid| !current.contains(uid.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_answered_once() {
        let of = |lost: &str, rejoined: &str| {
            let mut found = Node::default();
            let all = [(LOST, lost), (REJOINED, rejoined)];
            let set = all.into_iter().filter(|(_, value)| !value.is_empty());
            let set = set.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            found.metadata.annotations = Some(set);
            declaration(&found).map(str::to_owned)
        };
        assert_eq!(declaration(&Node::default()), None);
        assert_eq!(of("2", ""), Some("2".into()));
        assert_eq!(of("2", "1"), Some("2".into()));
        assert_eq!(of("2", "2"), None);
        assert_eq!(of("", "2"), None);
    }

    #[test]
    fn a_guest_without_a_current_instance_is_stale() {
        let vmi = |uid: &str, phase: &str, node: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": {"name": uid, "uid": uid},
                "status": {"phase": phase, "nodeName": node},
            }))
            .unwrap()
        };
        let listed =
            [vmi("a", "Running", "n2"), vmi("b", "Failed", "n2"), vmi("c", "Running", "n3")];
        let running = ["a", "b", "c", "d"].map(str::to_owned).into();
        let found = stale(running, &listed, "n2");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["b", "c", "d"]);
    }
}
