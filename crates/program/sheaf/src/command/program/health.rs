//! The proof that a new program works here: its API answers over TLS, and the node is ready and
//! renews its lease. Reported to the process that tries it.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base::clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::launch::TRIAL;

/// The line that ends a trial.
pub(super) const HEALTHY: &str = "healthy";
const NODE_LEASES: &str = "kube-node-lease";
/// Between two checks: a start takes seconds, and no event reports its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The connection of a program on trial to the process that tries it.
pub(super) struct TrialLink {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
}

/// The client and the node of a health check.
pub(super) struct HealthCheck {
    /// Reaches the API over the network, as the node.
    pub(super) client: Client,
    pub(super) node: String,
}

impl TrialLink {
    /// Nothing unless this process is on trial.
    pub(super) fn take() -> Result<Option<Self>> {
        if std::env::var_os(TRIAL).is_none() {
            return Ok(None);
        }
        let socket = std::io::stdin().as_fd().try_clone_to_owned();
        let socket = StdUnixStream::from(socket.context("cannot reach the old program")?);
        socket.set_nonblocking(true).context("cannot reach the old program")?;
        let (reader, writer) = UnixStream::from_std(socket)
            .context("cannot reach the old program: standard input is no socket")?
            .into_split();
        Ok(Some(Self { reader, writer }))
    }

    /// Reports until the program is healthy, then waits for the end of the process that tries it.
    pub(super) async fn report(mut self, check: HealthCheck) {
        let started = clock::now();
        let mut last = String::new();
        loop {
            let line = match check.result(started).await {
                Ok(()) => HEALTHY.to_owned(),
                Err(failure) => format!("{failure:#}").replace('\n', " "),
            };
            if line != last && self.writer.write_all(format!("{line}\n").as_bytes()).await.is_err()
            {
                return;
            }
            if line == HEALTHY {
                break;
            }
            last = line;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        // The other side says nothing; its end is the end of this.
        let _ = self.reader.read(&mut [0]).await;
    }
}

impl HealthCheck {
    async fn result(&self, started: Timestamp) -> Result<()> {
        let ready = http::Request::get("/readyz").body(Vec::new()).context("cannot ask")?;
        self.client.request_text(ready).await.context("the API is not ready")?;
        let node = Api::<Node>::all(self.client.clone()).get(&self.node).await;
        let node = node.context("cannot read the Node")?;
        let leases = Api::<Lease>::namespaced(self.client.clone(), NODE_LEASES);
        let lease = leases.get(&self.node).await.context("cannot read the lease of the node")?;
        check(&node, &lease, started)
    }
}

fn check(node: &Node, lease: &Lease, started: Timestamp) -> Result<()> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|own| own.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => {}
        Some(ready) => bail!(
            "the node is not ready: {}",
            ready.message.as_deref().unwrap_or("it gives no reason")
        ),
        None => bail!("the node is not ready: it has not reported yet"),
    }
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    if renewed.is_none_or(|time| time.0 < started) {
        bail!("the node has not renewed its lease yet");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_proves_itself_by_what_it_wrote_since_the_start() {
        let started: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let node = |status: &str| -> Node {
            let ready = json!({"type": "Ready", "status": status, "message": "no QEMU"});
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": [ready]}}))
                .unwrap()
        };
        let lease = |time: &str| -> Lease {
            serde_json::from_value(json!({"metadata": {}, "spec": {"renewTime": time}})).unwrap()
        };
        let (before, after) = ("2026-01-01T00:00:09.000000Z", "2026-01-01T00:00:11.000000Z");
        for (node, time, expected) in [
            (node("True"), after, None),
            (node("True"), before, Some("the node has not renewed its lease yet")),
            (node("False"), after, Some("the node is not ready: no QEMU")),
            (Node::default(), after, Some("the node is not ready: it has not reported yet")),
        ] {
            let found = check(&node, &lease(time), started).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected);
        }
    }
}
