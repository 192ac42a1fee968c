//! A load generator's client: one HTTP/1.1 connection over TLS, as little work as possible.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where the server is and how to speak to it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: String,
    tls: Arc<rustls::ClientConfig>,
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Requests impersonate this node.
    node: Option<String>,
}

impl Client {
    pub(crate) fn from_kubeconfig(text: &str) -> Result<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "))
                .map(|value| value.trim_matches('"').to_owned())
                .with_context(|| format!("the kubeconfig has no {name}"))
        };
        let decode = |name: &str| -> Result<Vec<u8>> {
            Ok(base64::engine::general_purpose::STANDARD.decode(field(name)?)?)
        };
        let mut roots = rustls::RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(&decode("certificate-authority-data")?) {
            roots.add(cert?)?;
        }
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&decode("client-certificate-data")?)
                .collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&decode("client-key-data")?)?;
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let address = field("server")?.trim_start_matches("https://").to_owned();
        Ok(Self { address, tls: Arc::new(tls) })
    }

    /// A connection on which nothing is said yet.
    pub(crate) async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        Ok(TlsConnector::from(self.tls.clone()).connect(name, stream).await?)
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = self.stream().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, node: None })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<(u16, Bytes)> {
        self.connect().await?.send(Method::GET, path, Bytes::new()).await
    }
}

impl Connection {
    /// Makes the next requests as a node.
    pub(crate) fn act_as_node(&mut self, node: &str) {
        self.node = Some(node.to_owned());
    }

    /// Whether the server has closed the connection, as it does after long inactivity.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        let mut request = Request::builder();
        if let Some(node) = &self.node {
            request = request
                .header("impersonate-user", format!("system:node:{node}"))
                .header("impersonate-group", "system:nodes");
        }
        let request = request
            .method(method.clone())
            .uri(path)
            .header("host", "sheaf")
            .header("user-agent", "bench/1")
            .header(
                "content-type",
                if method == Method::PATCH {
                    "application/merge-patch+json"
                } else {
                    "application/json"
                },
            )
            .body(Full::new(body))?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(u16, Bytes)> {
        let reply = self.open(method, path, body).await?;
        let code = reply.status().as_u16();
        Ok((code, reply.into_body().collect().await?.to_bytes()))
    }

    /// Fails unless the answer is a success.
    pub(crate) async fn expect(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes> {
        let (code, body) = self.send(method, path, body).await?;
        if (200..300).contains(&code) {
            return Ok(body);
        }
        bail!("{path}: {code} {}", String::from_utf8_lossy(&body))
    }
}
