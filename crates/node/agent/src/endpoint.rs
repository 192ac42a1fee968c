//! The node endpoint: requests of the API server to the node that runs a guest.
//!
//! HTTP/1.1 on the unix socket `agent/agent.sock` of the data directory, for its owner only, and
//! over TLS for the gateway of a management node elsewhere (`remote`). The API server has decided
//! whether a request is allowed.
//!
//!   GET /v1/vmis/{namespace}/{name}/{console|vnc|portforward/{port}/{tcp|udp}}
//!       with `Upgrade: sheaf-stream`: 101, then raw bytes both ways; datagrams are preceded by
//!       their length in two bytes, big-endian
//!   GET /v1/vmis/{namespace}/{name}/{screenshot|guestosinfo|userlist|filesystemlist|log}
//!   PUT /v1/vmis/{namespace}/{name}/{pause|unpause|reset|softreboot|freeze|unfreeze}
//!   GET /v1/usage, /v1/report
//!   GET /v1/series?span={1h|24h}, /v1/vmis/{namespace}/{name}/series?span={1h|24h}
//!   PUT /v1/volumes/{name}/upload
//!   PUT /v1/images/{backing image}/upload?size={bytes}&offset={bytes}
//!   GET /v1/images/{backing image}/{upload|file?format={raw|gzip}}
//!
//! Other nodes bring machines that move here (`migration`), and may ask nothing else. Errors are JSON
//! with a `message`.

mod act;
mod connections;
mod further_listener;
mod gate;
mod migration;
mod remote;
mod response;
mod route;
mod stream;

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::config::{EndpointPeer, NodeFiles};
use crate::history::{SeriesSpan, UsageHistory};
use crate::image::{Images, UploadChunk};
use crate::machine::{LiveMachine, Machines};
use crate::vmi::{IncomingMigrations, STREAM_PROTOCOL};
use crate::volume::{Volumes, WantedExport};
use connections::http;
pub(crate) use further_listener::FurtherListener;
pub(crate) use gate::RequestGate;
pub(crate) use remote::serve_remote;
use response::{EndpointError, FileFormat, ResponseBody, empty};
use route::{MachineTarget, NoRoute, Route, route};

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}", path.display())]
pub(crate) struct ListenError {
    path: PathBuf,
    source: io::Error,
}

/// The parts of the agent that requests use.
pub(crate) struct Endpoint {
    pub(crate) machines: Machines,
    pub(crate) volumes: Volumes,
    pub(crate) images: Images,
    pub(crate) migrations: IncomingMigrations,
    pub(crate) history: UsageHistory,
    pub(crate) report: Arc<dyn NodeFiles>,
}

/// Takes the socket over from whoever had it before.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError { path: path.into(), source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // The path of a socket is short in the kernel; the folder's descriptor makes it so.
    let folder = std::fs::File::open(path.parent().unwrap_or(path)).map_err(failed)?;
    let name = path.file_name().unwrap_or_default();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&folder);
    let short = PathBuf::from(format!("/proc/self/fd/{fd}")).join(name);
    let listener = UnixListener::bind(short).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).map_err(failed)?;
    Ok(listener)
}

/// Serves until `stop`; streams that are open end with it.
pub(crate) async fn serve(endpoint: Arc<Endpoint>, listener: UnixListener, mut stop: Stop) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let endpoint = Arc::clone(&endpoint);
                    connections.spawn(connection(endpoint, EndpointPeer::Gateway, None, stream));
                }
                Err(failure) => {
                    warn!(error = %Chain(&failure), "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stop.requested() => return,
        }
    }
}

/// One connection, and the stream that it may become.
async fn connection<S>(
    endpoint: Arc<Endpoint>,
    peer: EndpointPeer,
    gate: Option<Arc<RequestGate>>,
    stream: S,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut streams = JoinSet::new();
    let (begin, mut begun) = tokio::sync::mpsc::channel::<stream::PendingStream>(1);
    let service = service_fn(|request| {
        let (endpoint, peer, begin) = (Arc::clone(&endpoint), peer.clone(), begin.clone());
        let gate = gate.clone();
        async move {
            let gate = gate.as_deref();
            Ok::<_, Infallible>(handle(&endpoint, (&peer, gate), request, &begin).await)
        }
    });
    let served = http(&peer).serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut served = std::pin::pin!(served);
    loop {
        tokio::select! {
            Some(begin) = begun.recv() => {
                streams.spawn(begin.run());
            }
            ended = &mut served => {
                if let Err(failure) = ended {
                    debug!(error = %Chain(&failure), "connection ended");
                }
                break;
            }
        }
    }
    while let Ok(begin) = begun.try_recv() {
        streams.spawn(begin.run());
    }
    while streams.join_next().await.is_some() {}
}

