//! The grants of requests that come over the network: one per request, signed by a management node,
//! for this node, this request and this machine, and used once. Requests on the socket of the data
//! directory need none, as only the own API server reaches it.
//!
//! While a cluster is upgraded, management nodes may run a program that signs no grants. A request
//! without one is then accepted, which is logged; the Nodes of such servers lack an annotation.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Chain, clock};
use hci::cluster::{AGENT_GRANTS, CONTROL_PLANE};
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::warn;

use super::response::EndpointError;
use crate::config::{GrantVerification, RequestGrant};

/// The header with the grant of a request.
const HEADER: &str = "sheaf-grant";

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateRefusal {
    #[error("the request has no grant of a management node")]
    Missing,
    #[error("the grant is for the node {node}")]
    Node { node: String },
    #[error("the grant is for {method} {path}")]
    Request { method: String, path: String },
    #[error("the grant was used before")]
    Used,
    #[error("the grant is for another machine of this name")]
    Machine,
}

impl GateRefusal {
    fn answer(&self) -> EndpointError {
        EndpointError::new(StatusCode::FORBIDDEN, self.to_string())
    }
}

/// Admits requests that come over the network.
pub(crate) struct RequestGate {
    node: String,
    client: Client,
    verifier: watch::Receiver<Option<Arc<dyn GrantVerification>>>,
    /// Ids of grants that were used, until they expire.
    used: Mutex<UsedGrants>,
}

impl RequestGate {
    pub(crate) fn new(
        node: String,
        client: Client,
        verifier: watch::Receiver<Option<Arc<dyn GrantVerification>>>,
    ) -> Self {
        Self { node, client, verifier, used: Mutex::default() }
    }

    /// The grant of the request; nothing if a management node is too old to sign one. `machine` is
    /// the uid of the machine that the request concerns.
    pub(super) async fn admit(
        &self,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        machine: Option<&str>,
    ) -> Result<Option<RequestGrant>, EndpointError> {
        let path = uri.path_and_query().map_or("", |own| own.as_str());
        let Some(token) = headers.get(HEADER) else {
            return self.without_grant(method, path).await.map(|()| None);
        };
        let verifier = self.verifier.borrow().clone();
        let unready = || EndpointError::new(StatusCode::SERVICE_UNAVAILABLE, "no certificates yet");
        let verifier = verifier.ok_or_else(unready)?;
        let now = clock::now();
        let grant =
            verifier.verify(token.to_str().unwrap_or_default(), now).map_err(|failure| {
                warn!(%method, path, error = %Chain(&*failure), "grant is refused");
                EndpointError::new(StatusCode::FORBIDDEN, Chain(&*failure).to_string())
            })?;
        let checked = check(&grant, &self.node, (method.as_str(), path), machine);
        let checked = checked.and_then(|()| self.used.lock().take(&grant.id, grant.expires, now));
        if let Err(refusal) = checked {
            warn!(user = grant.user, %method, path, error = %refusal, "grant is refused");
            return Err(refusal.answer());
        }
        Ok(Some(grant))
    }

    /// A request without a grant is accepted while a management node runs an older program.
    async fn without_grant(&self, method: &Method, path: &str) -> Result<(), EndpointError> {
        let servers = ListParams::default().labels(&format!("{CONTROL_PLANE}=true"));
        let nodes = Api::<Node>::all(self.client.clone()).list_metadata(&servers).await;
        let has_older = nodes.is_ok_and(|nodes| {
            nodes.items.iter().any(|node| {
                let notes = node.metadata.annotations.as_ref();
                notes.is_none_or(|notes| !notes.contains_key(AGENT_GRANTS))
            })
        });
        if has_older {
            tracing::info!(%method, path, "request without a grant: a management node is older");
            return Ok(());
        }
        warn!(%method, path, error = %GateRefusal::Missing, "request is refused");
        Err(GateRefusal::Missing.answer())
    }
}

/// Whether a grant is for this request.
fn check(
    grant: &RequestGrant,
    node: &str,
    (method, path): (&str, &str),
    machine: Option<&str>,
) -> Result<(), GateRefusal> {
    if grant.node != node {
        return Err(GateRefusal::Node { node: grant.node.clone() });
    }
    if grant.method != method || grant.path != path {
        let (method, path) = (grant.method.clone(), grant.path.clone());
        return Err(GateRefusal::Request { method, path });
    }
    match (&grant.machine, machine) {
        (Some(granted), Some(own)) if granted != own => Err(GateRefusal::Machine),
        _ => Ok(()),
    }
}

/// Grants that were used and have not expired.
#[derive(Debug, Default)]
struct UsedGrants(BTreeMap<String, Timestamp>);

impl UsedGrants {
    /// Notes that a grant is used, once.
    fn take(&mut self, id: &str, expires: Timestamp, now: Timestamp) -> Result<(), GateRefusal> {
        self.0.retain(|_, expires| now < *expires);
        match self.0.insert(id.to_owned(), expires) {
            None => Ok(()),
            Some(_) => Err(GateRefusal::Used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> RequestGrant {
        RequestGrant {
            node: "n2".to_owned(),
            method: "GET".to_owned(),
            path: "/v1/vmis/team/web/console".to_owned(),
            user: "jane".to_owned(),
            machine: Some("uid-1".to_owned()),
            id: "a".to_owned(),
            expires: Timestamp::from_second(60).unwrap(),
        }
    }

    #[test]
    fn a_grant_is_for_one_node_request_and_machine() {
        let console = ("GET", "/v1/vmis/team/web/console");
        let of = |(method, path): (&str, &str)| GateRefusal::Request {
            method: method.to_owned(),
            path: path.to_owned(),
        };
        for (node, request, machine, expected) in [
            ("n2", console, Some("uid-1"), Ok(())),
            ("n2", console, None, Ok(())),
            ("n3", console, Some("uid-1"), Err(GateRefusal::Node { node: "n2".to_owned() })),
            ("n2", ("GET", "/v1/vmis/team/web/vnc"), None, Err(of(console))),
            ("n2", ("GET", "/v1/vmis/team/db/console"), None, Err(of(console))),
            ("n2", ("PUT", "/v1/vmis/team/web/console"), None, Err(of(console))),
            ("n2", ("GET", "/v1/vmis/team/web/console?x=1"), None, Err(of(console))),
            ("n2", console, Some("uid-2"), Err(GateRefusal::Machine)),
        ] {
            assert_eq!(check(&grant(), node, request, machine), expected, "{node} {request:?}");
        }
    }

    #[test]
    fn a_grant_is_used_once_and_forgotten_when_it_has_expired() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut used = UsedGrants::default();
        assert_eq!(used.take("a", at(60), at(0)), Ok(()));
        assert_eq!(used.take("a", at(60), at(59)), Err(GateRefusal::Used));
        assert_eq!(used.take("b", at(120), at(61)), Ok(()));
        assert_eq!(used.0.len(), 1);
    }
}
