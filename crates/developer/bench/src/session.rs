//! The requests of a user to one server, and what is waited for with them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, Connection};

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const TIMEOUT: Duration = Duration::from_secs(120);
/// Between two requests: short beside what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

pub(crate) fn longhorn(kind: &str) -> String {
    format!("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/{kind}")
}

/// Whether a Node says that it is ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    let mut all = node["status"]["conditions"].as_array().into_iter().flatten();
    all.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    connection: Connection,
}

impl Session {
    pub(crate) async fn open(client: &Client) -> Result<Self> {
        Ok(Self { client: client.clone(), connection: client.connect().await? })
    }

    pub(crate) async fn send(&mut self, method: Method, path: &str, body: &Value) -> Result<Bytes> {
        if self.connection.is_closed() {
            self.connection = self.client.connect().await?;
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.connection.expect(method, path, body).await
    }

    pub(crate) async fn post(&mut self, path: &str, object: &Value) -> Result<()> {
        self.send(Method::POST, path, object).await.map(drop)
    }

    /// A merge patch.
    pub(crate) async fn patch(&mut self, path: &str, patch: &Value) -> Result<()> {
        self.send(Method::PATCH, path, patch).await.map(drop)
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<()> {
        self.send(Method::DELETE, path, &Value::Null).await.map(drop)
    }

    async fn find(&mut self, path: &str) -> Result<Option<Value>> {
        if self.connection.is_closed() {
            self.connection = self.client.connect().await?;
        }
        let (code, body) = self.connection.send(Method::GET, path, Bytes::new()).await?;
        match code {
            200 => Ok(Some(serde_json::from_slice(&body)?)),
            404 => Ok(None),
            code => bail!("{path}: {code} {}", String::from_utf8_lossy(&body)),
        }
    }

    /// Polls until an object is as it should be.
    pub(crate) async fn until(
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
            ensure!(begun.elapsed() < TIMEOUT, "waited in vain for {path}: {found:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn until_gone(&mut self, path: &str) -> Result<()> {
        let begun = Instant::now();
        while let Some(found) = self.find(path).await? {
            ensure!(begun.elapsed() < TIMEOUT, "{path} does not go: {found}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Makes the disk of a node take data however full it is.
    pub(crate) async fn use_disk(&mut self, node: &str) -> Result<()> {
        let setting = format!("{}/storage-minimal-available-percentage", longhorn("settings"));
        let own = format!("{}/{node}", longhorn("nodes"));
        let has_disk = |node: &Value| {
            let disk = &node["status"]["diskStatus"]["default-disk"]["diskUUID"];
            disk.as_str().is_some_and(|uuid| !uuid.is_empty())
        };
        self.until(&own, has_disk).await?;
        self.until(&setting, |found| found.is_object()).await?;
        self.patch(&setting, &json!({"value": "0"})).await?;
        let unreserved = json!({"spec": {"disks": {"default-disk": {"storageReserved": 0}}}});
        self.patch(&own, &unreserved).await
    }

    pub(crate) async fn claim(
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
    pub(crate) async fn until_bound(&mut self, claim: &str) -> Result<String> {
        let bound = |own: &Value| own["status"]["phase"] == "Bound";
        let found = self.until(&format!("{CLAIMS}/{claim}"), bound).await?;
        found["spec"]["volumeName"].as_str().map(str::to_owned).context("it has no volume")
    }

    pub(crate) async fn want(&mut self, volume: &str, node: Option<&str>) -> Result<()> {
        let ticket = node.map(|node| json!({"id": "t", "type": "csi-attacher", "nodeID": node}));
        let patch = json!({"spec": {"attachmentTickets": {"t": ticket}}});
        let path = format!("{}/{volume}", longhorn("volumeattachments"));
        // A claim may be bound before there is an object for its attachment.
        self.until(&path, |_| true).await?;
        self.patch(&path, &patch).await
    }

    /// Asks for a volume on a node, and waits until clients could connect. Answers its engine.
    pub(crate) async fn attach(&mut self, volume: &str, node: &str) -> Result<Value> {
        self.want(volume, Some(node)).await?;
        let served = |own: &Value| {
            own["status"]["currentState"] == "running"
                && own["status"]["endpoint"].as_str().is_some_and(|it| !it.is_empty())
        };
        self.until(&format!("{}/{volume}-e-0", longhorn("engines")), served).await
    }

    pub(crate) async fn detach(&mut self, volume: &str) -> Result<()> {
        self.want(volume, None).await?;
        let path = format!("{}/{volume}", longhorn("volumes"));
        self.until(&path, |own| own["status"]["state"] == "detached").await.map(drop)
    }
}