async fn handle(
    endpoint: &Endpoint,
    (peer, gate): (&EndpointPeer, Option<&RequestGate>),
    request: Request<Incoming>,
    begin: &tokio::sync::mpsc::Sender<stream::PendingStream>,
) -> Response<ResponseBody> {
    let answer = match (route(request.method(), request.uri().path()), peer) {
        (Ok(Route::Migrate(uid, step)), EndpointPeer::Node(node)) => {
            let body = request.into_body();
            migration::act(&endpoint.migrations, node, &uid, step, body).await
        }
        (Ok(Route::MigrationStream(uid, which)), EndpointPeer::Node(node)) => {
            migration_stream(endpoint, (node, &uid, which), request, begin).await
        }
        (Ok(Route::Migrate(..) | Route::MigrationStream(..)), EndpointPeer::Gateway)
        | (Ok(_), EndpointPeer::Node(_)) => {
            let text = "nodes bring machines that move, and do nothing else";
            Err(EndpointError::new(StatusCode::FORBIDDEN, text))
        }
        (route, EndpointPeer::Gateway) => match admit(endpoint, gate, &route, &request).await {
            Ok(()) => serve_route(endpoint, route, request, begin).await,
            Err(refusal) => Err(refusal),
        },
        (Err(_), EndpointPeer::Node(_)) => {
            Err(EndpointError::new(StatusCode::NOT_FOUND, "no such path"))
        }
    };
    answer.unwrap_or_else(EndpointError::into_response)
}

/// Refuses a request that comes over the network without a grant for it, and logs the others.
async fn admit(
    endpoint: &Endpoint,
    gate: Option<&RequestGate>,
    route: &Result<Route, NoRoute>,
    request: &Request<Incoming>,
) -> Result<(), EndpointError> {
    let Some(gate) = gate else { return Ok(()) };
    let machine = route.as_ref().ok().and_then(Route::machine);
    let uid = machine.and_then(|own| endpoint.machines.uid(&own.namespace, &own.name));
    let (method, path) = (request.method(), request.uri().path());
    let head = (method, request.uri(), request.headers());
    let grant = gate.admit(head, uid.as_deref()).await?;
    let Some(grant) = grant else { return Ok(()) };
    // Metrics and reports are read by the platform, all the time.
    if matches!(route, Ok(Route::Usage | Route::Report | Route::Series(_))) {
        debug!(user = grant.user, %method, path, "request of the gateway");
    } else {
        info!(user = grant.user, %method, path, machine = uid, "request of the gateway");
    }
    Ok(())
}

