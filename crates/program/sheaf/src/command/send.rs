//! Uploading a file to the server, with progress.

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::link::ClusterClient;

const CHUNK: usize = 256 * 1024;

/// Over a connection of our own: kube's client takes only bodies that are in memory.
pub(super) async fn send(
    link: &ClusterClient,
    request: Request<UnsyncBoxBody<Bytes, std::io::Error>>,
) -> Result<(StatusCode, Bytes)> {
    let answer = open(link, request).await?;
    let code = answer.status();
    Ok((code, answer.into_body().collect().await?.to_bytes()))
}

/// The same, with the answer as it comes.
pub(super) async fn open(
    link: &ClusterClient,
    mut request: Request<UnsyncBoxBody<Bytes, std::io::Error>>,
) -> Result<Response<Incoming>> {
    let config = &link.config;
    let url = &config.cluster_url;
    let host = url.host().context("the kubeconfig names no host")?;
    let address = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((address, url.port_u16().unwrap_or(443)))
        .await
        .with_context(|| format!("cannot reach the cluster at {url}"))?;
    let tls = config.rustls_client_config().context("cannot use the kubeconfig's certificates")?;
    let name = ServerName::try_from(address.to_owned()).context("cannot use the server's name")?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let host = HeaderValue::from_str(host).context("cannot use the server's name")?;
    request.headers_mut().entry(HOST).or_insert(host);
    if let Some(value) = credential(config)? {
        request.headers_mut().entry(AUTHORIZATION).or_insert(value);
    }
    Ok(sender.send_request(request).await?)
}

/// The credential of a kubeconfig without a certificate.
fn credential(config: &Config) -> Result<Option<HeaderValue>> {
    let auth = serde_json::to_value(&config.auth_info).context("cannot use the kubeconfig")?;
    let token = match (auth["token"].as_str(), auth["tokenFile"].as_str()) {
        (Some(token), _) => token.to_owned(),
        (None, Some(path)) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?
        }
        (None, None) => return Ok(None),
    };
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.context("the token in the kubeconfig contains invalid characters")?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The pieces of a file.
pub(super) fn chunks(
    input: tokio::fs::File,
    progress: ProgressLine,
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
pub(super) struct ProgressLine {
    what: &'static str,
    total: u64,
    sent: u64,
    shown: u64,
    visible: bool,
}

impl ProgressLine {
    pub(super) fn new(total: u64) -> Self {
        Self::after(0, total)
    }

    /// Goes on where it was.
    pub(super) fn after(sent: u64, total: u64) -> Self {
        let visible = std::io::stderr().is_terminal();
        Self { what: "the image", total, sent, shown: u64::MAX, visible }
    }

    /// Names what is sent.
    pub(super) fn of(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    fn add(&mut self, count: u64) {
        self.sent += count;
        let percent = self.sent.saturating_mul(100).checked_div(self.total).unwrap_or(100);
        if self.visible && percent != self.shown {
            self.shown = percent;
            eprint!("\ruploading {}: {percent:3} %", self.what);
        }
    }

    fn end(&mut self) {
        if self.visible {
            eprintln!("\ruploading {}: done ", self.what);
        }
    }
}
