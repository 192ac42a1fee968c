//! `GET /sheaf/v1/what-if/nodes/NAME`: the impact of losing a node. All objects are read as
//! the caller, whose rights decide.

use std::sync::{Arc, OnceLock};

use apiserver::HttpReply;
use apiserver::extension::{AuthorizedRequest, PathAccess, Paths};
use base::Chain;
use client::{Caller, CallerError};
use controllers::{ClusterLists, NodeLoss, lose_node};
use futures_util::future::BoxFuture;
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};

use crate::command::node::WHAT_IF_NODES;

/// Answers, as soon as there is a client that may act as any user.
#[derive(Clone, Default)]
pub(in crate::command::server) struct WhatIfHandle(Arc<OnceLock<Client>>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum WhatIfRefusal {
    #[error("the server is starting")]
    Starting,
    #[error("the method is not allowed")]
    Method,
    #[error("nodes {name:?} not found")]
    NoNode { name: String },
    #[error(transparent)]
    Caller(#[from] CallerError),
    #[error("cannot list {path}")]
    List { path: &'static str, source: kube::Error },
}

impl WhatIfRefusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoNode { .. } => StatusCode::NOT_FOUND,
            Self::Caller(_) => StatusCode::FORBIDDEN,
            Self::List { source: kube::Error::Api(status), .. } => {
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::List { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl WhatIfHandle {
    /// From here on requests are answered. `impersonator` may act as any user.
    pub(in crate::command::server) fn open(&self, impersonator: Client) {
        // Opened twice would be a mistake of ours, and the first remains good.
        let _ = self.0.set(impersonator);
    }

    async fn reply(&self, asked: AuthorizedRequest) -> Result<NodeLoss, WhatIfRefusal> {
        let client = self.0.get().ok_or(WhatIfRefusal::Starting)?;
        if asked.parts.method != Method::GET {
            return Err(WhatIfRefusal::Method);
        }
        let caller = asked.user.map(super::caller_of).unwrap_or_default();
        let name = asked.parts.uri.path().strip_prefix(WHAT_IF_NODES).unwrap_or_default();
        let lists = CallerLists { client, caller };
        let lists = ClusterLists {
            nodes: lists.items("/api/v1/nodes").await?,
            instances: lists.items("/apis/kubevirt.io/v1/virtualmachineinstances").await?,
            machines: lists.items("/apis/kubevirt.io/v1/virtualmachines").await?,
            claims: lists.items("/api/v1/persistentvolumeclaims").await?,
            volumes: lists.items("/api/v1/persistentvolumes").await?,
            storage_volumes: lists.items("/apis/longhorn.io/v1beta2/volumes").await?,
            engines: lists.items("/apis/longhorn.io/v1beta2/engines").await?,
            replicas: lists.items("/apis/longhorn.io/v1beta2/replicas").await?,
        };
        let missing = || WhatIfRefusal::NoNode { name: name.to_owned() };
        lose_node(name, &lists).ok_or_else(missing)
    }
}

/// Lists as the caller may see them.
struct CallerLists<'a> {
    client: &'a Client,
    caller: Caller,
}

impl CallerLists<'_> {
    async fn items(&self, path: &'static str) -> Result<Vec<Value>, WhatIfRefusal> {
        let mut request = Request::new(Vec::new());
        *request.uri_mut() = http::Uri::from_static(path);
        *request.headers_mut() = self.caller.headers()?;
        let found = self.client.request::<Value>(request).await;
        let mut list = found.map_err(|source| WhatIfRefusal::List { path, source })?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }
}

impl Paths for WhatIfHandle {
    fn own(&self, path: &str, _query: &str) -> bool {
        path.starts_with(WHAT_IF_NODES)
    }

    fn access<'a>(&self, _path: &'a str) -> PathAccess<'a> {
        PathAccess::Authenticated
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        Box::pin(async move {
            match self.reply(asked).await {
                Ok(loss) => super::json_reply(StatusCode::OK, &json!(loss)),
                Err(refusal) => super::failure(refusal.code(), &Chain(&refusal).to_string()),
            }
        })
    }
}
