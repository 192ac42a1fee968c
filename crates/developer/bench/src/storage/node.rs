//! A node with replicated volumes, and the requests of people who use them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Connection;
use crate::process::{Server, processes};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const BRIDGE: &str = "sheafbench";
const NETWORK: &str = "10.53.0.0/24";
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks: short beside what is measured.
const LOOK: Duration = Duration::from_millis(3);

pub(super) fn longhorn(kind: &str) -> String {
    format!("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/{kind}")
}

/// What the processes of a node hold.
#[derive(Debug)]
pub(super) struct Footprint {
    pub(super) files: usize,
    pub(super) open: usize,
    /// In MB.
    pub(super) memory: f64,
}

/// A node whose processes end with it.
#[derive(Debug)]
pub(super) struct StorageNode {
    server: Server,
    connection: Connection,
    dir: TempDir,
}

impl StorageNode {
    pub(super) async fn start(sheaf: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // Machines run as users of their own, who must be able to pass.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), open)?;
        let flags = ["--node-name", "bench", "--guest-bridge", BRIDGE, "--guest-network", NETWORK];
        let data = dir.path().join("data");
        let server = Server::node(sheaf, &data, &flags.map(str::to_owned)).await?;
        let connection = server.client.connect().await?;
        let mut node = Self { server, connection, dir };
        node.prepare().await?;
        Ok(node)
    }

    /// Takes data however full the disk is, and waits until machines can run.
    async fn prepare(&mut self) -> Result<()> {
        let setting = format!("{}/storage-minimal-available-percentage", longhorn("settings"));
        let own = format!("{}/bench", longhorn("nodes"));
        let has_disk = |node: &Value| {
            let disk = &node["status"]["diskStatus"]["default-disk"]["diskUUID"];
            disk.as_str().is_some_and(|uuid| !uuid.is_empty())
        };
        self.until(&own, has_disk).await?;
        self.until(&setting, |found| found.is_object()).await?;
        self.send(Method::PATCH, &setting, &json!({"value": "0"})).await?;
        let unreserved = json!({"spec": {"disks": {"default-disk": {"storageReserved": 0}}}});
        self.send(Method::PATCH, &own, &unreserved).await?;
        let ready = |node: &Value| {
            let all = node["status"]["conditions"].as_array().into_iter().flatten();
            all.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        self.until("/api/v1/nodes/bench", ready).await.map(drop)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    async fn send(&mut self, method: Method, path: &str, body: &Value) -> Result<Bytes> {
        if self.connection.is_closed() {
            self.connection = self.server.client.connect().await?;
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.connection.expect(method, path, body).await
    }

    pub(super) async fn post(&mut self, path: &str, object: &Value) -> Result<()> {
        self.send(Method::POST, path, object).await.map(drop)
    }

    pub(super) async fn delete(&mut self, path: &str) -> Result<()> {
        self.send(Method::DELETE, path, &Value::Null).await.map(drop)
    }

    async fn find(&mut self, path: &str) -> Result<Option<Value>> {
        if self.connection.is_closed() {
            self.connection = self.server.client.connect().await?;
        }
        let (code, body) = self.connection.send(Method::GET, path, Bytes::new()).await?;
        match code {
            200 => Ok(Some(serde_json::from_slice(&body)?)),
            404 => Ok(None),
            code => bail!("{path}: {code} {}", String::from_utf8_lossy(&body)),
        }
    }

    /// Looks until an object is as it should be.
    pub(super) async fn until(
        &mut self,
        path: &str,
        is_it: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let found = self.find(path).await?;
            if let Some(found) = found.as_ref().filter(|found| is_it(found)) {
                return Ok(found.clone());
            }
            ensure!(begun.elapsed() < START_TIMEOUT, "waited in vain for {path}: {found:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn until_gone(&mut self, path: &str) -> Result<()> {
        let begun = Instant::now();
        while let Some(found) = self.find(path).await? {
            ensure!(begun.elapsed() < START_TIMEOUT, "{path} does not go: {found}");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    pub(super) async fn claim(
        &mut self,
        name: &str,
        size: &str,
        class: Option<&str>,
    ) -> Result<()> {
        let class = class.unwrap_or("harvester-longhorn");
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteMany"],
                "volumeMode": "Block", "resources": {"requests": {"storage": size}}}});
        self.post(CLAIMS, &claim).await
    }

    /// Answers the name of the volume.
    pub(super) async fn until_bound(&mut self, claim: &str) -> Result<String> {
        let bound = |own: &Value| own["status"]["phase"] == "Bound";
        let found = self.until(&format!("{CLAIMS}/{claim}"), bound).await?;
        found["spec"]["volumeName"].as_str().map(str::to_owned).context("it has no volume")
    }

    pub(super) async fn want(&mut self, volume: &str, here: bool) -> Result<()> {
        let ticket = json!({"id": "t", "type": "csi-attacher", "nodeID": "bench"});
        let ticket = if here { ticket } else { Value::Null };
        let patch = json!({"spec": {"attachmentTickets": {"t": ticket}}});
        let path = format!("{}/{volume}", longhorn("volumeattachments"));
        // A claim may be bound before there is an object for its attachment.
        self.until(&path, |_| true).await?;
        self.send(Method::PATCH, &path, &patch).await.map(drop)
    }

    /// Asks for a volume here, and waits until clients could connect.
    pub(super) async fn attach(&mut self, volume: &str) -> Result<()> {
        self.want(volume, true).await?;
        let served = |own: &Value| {
            own["status"]["currentState"] == "running"
                && own["status"]["endpoint"].as_str().is_some_and(|it| !it.is_empty())
        };
        self.until(&format!("{}/{volume}-e-0", longhorn("engines")), served).await.map(drop)
    }

    pub(super) async fn detach(&mut self, volume: &str) -> Result<()> {
        self.want(volume, false).await?;
        let path = format!("{}/{volume}", longhorn("volumes"));
        self.until(&path, |own| own["status"]["state"] == "detached").await.map(drop)
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
            print.memory += crate::process::memory(pid);
        }
        Ok(print)
    }

    /// The processes that the server started, and that outlive it.
    fn own(&self) -> Result<Vec<u32>> {
        let dir = self.dir.path().to_string_lossy().into_owned();
        let is_own = |arguments: &[String]| arguments.iter().any(|each| each.contains(&dir));
        let all = processes()?
            .into_iter()
            .filter(|(pid, arguments)| *pid != self.server.pid() && is_own(arguments));
        Ok(all.map(|(pid, _)| pid).collect())
    }
}

impl Drop for StorageNode {
    fn drop(&mut self) {
        let kill = |pid: u32| {
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        };
        // The server first, or it starts again what ends.
        kill(self.server.pid());
        self.own().unwrap_or_default().into_iter().for_each(kill);
        crate::process::remove_bridge(BRIDGE);
    }
}
