//! Sending an image into a volume, with progress.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};

use crate::command::link::Link;
use crate::command::send::{Progress, chunks, send};

/// How long a volume may take to be ready for the image.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the guest will see as the size of its disk.
pub(super) fn virtual_size(file: &Path) -> Result<u64> {
    let shown = file.display();
    let output = std::process::Command::new("qemu-img")
        .args(["info", "--output=json", "--"])
        .arg(file)
        .output()
        .context("cannot run qemu-img to learn the size of the image; say --disk SIZE")?;
    if !output.status.success() {
        bail!("{shown} is not a disk image: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let info: Value = serde_json::from_slice(&output.stdout).context("cannot read its size")?;
    info["virtual-size"].as_u64().with_context(|| format!("cannot tell the size of {shown}"))
}

/// Sends `file` into the DataVolume `name`, once that is ready.
pub(super) async fn run(link: &Link, name: &str, file: &Path) -> Result<()> {
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
    let size = input.metadata().await.context("cannot tell its size")?.len();
    let request = Request::post("/v1beta1/upload")
        .header(HOST, link.config.cluster_url.host().unwrap_or(""))
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, size)
        .body(StreamBody::new(chunks(input, Progress::new(size))).boxed_unsync())
        .context("cannot build a request")?;
    let (code, body) = send(link, request).await.context("the upload failed")?;
    if code.is_success() {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    bail!("the image was refused: {}", status["message"].as_str().unwrap_or(code.as_str()))
}

async fn wait_until_ready(link: &Link, name: &str) -> Result<()> {
    let path =
        format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes/{name}", link.namespace);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut phase = String::new();
    while tokio::time::Instant::now() < deadline {
        let found = link.find(&path).await?.unwrap_or(Value::Null);
        phase = found["status"]["phase"].as_str().unwrap_or("").to_owned();
        match &*phase {
            "UploadReady" => return Ok(()),
            "Succeeded" => bail!("the volume {name} has its image already"),
            "Failed" => bail!("the volume {name} has failed; see: kubectl describe dv {name}"),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    bail!(
        "the volume {name} is not ready for an image (its phase is {phase:?}); is there room? \
         `sheaf vm why` says what it waits for"
    )
}
