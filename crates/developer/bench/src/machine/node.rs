//! A node under measurement: a server with its agent, and machines followed by a watch.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Connection;
use crate::process::Server;
use crate::watch::Watch;

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
const BRIDGE: &str = "sheafbench";
const NETWORK: &str = "10.53.0.0/24";
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A node whose machines end with it.
#[derive(Debug)]
pub(super) struct MachineNode {
    pub(super) server: Server,
    connection: Connection,
    dir: TempDir,
    guest: Vec<u8>,
}

impl MachineNode {
    pub(super) async fn start(sheaf: &Path, guest: Vec<u8>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // Machines run as users of their own, who must be able to pass.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), open)?;
        let disks = dir.path().to_string_lossy().into_owned();
        let flags = [
            "--node-name",
            "bench",
            "--guest-bridge",
            BRIDGE,
            "--guest-network",
            NETWORK,
            "--host-disk-path",
            &disks,
        ];
        let server = Server::node(sheaf, &data(&dir), &flags.map(str::to_owned)).await?;
        let connection = server.client.connect().await?;
        let mut node = Self { server, connection, dir, guest };
        node.prepare().await?;
        Ok(node)
    }

    /// Allows disks of the host, and waits until the node can run machines.
    async fn prepare(&mut self) -> Result<()> {
        let gates = json!({"spec": {"configuration": {"developerConfiguration": {
            "featureGates": ["HostDisk"],
        }}}});
        let begun = Instant::now();
        loop {
            let body = Bytes::from(gates.to_string());
            let (code, _) = self.connection.send(Method::PATCH, KUBEVIRT, body).await?;
            let path = "/api/v1/nodes/bench";
            let (_, node) = self.connection.send(Method::GET, path, Bytes::new()).await?;
            let node: Value = serde_json::from_slice(&node)?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            if code == 200 && conditions.iter().any(ready) {
                return Ok(());
            }
            ensure!(begun.elapsed() < START_TIMEOUT, "the node does not get ready: {node}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn guest(&self) -> &[u8] {
        &self.guest
    }

    /// Where the folders of machines are.
    pub(super) fn machines(&self) -> PathBuf {
        data(&self.dir).join("agent/vmis")
    }

    pub(super) fn disk(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.img"))
    }

    /// A machine of this name with a disk of its own, not sent yet.
    pub(super) fn machine(&self, name: &str) -> Result<Bytes> {
        let disk = self.disk(name);
        std::fs::write(&disk, &self.guest)?;
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": "Always", "template": {"spec": {
                // With KubeVirt's default request, a tenth of a processor each, fifty of them
                // would not fit on two.
                "domain": {"memory": {"guest": "16Mi"},
                    "resources": {"requests": {"cpu": "10m"}}, "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                }},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "hostDisk": {"path": disk, "type": "Disk"}}],
            }}},
        });
        Ok(Bytes::from(machine.to_string()))
    }

    pub(super) async fn create(&mut self, machine: Bytes) -> Result<()> {
        self.send(Method::POST, VMS, machine).await.map(drop)
    }

    /// All of them over a few connections.
    pub(super) async fn create_all(&self, machines: Vec<Bytes>) -> Result<()> {
        let mut workers = tokio::task::JoinSet::new();
        for share in machines.chunks(machines.len().div_ceil(8).max(1)) {
            let (share, client) = (share.to_vec(), self.server.client.clone());
            workers.spawn(async move {
                let mut connection = client.connect().await?;
                for machine in share {
                    connection.expect(Method::POST, VMS, machine).await?;
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(())
    }

    pub(super) async fn set_strategy(&mut self, name: &str, strategy: &str) -> Result<()> {
        let patch = json!({"spec": {"runStrategy": strategy}});
        let (path, body) = (format!("{VMS}/{name}"), Bytes::from(patch.to_string()));
        self.send(Method::PATCH, &path, body).await.map(drop)
    }

    pub(super) async fn delete(&mut self, name: &str) -> Result<()> {
        let path = format!("{VMS}/{name}");
        self.send(Method::DELETE, &path, Bytes::new()).await.map(drop)
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        if self.connection.is_closed() {
            self.connection = self.server.client.connect().await?;
        }
        self.connection.expect(method, path, body).await
    }

    /// Waits until this many guests have said something.
    pub(super) async fn wait_for_output(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let folders = std::fs::read_dir(self.machines())?.flatten();
            let logs = folders.filter_map(|each| each.path().join("serial.log").metadata().ok());
            if logs.filter(|log| log.len() > 0).count() >= count {
                return Ok(());
            }
            ensure!(begun.elapsed() < START_TIMEOUT, "not all guests came up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Follows the instances from now on.
    pub(super) async fn watch(&mut self) -> Result<Watch> {
        Watch::open(&self.server.client, VMIS).await
    }
}

impl Drop for MachineNode {
    fn drop(&mut self) {
        // Processes remain here only after a failure.
        for (pid, arguments) in crate::process::processes().unwrap_or_default() {
            if arguments.iter().any(|each| each.starts_with(&*self.dir.path().to_string_lossy())) {
                let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
        }
        crate::process::remove_bridge(BRIDGE);
    }
}

fn data(dir: &TempDir) -> PathBuf {
    dir.path().join("data")
}
