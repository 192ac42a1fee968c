//! Harvester's REST API: Kubernetes objects as resources of Rancher's Steve.
//!
//! ```text
//!   request ─► route ─► type_name ─┬► objects      one object: get, create, update, delete
//!                                  ├► collection   lists: filtered, sorted, in pages
//!                                  ├► schemas      the types that the caller may see
//!                                  ├► counts       how many objects there are
//!                                  └► subscribe    changes of objects over a WebSocket
//!   well_known paths of Harvester that are no resources
//!   login      local users, their passwords and tokens
//!   bundle     support bundles: objects without secrets, as an archive
//!   action     what `?action=` does to machines, volumes and nodes
//!   why        what is wrong with a machine, and which command helps
//!   caller     requests to the Kubernetes API in the caller's name
//!   envelope   object ─► resource, and back (pure)
//! ```
//!
//! It is an ordinary client of the API server and holds no objects: each request becomes
//! requests of the same user to the Kubernetes API, so that authorization, admission and
//! validation are the API server's.

mod accessible;
mod action;
mod bundle;
mod caller;
mod collection;
mod counts;
mod envelope;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod kinds;
mod kubeconfig;
mod login;
mod object_rights;
mod objects;
mod query;
mod reply;
mod request;
mod rights;
mod route;
mod schemas;
mod service_kubeconfig;
mod subscribe;
mod type_name;
mod upgrade_log;
mod well_known;
mod why;

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::ListParams;
use serde_json::Value;

pub use bundle::{NODE_ERROR, NODE_HARDWARE, NODE_LOG, NodeReport, NodeReports};
pub use login::token::identify;
pub use login::{
    FIRST_USER, Login, NewToken, NewUser, OidcProvider, OidcTransport, PASSWORD_NAMESPACE,
    PasswordError, TokenOrder, TransportError, UserError, UserRole, Users, check_password,
    is_public, owns_login,
};
pub use reply::SteveReply;
pub use request::{Body, RequestHead, SteveRequest};
pub use route::owns;

use caller::Session;
use error::SteveError;
use kinds::KindCache;
use reply::SteveResult;

/// A refusal of the Kubernetes API, in Steve's shape. `status` is its `Status`.
pub fn refusal(status: &Value) -> SteveReply {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.unwrap_or(StatusCode::BAD_REQUEST);
    reply::failure(&SteveError::from_answer(code, status.to_string().as_bytes()))
}

/// Answers for the API; cheap to clone.
#[derive(Clone)]
pub struct Steve {
    client: Client,
    kinds: Arc<KindCache>,
    /// The certificates by which clients verify this server, PEM.
    ca_pem: Arc<str>,
    encoded: Arc<subscribe::EncodedMessages>,
    /// The source of the nodes' part of support bundles.
    reports: Option<Arc<dyn NodeReports>>,
    /// Where users log in besides.
    oidc: Option<Arc<OidcProvider>>,
}

impl std::fmt::Debug for Steve {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Steve").finish_non_exhaustive()
    }
}

impl Steve {
    /// `client` may act as any user; `ca_pem` is what clients verify this server by.
    pub fn new(client: Client, ca_pem: &str) -> Self {
        Self {
            client,
            kinds: Arc::default(),
            ca_pem: ca_pem.into(),
            encoded: Arc::default(),
            reports: None,
            oidc: None,
        }
    }

    /// With files about nodes in support bundles.
    #[must_use]
    pub fn with_reports(mut self, reports: Arc<dyn NodeReports>) -> Self {
        self.reports = Some(reports);
        self
    }

    /// Enables kubeconfigs for users of an OpenID Connect provider.
    #[must_use]
    pub fn with_oidc(mut self, provider: Option<OidcProvider>) -> Self {
        self.oidc = provider.map(Arc::new);
        self
    }

    /// A request to one of the paths that [`owns`] matches.
    pub async fn answer(&self, asked: SteveRequest) -> SteveReply {
        let outcome = Box::pin(self.dispatch(asked)).await;
        outcome.unwrap_or_else(|error| reply::failure(&error))
    }

    /// The names of all namespaces, for asking in each of them as the caller.
    async fn namespaces(&self) -> Result<Vec<String>, SteveError> {
        let namespaces = kube::Api::<Namespace>::all(self.client.clone());
        let found = namespaces.list_metadata(&ListParams::default()).await;
        let found = found.map_err(|error| SteveError::unavailable(&error))?;
        Ok(found.items.into_iter().filter_map(|namespace| namespace.metadata.name).collect())
    }

    /// A setting of the cluster by its path, whoever asks; null if there is none.
    async fn setting(&self, path: &str) -> Result<Value, SteveError> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| SteveError::unavailable(&error))?;
        match self.client.request::<Value>(request).await {
            Ok(setting) => Ok(setting),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            Err(error) => Err(SteveError::unavailable(&error)),
        }
    }

    async fn dispatch(&self, asked: SteveRequest) -> SteveResult {
        let SteveRequest { head: mut asked, body } = asked;
        let caller = asked.caller.clone().filter(|caller| !caller.is_anonymous());
        let caller = caller.ok_or_else(SteveError::unauthorized)?;
        let session = Session { client: &self.client, caller: &caller };
        let path = asked.parts.uri.path();
        let Some(route) = route::parse(path) else {
            return Err(SteveError::not_found(format!("path {path:?} does not exist")));
        };
        if let Some(answer) = well_known::answer(self, &asked, &route).await {
            return answer;
        }
        let link = asked.parameter("link");
        match (&*route.type_name, route.rest.as_slice()) {
            ("namespaces", []) if link.as_deref() == Some("accessible") => {
                accessible::answer(self, &session).await
            }
            ("", _) => schemas::root(&asked, &route),
            ("schemas" | "schema" | "counts" | "count", _) if !asked.is_read() => {
                Err(SteveError::method_not_allowed(&asked.parts.method))
            }
            ("schemas" | "schema", rest) => {
                let catalog = self.kinds.get(&self.client).await?;
                schemas::answer(&session, &asked, &route, rest.first(), &catalog).await
            }
            ("counts" | "count", _) => {
                let catalog = self.kinds.get(&self.client).await?;
                counts::answer(&session, &asked, &route, &catalog).await
            }
            ("kubeconfig", []) => service_kubeconfig::answer(self, &session, &asked, body).await,
            ("supportbundles", [name, link]) if link == "download" => {
                bundle::download(self, &session, &asked, name).await
            }
            ("subscribe", []) => subscribe::answer(self, &mut asked, &route),
            (name, rest) if kubeconfig::TYPES.contains(&name) => {
                kubeconfig::answer(self, &session, &asked, rest).await
            }
            (name, _) => {
                let (catalog, kind) = self.kinds.find(&self.client, name).await?;
                let call = objects::ResourceCall {
                    steve: self,
                    session,
                    route: &route,
                    catalog: &catalog,
                    kind: &kind,
                };
                call.answer(&asked, body).await
            }
        }
    }
}
