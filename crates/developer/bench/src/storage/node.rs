//! A node with replicated volumes.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use crate::process::{Server, kill, memory, processes_with};
use crate::session::{Session, is_ready};

/// The name of the node.
pub(super) const NODE: &str = "bench";
const BRIDGE: &str = "sheafbench";
const NETWORK: &str = "10.53.0.0/24";

/// The resources held by the processes of a node.
#[derive(Debug)]
pub(super) struct Footprint {
    pub(super) files: usize,
    pub(super) open: usize,
    /// In MB.
    pub(super) memory: f64,
}

/// A node whose processes end with it, and a user of it.
#[derive(Debug)]
pub(super) struct StorageNode {
    server: Server,
    session: Session,
    dir: TempDir,
}

impl StorageNode {
    pub(super) async fn start(sheaf: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // Machines run as users of their own, who must be able to pass.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), open)?;
        let flags = ["--node-name", NODE, "--guest-bridge", BRIDGE, "--guest-network", NETWORK];
        let data = dir.path().join("data");
        let server = Server::node(sheaf, &data, &flags.map(str::to_owned)).await?;
        let session = Session::open(&server.client).await?;
        let mut node = Self { server, session, dir };
        node.use_disk(NODE).await?;
        node.until(&format!("/api/v1/nodes/{NODE}"), is_ready).await?;
        Ok(node)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Of all our processes.
    pub(super) fn footprint(&self) -> Result<Footprint> {
        let mut print = Footprint { files: 0, open: 0, memory: self.server.memory() };
        let storage = self.dir.path().join("data/storage");
        for dir in ["nbd", "disk/replicas", "replicas", "records"] {
            print.files += std::fs::read_dir(storage.join(dir)).into_iter().flatten().count();
        }
        for pid in self.own()? {
            print.open += std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
            print.memory += memory(pid);
        }
        Ok(print)
    }

    /// The processes that the server started, and that outlive it.
    fn own(&self) -> Result<Vec<u32>> {
        let mut all = processes_with(self.dir.path())?;
        all.retain(|pid| *pid != self.server.pid());
        Ok(all)
    }
}

impl Deref for StorageNode {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for StorageNode {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Drop for StorageNode {
    fn drop(&mut self) {
        // The server first, or it starts again what ends.
        kill(self.server.pid());
        self.own().unwrap_or_default().into_iter().for_each(kill);
        crate::process::remove_bridge(BRIDGE);
    }
}
