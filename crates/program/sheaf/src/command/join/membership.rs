//! The cluster that a data directory belongs to: `cluster.json`, written when a join is complete.
//! From then on no token is needed.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cli::NodeRole;
use crate::data_dir::Layout;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::command) struct Membership {
    /// Pin of the CA that the node joined by.
    pub(super) cluster: String,
    pub(in crate::command) node: String,
    pub(super) role: String,
    /// Where the API is, best first.
    pub(in crate::command) urls: Vec<String>,
}

impl Membership {
    /// Nothing if the directory has not joined.
    pub(in crate::command) fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.membership();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let known = serde_json::from_str(&text);
        known.map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Of a management node that never joined: it made the cluster.
    pub(in crate::command) fn of_management(
        cluster: String,
        node: String,
        urls: Vec<String>,
    ) -> Self {
        Self { cluster, node, role: NodeRole::Management.word().to_owned(), urls }
    }

    pub(in crate::command) fn set_role(&mut self, role: NodeRole) {
        role.word().clone_into(&mut self.role);
    }

    pub(in crate::command) fn is_witness(&self) -> bool {
        self.role == NodeRole::Witness.word()
    }

    pub(in crate::command) fn save(&self, layout: &Layout) -> Result<()> {
        let path = layout.membership();
        let text = serde_json::to_string_pretty(self).context("cannot encode the membership")?;
        auth::kubeconfig::write_kubeconfig(&path, &(text + "\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Fails if what was asked for on the command line is another node or another cluster.
    pub(super) fn check(&self, dir: &Path, name: Option<&str>, pin: Option<&str>) -> Result<()> {
        if let Some(name) = name.filter(|name| *name != self.node) {
            bail!(
                "the data directory {} is that of the node {:?}, not of {name:?}: leave \
                 --node-name out, or choose another --data-dir",
                dir.display(),
                self.node
            );
        }
        if pin.is_some_and(|pin| pin != self.cluster) {
            bail!(
                "the data directory {} belongs to another cluster: choose another --data-dir; \
                 nothing was changed",
                dir.display()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_with_its_node_and_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(Some(dir.path())).unwrap();
        assert_eq!(Membership::load(&layout).unwrap(), None);
        let own = Membership {
            cluster: "p1".into(),
            node: "n2".into(),
            role: "worker".into(),
            urls: vec!["https://10.0.0.1:6443".into()],
        };
        own.save(&layout).unwrap();
        assert_eq!(Membership::load(&layout).unwrap().as_ref(), Some(&own));
        for (name, pin, is_good) in [
            (None, None, true),
            (Some("n2"), Some("p1"), true),
            (Some("n3"), None, false),
            (None, Some("p2"), false),
        ] {
            assert_eq!(own.check(dir.path(), name, pin).is_ok(), is_good, "{name:?} {pin:?}");
        }
    }
}
