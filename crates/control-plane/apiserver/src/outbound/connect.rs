//! Outgoing TCP and TLS connections to one address.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Route;

/// Makes connections to one place, whatever the URI says.
#[derive(Clone)]
pub(super) struct Connector {
    dial: Arc<str>,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("dial tcp: lookup {host}: no such host")]
    Unknown { host: String },
    #[error("dial tcp {address}: connect: {}", words(*kind))]
    Dial { address: String, kind: io::ErrorKind },
    #[error("tls: failed to verify certificate: x509: {0}")]
    Certificate(String),
    #[error("remote error: tls: {0}")]
    Tls(String),
    #[error("unable to load root certificates: {0}")]
    Trust(String),
}

/// The system's text for a connection that failed.
fn words(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        other => other.to_string(),
    }
}

impl Connector {
    pub(super) fn new(route: &Route) -> Result<Self, ConnectError> {
        let host = route.server_name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|_| ConnectError::Unknown { host: host.clone() })?;
        let config = route.trust.client_config(route.identity.as_deref())?;
        Ok(Self { dial: route.dial.as_str().into(), name, tls: TlsConnector::from(config) })
    }

    async fn open(self) -> Result<Stream, ConnectError> {
        let host = || self.dial.rsplit_once(':').map_or(&*self.dial, |(host, _)| host).to_owned();
        let addresses = tokio::net::lookup_host(&*self.dial)
            .await
            .map_err(|_| ConnectError::Unknown { host: host() })?;
        let mut failure = ConnectError::Unknown { host: host() };
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let tls = self.tls.connect(self.name.clone(), stream).await;
                    return tls
                        .map(|stream| Stream(TokioIo::new(stream)))
                        .map_err(|error| refused(&error, &self.name));
                }
                Err(error) => {
                    let address = address.to_string();
                    failure = ConnectError::Dial { address, kind: error.kind() };
                }
            }
        }
        Err(failure)
    }
}

fn refused(error: &io::Error, name: &ServerName<'_>) -> ConnectError {
    use rustls::CertificateError as Wrong;
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return ConnectError::Tls(error.to_string());
    };
    match error {
        rustls::Error::InvalidCertificate(wrong) => ConnectError::Certificate(match wrong {
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "certificate signed by unknown authority".to_owned()
            }
            Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet => {
                "certificate has expired or is not yet valid".to_owned()
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                format!(
                    "certificate is not valid for any names, but wanted to match {}",
                    name.to_str()
                )
            }
            other => other.to_string(),
        }),
        other => ConnectError::Tls(other.to_string()),
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().open())
    }
}

/// An open connection.
pub(super) struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let (_, session) = self.0.inner().get_ref();
        let connected = Connected::new();
        if session.alpn_protocol() == Some(b"h2") { connected.negotiated_h2() } else { connected }
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
