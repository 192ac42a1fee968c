//! Sending an image into a volume, with progress.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};

use crate::command::link::ClusterClient;
use crate::command::send::{ProgressLine, chunks, send};
use crate::command::volume;

/// How long a volume may take to be ready for the image.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait before events are searched for a reason.
const REASON_DELAY: Duration = Duration::from_secs(2);

/// Sends `file` into the DataVolume `name`, once that is ready.
pub(super) async fn run(link: &ClusterClient, name: &str, file: &Path) -> Result<()> {
    wait_until_ready(link, name).await?;
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": name, "namespace": link.namespace}, "spec": {"pvcName": name},
    });
    let path = format!(
        "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{}/uploadtokenrequests",
        link.namespace
    );
    let ticket = link.post(&path, &request).await.context("cannot get an upload token")?;
    let token = ticket["status"]["token"].as_str().unwrap_or("").to_owned();
    let input = tokio::fs::File::open(file)
        .await
        .with_context(|| format!("cannot open {}", file.display()))?;
    let size = input.metadata().await.context("cannot read its size")?.len();
    let request = Request::post("/v1beta1/upload")
        .header(HOST, link.config.cluster_url.host().unwrap_or(""))
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, size)
        .body(StreamBody::new(chunks(input, ProgressLine::new(size))).boxed_unsync())
        .context("cannot build a request")?;
    let (code, body) = send(link, request).await.context("the upload failed")?;
    if code.is_success() {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    bail!("the server refused the image: {}", status["message"].as_str().unwrap_or(code.as_str()))
}

async fn wait_until_ready(link: &ClusterClient, name: &str) -> Result<()> {
    let path =
        format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes/{name}", link.namespace);
    let claim = link.core(&format!("persistentvolumeclaims/{name}"));
    let begun = tokio::time::Instant::now();
    let deadline = begun + READY_TIMEOUT;
    let mut phase = String::new();
    while tokio::time::Instant::now() < deadline {
        let found = link.find(&path).await?.unwrap_or(Value::Null);
        phase = found["status"]["phase"].as_str().unwrap_or("").to_owned();
        match &*phase {
            "UploadReady" => return Ok(()),
            "Succeeded" => bail!("the volume {name} already has its image"),
            "Failed" => bail!("the volume {name} has failed; see: kubectl describe dv {name}"),
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
        if begun.elapsed() > REASON_DELAY
            && let Some(claim) = link.find(&claim).await?
            && let Some(why) = volume::obstacle(link, &claim).await?
        {
            bail!("the volume {name} cannot be created: {why}");
        }
    }
    bail!(
        "the volume {name} is not ready for an image after {} s: its phase is {phase:?}",
        READY_TIMEOUT.as_secs()
    )
}
