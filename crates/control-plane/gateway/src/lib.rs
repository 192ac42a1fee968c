//! The group `subresources.kubevirt.io`, which KubeVirt serves beside its objects, and the API of
//! a metrics server.
//!
//! ```text
//!   request ─► route ─┬► machine    start, stop, restart …: a patch of the machine
//!                     ├► instance   pause, freeze, guest facts: asked of the node
//!                     ├► eviction   evictions of launcher pods, and their cancellation
//!                     ├► stream     console, vnc, port forward: bytes to and from the node
//!                     ├► graph      objects that a machine depends on
//!                     ├► template   machines from templates
//!                     ├► upload     images from a client to a volume of the node
//!                     ├► export     disks to a client, with the token of their export
//!                     ├► launcher_log  the serial console as the log of a pod
//!                     ├► image      the data of Harvester's images to the node of their disk
//!                     ├► metrics    present usage of nodes and machines: `metrics.k8s.io`
//!                     └► series     their recent usage: `metrics.sheaf.io`
//! ```
//!
//! The API server has authenticated and authorized each request. Objects are read and patched
//! through the Kubernetes API as by any client; a guest is reached through the endpoint of its
//! node ([`Nodes`]). Nothing here depends on which API server that is.

mod answer;
mod eviction;
mod expand;
mod export;
mod form;
mod graph;
mod guard;
mod image;
mod instance;
mod launcher_log;
mod machine;
mod metrics;
mod node;
mod objects;
mod route;
mod series;
mod stream;
mod template;
mod upload;
mod version;

use std::sync::Arc;

use base::KeyedLimit;
use bytes::Bytes;
use client::Caller;
use http::request;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use kube::Client;

pub use answer::GatewayReply;
pub use eviction::{EvictionError, EvictionMode};
pub use export::owns as owns_export;
pub use image::{image_of, is_download};
pub use launcher_log::log_of;
pub use metrics::{METRICS_GROUP, METRICS_RESOURCES};
pub use node::{GRANT, NodeConnection, NodeRequest, Nodes, ReportError, report};
pub use route::{
    GROUP, RESOURCES, Row, TEMPLATE_GROUP, TEMPLATE_RESOURCES, TEMPLATE_VERSIONS, UPLOAD_GROUP,
    VERSIONS, subresource,
};
pub use series::{SERIES_GROUP, SERIES_RESOURCES};
pub use upload::owns as owns_path;

use answer::GatewayResult;
use route::Route;

/// Open consoles, screens and port forwards of one user, unless another limit is given.
pub const DEFAULT_STREAMS_PER_USER: u32 = 200;

/// The body of a request, whatever transport it came by.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// One request: its user, method and path, its body, and the connection in case it is upgraded to a
/// stream.
#[derive(Debug)]
pub struct GatewayRequest {
    /// `None` on paths that check credentials of their own.
    pub caller: Option<Caller>,
    pub parts: request::Parts,
    pub body: Body,
    pub upgrade: Option<OnUpgrade>,
}

/// Answers for the groups; cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    client: Client,
    /// May act as any user; used only with the headers of a caller.
    impersonator: Client,
    nodes: Arc<dyn Nodes>,
    counts: metrics::Counts,
    /// Open streams by user.
    streams: KeyedLimit,
    /// The user of the request that is answered; grants for nodes name it.
    user: Arc<str>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// `client` may read and patch machines, instances, claims and volumes everywhere.
    /// `impersonator` may act as any user.
    pub fn new(client: Client, impersonator: Client, nodes: Arc<dyn Nodes>) -> Self {
        let user = "system:anonymous".into();
        let counts = metrics::Counts::default();
        let streams = KeyedLimit::new(DEFAULT_STREAMS_PER_USER);
        Self { client, impersonator, nodes, counts, streams, user }
    }

    /// The same with another limit of open consoles, screens and port forwards of one user.
    #[must_use]
    pub fn with_streams_per_user(mut self, most: u32) -> Self {
        self.streams = KeyedLimit::new(most);
        self
    }

    /// The same for requests of this user.
    fn of(&self, asked: &GatewayRequest) -> Self {
        let mut own = self.clone();
        if let Some(caller) = asked.caller.as_ref().filter(|caller| !caller.name.is_empty()) {
            own.user = caller.name.as_str().into();
        }
        own
    }

    /// Requests to nodes for the user of the request that is answered.
    fn requester(&self) -> node::NodeRequester<'_> {
        node::NodeRequester { nodes: &*self.nodes, user: &self.user, machine: None }
    }

    /// A request to one of the groups.
    pub async fn answer(&self, asked: GatewayRequest) -> GatewayReply {
        self.of(&asked).answer_as(asked).await
    }

    async fn answer_as(&self, asked: GatewayRequest) -> GatewayReply {
        if metrics::owns(asked.parts.uri.path()) {
            let outcome = metrics::answer(self, &asked.parts).await;
            return outcome.unwrap_or_else(|failure| failure.reply());
        }
        if series::owns(asked.parts.uri.path()) {
            let outcome = series::answer(self, &asked.parts).await;
            return outcome.unwrap_or_else(|failure| failure.reply());
        }
        let outcome = match route::parse(&asked.parts) {
            Ok(route) => self.dispatch(route, asked).await,
            Err(failure) => Err(failure),
        };
        outcome.unwrap_or_else(|failure| failure.reply())
    }

    /// A request to a path of the upload proxy (see [`owns_path`]).
    pub async fn upload(&self, asked: GatewayRequest) -> GatewayReply {
        upload::answer(&self.of(&asked), asked).await.unwrap_or_else(|failure| failure.reply())
    }

    /// A request to the path of an export (see [`owns_export`]).
    pub async fn export(&self, asked: GatewayRequest) -> GatewayReply {
        export::answer(&self.of(&asked), asked).await.unwrap_or_else(|failure| failure.reply())
    }

    /// A request for the data of an image, which [`image_of`] reads from the path.
    pub async fn image(&self, asked: GatewayRequest) -> GatewayReply {
        image::answer(&self.of(&asked), asked).await.unwrap_or_else(|failure| failure.reply())
    }

    /// A request for the log of a launcher pod, which [`log_of`] reads from the path.
    pub async fn launcher_log(&self, asked: GatewayRequest) -> GatewayReply {
        let outcome = launcher_log::answer(&self.of(&asked), asked).await;
        outcome.unwrap_or_else(|failure| failure.reply())
    }

    /// Whether a pod may be evicted now.
    pub async fn review_eviction(
        &self,
        pod: &serde_json::Value,
        eviction: &serde_json::Value,
        mode: EvictionMode,
    ) -> Result<(), EvictionError> {
        eviction::review(self, pod, eviction, mode).await
    }

    async fn dispatch(&self, route: Route, asked: GatewayRequest) -> GatewayResult {
        match route {
            Route::Version => Ok(version::version()),
            Route::Health => Ok(version::health()),
            Route::Expand { namespace } => expand::sent(self, &namespace, asked).await,
            Route::Machine { at, act } => machine::answer(self, &at, act, asked).await,
            Route::Instance { at, act } => instance::answer(self, &at, act, asked).await,
            Route::CancelEvacuation { at } => eviction::cancel(self, &at, asked).await,
            Route::Stream { at, stream } => stream::answer(self, &at, &stream, asked).await,
            Route::Graph { at, root } => graph::answer(self, &at, root, asked).await,
            Route::ProcessTemplate { at } => template::process(self, &at, asked).await,
            Route::CreateFromTemplate { at } => template::create(self, &at, asked).await,
            Route::UploadToken { namespace } => upload::ticket(self, &namespace, asked).await,
        }
    }
}