/// Serves a request of the gateway.
async fn serve_route(
    endpoint: &Endpoint,
    route: Result<Route, NoRoute>,
    request: Request<Incoming>,
    begin: &tokio::sync::mpsc::Sender<stream::PendingStream>,
) -> Result<Response<ResponseBody>, EndpointError> {
    match route {
        Ok(Route::Migrate(..) | Route::MigrationStream(..)) => {
            Err(EndpointError::new(StatusCode::FORBIDDEN, "only nodes bring machines"))
        }
        Ok(Route::Stream(target, what)) => upgrade(endpoint, target, what, request, begin).await,
        Ok(Route::Read(target, what)) => match live(endpoint, &target) {
            Ok(live) => act::read(&live, what).await,
            Err(failure) => Err(failure),
        },
        Ok(Route::Act(target, what)) => match live(endpoint, &target) {
            Ok(live) => act::act(&live, what, request.into_body()).await,
            Err(failure) => Err(failure),
        },
        Ok(Route::Upload(volume)) => {
            match endpoint.volumes.upload(volume, request.into_body()).await {
                Ok(()) => Ok(response::done()),
                Err(failure) => {
                    Err(EndpointError::new(failure.code(), Chain(&failure).to_string()))
                }
            }
        }
        Ok(Route::VolumeData(volume)) => {
            let wanted = WantedExport {
                volume,
                namespace: word_of(&request, "namespace="),
                claim: word_of(&request, "claim="),
                compressed: word_of(&request, "format=") == "gzip",
            };
            match endpoint.volumes.export(wanted).await {
                Ok(export) => Ok(response::pieces(export.pieces, export.length)),
                Err(failure) => {
                    Err(EndpointError::new(failure.code(), Chain(&failure).to_string()))
                }
            }
        }
        Ok(Route::UploadImage(image)) => {
            let piece = UploadChunk {
                size: number_of(&request, "size="),
                offset: number_of(&request, "offset="),
            };
            match endpoint.images.upload(image, piece, request.into_body()).await {
                Ok(offset) => Ok(response::json(&json!({"offset": offset}))),
                Err(failure) => {
                    Err(EndpointError::new(failure.code(), Chain(&failure).to_string()))
                }
            }
        }
        Ok(Route::ImagePosition(image)) => {
            let offset = endpoint.images.position(image).await;
            let missing = "no upload is expected for the image";
            let offset = offset.ok_or_else(|| EndpointError::new(StatusCode::CONFLICT, missing))?;
            Ok(response::json(&json!({"offset": offset})))
        }
        Ok(Route::ImageFile(image)) => image_file(endpoint, image, &request).await,
        Ok(Route::Usage) => Ok(response::json(&endpoint.machines.usage())),
        Ok(Route::Report) => {
            let report = Arc::clone(&endpoint.report);
            let files = tokio::task::spawn_blocking(move || report.files()).await;
            Ok(response::json(&files.unwrap_or_default()))
        }
        Ok(Route::Series(target)) => series(endpoint, target, &word_of(&request, "span=")),
        Err(NoRoute::NotFound) => Err(EndpointError::new(StatusCode::NOT_FOUND, "no such path")),
        Err(NoRoute::WrongMethod) => {
            Err(EndpointError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method"))
        }
        Err(NoRoute::BadPort) => {
            Err(EndpointError::new(StatusCode::BAD_REQUEST, "the port is not between 1 and 65535"))
        }
    }
}

/// The data of a complete image.
async fn image_file(
    endpoint: &Endpoint,
    image: String,
    request: &Request<Incoming>,
) -> Result<Response<ResponseBody>, EndpointError> {
    let missing = || EndpointError::new(StatusCode::NOT_FOUND, "the image is not complete here");
    let path = endpoint.images.file(image).await.ok_or_else(missing)?;
    let is_packed = word_of(request, "format=") == "gzip";
    let format = if is_packed { FileFormat::Gzip } else { FileFormat::Raw };
    response::file(&path, format).await.map_err(|failure| EndpointError::internal(&failure))
}

/// Recent usage of the node or of one of its machines.
fn series(
    endpoint: &Endpoint,
    target: Option<MachineTarget>,
    span: &str,
) -> Result<Response<ResponseBody>, EndpointError> {
    let Some(span) = SeriesSpan::parse(span) else {
        return Err(EndpointError::new(StatusCode::BAD_REQUEST, "span must be 1h or 24h"));
    };
    let report = match target {
        None => Some(endpoint.history.node(span)),
        Some(own) => endpoint.history.machine(&own.namespace, &own.name, span),
    };
    let missing = || EndpointError::new(StatusCode::NOT_FOUND, "the machine has no samples yet");
    report.map(|report| response::json(&report)).ok_or_else(missing)
}

/// Joins the stream of a source to the QEMU that waits for it.
async fn migration_stream(
    endpoint: &Endpoint,
    (node, uid, which): (&str, &str, migration::MigrationStream),
    mut request: Request<Incoming>,
    begin: &tokio::sync::mpsc::Sender<stream::PendingStream>,
) -> Result<Response<ResponseBody>, EndpointError> {
    is_upgrade(&request)?;
    let taken = match which {
        migration::MigrationStream::First => endpoint.migrations.take_in(node, uid).await,
        migration::MigrationStream::Disks => endpoint.migrations.disks(node, uid).await,
        migration::MigrationStream::Resumed => endpoint.migrations.take_in_again(node, uid).await,
    };
    let taken = taken.map_err(migration::refused)?;
    let end = stream::StreamEnd::Unix(taken);
    let upgraded = hyper::upgrade::on(&mut request);
    let _ = begin.send(stream::PendingStream { upgraded, end }).await;
    Ok(switching())
}

fn is_upgrade(request: &Request<Incoming>) -> Result<(), EndpointError> {
    let asked = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if asked == Some(STREAM_PROTOCOL) {
        return Ok(());
    }
    let text = format!("this path needs the header Upgrade: {STREAM_PROTOCOL}");
    Err(EndpointError::new(StatusCode::BAD_REQUEST, text))
}

fn switching() -> Response<ResponseBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}

/// A word in the query, by its name and an equals sign; empty if it is missing.
fn word_of(request: &Request<Incoming>, name: &str) -> String {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.strip_prefix(name)).next().unwrap_or_default().to_owned()
}

/// A number in the query, by its name and an equals sign.
fn number_of(request: &Request<Incoming>, name: &str) -> Option<u64> {
    let pairs = request.uri().query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix(name)).find_map(|number| number.parse().ok())
}

fn live(endpoint: &Endpoint, target: &MachineTarget) -> Result<LiveMachine, EndpointError> {
    let MachineTarget { namespace, name } = target;
    endpoint.machines.live(namespace, name).ok_or_else(|| {
        let text = format!("the machine {namespace}/{name} does not run on this node");
        EndpointError::new(StatusCode::NOT_FOUND, text)
    })
}

async fn upgrade(
    endpoint: &Endpoint,
    target: MachineTarget,
    what: route::Stream,
    mut request: Request<Incoming>,
    begin: &tokio::sync::mpsc::Sender<stream::PendingStream>,
) -> Result<Response<ResponseBody>, EndpointError> {
    is_upgrade(&request)?;
    let live = live(endpoint, &target)?;
    // Errors are reported before the upgrade, as text.
    let end = stream::open(&live, what).await?;
    let upgraded = hyper::upgrade::on(&mut request);
    let _ = begin.send(stream::PendingStream { upgraded, end }).await;
    Ok(switching())
}

#[cfg(test)]
mod tests;
