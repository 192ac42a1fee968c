//! Events of the instances of virtual machines, as a client that watches gets them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::client::{Client, Connection};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Events of instances.
#[derive(Debug)]
pub(crate) struct Watch {
    _connection: Connection,
    body: Incoming,
    unread: BytesMut,
}

impl Watch {
    /// Follows a collection from now on.
    pub(crate) async fn open(client: &Client, collection: &str) -> Result<Self> {
        let mut connection = client.connect().await?;
        let list = connection.expect(Method::GET, collection, Bytes::new()).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let revision = list["metadata"]["resourceVersion"].as_str().context("no revision")?;
        let path = format!("{collection}?watch=1&resourceVersion={revision}");
        let reply = connection.open(Method::GET, &path, Bytes::new()).await?;
        let body = reply.into_body();
        Ok(Self { _connection: connection, body, unread: BytesMut::new() })
    }

    /// Reads until `is_it` says yes of an event's type and object.
    pub(crate) async fn until(
        &mut self,
        mut is_it: impl FnMut(&str, &Value) -> bool,
    ) -> Result<()> {
        let reading = async {
            loop {
                let event = self.next().await?;
                if is_it(event["type"].as_str().unwrap_or_default(), &event["object"]) {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(TIMEOUT, reading).await.context("waited in vain for a machine")?
    }

    pub(crate) async fn until_running(&mut self, name: &str) -> Result<()> {
        self.until(|_, vmi| vmi["metadata"]["name"] == name && is_running(vmi)).await
    }

    pub(crate) async fn until_gone(&mut self, name: &str) -> Result<()> {
        self.until(|kind, vmi| kind == "DELETED" && vmi["metadata"]["name"] == name).await
    }

    pub(crate) async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.split_to(end + 1);
                return Ok(serde_json::from_slice(&line)?);
            }
            let frame = self.body.frame().await.context("the watch has ended")??;
            if let Ok(data) = frame.into_data() {
                self.unread.extend_from_slice(&data);
            }
        }
    }
}

pub(crate) fn is_running(vmi: &Value) -> bool {
    vmi["status"]["phase"] == "Running"
}
