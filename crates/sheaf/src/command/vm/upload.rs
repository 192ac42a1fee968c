//! Sending an image into a volume, with progress.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::command::link::Link;

const CHUNK: usize = 256 * 1024;
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
    let (code, body) = send(&link.config, request).await.context("the upload failed")?;
    if code.is_success() {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    bail!("the image was refused: {}", status["message"].as_str().unwrap_or(code.as_str()))
}

/// Over a connection of our own: kube's client takes only bodies that are in memory.
async fn send(
    config: &Config,
    request: Request<UnsyncBoxBody<Bytes, std::io::Error>>,
) -> Result<(StatusCode, Bytes)> {
    let url = &config.cluster_url;
    let host = url.host().context("the kubeconfig names no host")?;
    let address = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((address, url.port_u16().unwrap_or(443)))
        .await
        .with_context(|| format!("cannot reach {url}"))?;
    let tls = config.rustls_client_config().context("cannot use the kubeconfig's certificates")?;
    let name = ServerName::try_from(address.to_owned()).context("cannot use the server's name")?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let code = answer.status();
    Ok((code, answer.into_body().collect().await?.to_bytes()))
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
    bail!("the volume {name} is not ready for an image (its phase is {phase:?}); is there room?")
}

fn chunks(
    input: tokio::fs::File,
    progress: Progress,
) -> impl futures_util::Stream<Item = std::io::Result<Frame<Bytes>>> + Send + 'static {
    stream::unfold((input, progress), |(mut input, mut progress)| async move {
        let mut buffer = vec![0; CHUNK];
        match input.read(&mut buffer).await {
            Ok(0) => {
                progress.end();
                None
            }
            Ok(count) => {
                buffer.truncate(count);
                progress.add(count as u64);
                Some((Ok(Frame::data(Bytes::from(buffer))), (input, progress)))
            }
            Err(error) => Some((Err(error), (input, progress))),
        }
    })
}

/// A line that grows, where there is a terminal to grow on.
struct Progress {
    total: u64,
    sent: u64,
    shown: u64,
    visible: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { total, sent: 0, shown: u64::MAX, visible: std::io::stderr().is_terminal() }
    }

    fn add(&mut self, count: u64) {
        self.sent += count;
        let percent = self.sent.saturating_mul(100).checked_div(self.total).unwrap_or(100);
        if self.visible && percent != self.shown {
            self.shown = percent;
            eprint!("\rsending the image: {percent:3} %");
        }
    }

    fn end(&mut self) {
        if self.visible {
            eprintln!("\rsending the image: done ");
        }
    }
}
