//! An HTTPS server that answers as a test says, for webhooks and aggregated servers: with
//! a document, with garbage, or not at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::http::{block_on, spawn};

/// One request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// The response of the hook.
pub(crate) enum Said {
    Json(Value),
    Raw(u16, Vec<u8>),
    /// The connection stays open and silent.
    Nothing,
}

pub(crate) struct Hook {
    address: SocketAddr,
    bundle: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

type Answer = Arc<dyn Fn(&Asked) -> Said + Send + Sync>;

impl Hook {
    /// A server on a port of its own, with a certificate for `127.0.0.1` and `hook.default.svc`.
    pub(crate) fn start(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Self {
        let (bundle, acceptor) = certificate();
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let (received, counted) = (Arc::clone(&asked), Arc::clone(&connections));
        let answer: Answer = Arc::new(answer);
        let task = spawn(async move {
            // They end with this task.
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                let (received, counted) = (Arc::clone(&received), Arc::clone(&counted));
                open.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    counted.fetch_add(1, Ordering::Relaxed);
                    let service = service_fn(move |request| {
                        serve(request, Arc::clone(&answer), Arc::clone(&received))
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, bundle, asked, connections, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// `caBundle` of a configuration.
    pub(crate) fn bundle(&self) -> &str {
        &self.bundle
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The requests since the last call of this.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    request: Request<Incoming>,
    answer: Answer,
    received: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let asked = Asked {
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    received.lock().unwrap().push(asked.clone());
    // It may wait for others to be asked.
    let said = tokio::task::spawn_blocking(move || answer(&asked)).await.unwrap();
    let (code, body) = match said {
        Said::Json(value) => (200, value.to_string().into_bytes()),
        Said::Raw(code, body) => (code, body),
        Said::Nothing => std::future::pending().await,
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    Ok(response)
}

/// A CA of its own, as base64 of PEM, and the TLS acceptor of a server.
fn certificate() -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "hooks");
    let key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let names = ["127.0.0.1", "localhost", "hook.default.svc"].map(str::to_owned);
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names.to_vec()).unwrap().signed_by(&own, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (STANDARD.encode(root.pem()), TlsAcceptor::from(Arc::new(config)))
}
