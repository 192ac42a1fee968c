//! Requests of management nodes to each other's servers, and commands about them: the keys of the
//! cluster, and the state of the store; changes of roles are in `role_change`. A witness has the key
//! of its member signed here.

mod role_change;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use apiserver::extension::{AuthorizedRequest, PathAccess, Paths, RequiredAccess};
use apiserver::{HttpReply, RequestBody};
use auth::User;
use auth::pki::{CertificateRequest, EtcdCertificate, PkiError, RequestError};
use auth::user::NODES;
use base::{Chain, clock};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use hci::cluster::{MANAGEMENT_ROLE, WITNESS_ROLE, node_of_user};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use quorum::{EtcdRecord, MemberError, RemovalRefusal, node_of};
use tracing::{info, warn};

use crate::command::join::witness::{CERTIFICATE_PATH, MemberRequest, SignedMember};
use crate::command::management::view::{
    MEMBERS_PATH, MemberView, RETURN_PATH, STORE_PATH, StoreView,
};
use crate::command::management::{EndRequest, KEYS_PATH, ManagedEtcd, ManagementKeys};
use crate::command::server::vip;
use crate::data_dir::Layout;

/// A certificate request has a few hundred bytes.
const REQUEST_LIMIT: usize = 64 << 10;

/// The data that the answers are made of.
pub(in crate::command::server) struct ManagementFacts {
    /// Reads Nodes.
    pub(in crate::command::server) client: Client,
    pub(in crate::command::server) layout: Layout,
    /// Ends this process, for another store.
    pub(in crate::command::server) end: EndRequest,
    pub(in crate::command::server) pki: PathBuf,
    pub(in crate::command::server) encryption_keys: PathBuf,
    pub(in crate::command::server) service_range: String,
    pub(in crate::command::server) store: StoreKindInUse,
}

/// Where the objects of this server are.
pub(in crate::command::server) enum StoreKindInUse {
    Sqlite,
    ExternalEtcd,
    ManagedEtcd(Box<ManagedEtcd>),
}

/// Answers from the moment that it is opened.
#[derive(Clone, Default)]
pub(in crate::command::server) struct ManagementHandle(Arc<OnceLock<ManagementFacts>>);

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum ManagementRefusal {
    #[error("the server is starting")]
    Starting,
    #[error("only management nodes get the keys of the cluster")]
    NotManagement,
    #[error("only the witness of the cluster gets a certificate of etcd signed")]
    NotWitness,
    #[error(
        "the cluster has a witness, the node {other:?}: a second one does not vote; remove either: \
         sheaf node remove NAME"
    )]
    SecondWitness { other: String },
    #[error("the address {address} is that of the node {other:?}; use --advertise-address")]
    Address { address: IpAddr, other: String },
    #[error("the body is not a request for a certificate: request (PEM) and address are expected")]
    Body,
    #[error("the certificate request cannot be used")]
    Request(#[from] RequestError),
    #[error("cannot sign a certificate of etcd")]
    Sign(#[from] PkiError),
    #[error("cannot read the Nodes")]
    Nodes(#[source] kube::Error),
    #[error("cannot mark the Node that is removed")]
    Mark(#[source] kube::Error),
    #[error("cannot read the Node of {node:?}")]
    Node { node: String, source: kube::Error },
    #[error("cannot read the keys of the cluster")]
    Keys(#[source] anyhow::Error),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Removal(#[from] RemovalRefusal),
    #[error(transparent)]
    Role(#[from] role_change::RoleRefusal),
    #[error("this cluster has no etcd that Sheaf manages")]
    NoMembers,
    #[error("the method is not allowed")]
    Method,
}

impl ManagementRefusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Starting | Self::Member(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotManagement | Self::NotWitness => StatusCode::FORBIDDEN,
            Self::Node { .. } | Self::Nodes(_) | Self::Mark(_) | Self::Keys(_) | Self::Sign(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Body | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Role(refusal) => refusal.code(),
            Self::Removal(_)
            | Self::NoMembers
            | Self::SecondWitness { .. }
            | Self::Address { .. } => StatusCode::CONFLICT,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }
}

impl ManagementHandle {
    pub(in crate::command::server) fn open(&self, facts: ManagementFacts) {
        // Opened twice would be a mistake of ours, and the first remains good.
        let _ = self.0.set(facts);
    }

    async fn reply(
        &self,
        asked: AuthorizedRequest,
    ) -> Result<serde_json::Value, ManagementRefusal> {
        let facts = self.0.get().ok_or(ManagementRefusal::Starting)?;
        let path = asked.parts.uri.path();
        match (&asked.parts.method, path.strip_prefix(MEMBERS_PATH)) {
            (&Method::POST, _) if path == KEYS_PATH => facts.keys(asked.user.as_ref()).await,
            (&Method::POST, _) if path == CERTIFICATE_PATH => {
                let body = collect(asked.body).await?;
                facts.sign(asked.user.as_ref(), &body).await
            }
            (&Method::GET, _) if path == STORE_PATH => {
                Ok(serde_json::to_value(facts.view().await?).unwrap_or_default())
            }
            (&Method::POST, _) if path == RETURN_PATH => {
                let body = collect(asked.body).await?;
                facts.return_to_sqlite(&body).await
            }
            (&Method::DELETE, Some(node)) => facts.remove(node).await,
            (&Method::POST, Some(node)) => facts.demote(node).await,
            _ => Err(ManagementRefusal::Method),
        }
    }
}

impl Paths for ManagementHandle {
    fn own(&self, path: &str, _query: &str) -> bool {
        [KEYS_PATH, STORE_PATH, CERTIFICATE_PATH, RETURN_PATH].contains(&path)
            || path.starts_with(MEMBERS_PATH)
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        let (verb, name) = match path.strip_prefix(MEMBERS_PATH) {
            // To make a worker of a management node is to take it out of etcd.
            Some(node) => ("delete", node),
            None if path == RETURN_PATH => ("delete", ""),
            // The handler checks the Node of the requester.
            None if [KEYS_PATH, CERTIFICATE_PATH].contains(&path) => {
                return PathAccess::Authenticated;
            }
            None => ("list", ""),
        };
        PathAccess::Resource(RequiredAccess {
            verb,
            group: "",
            version: "v1",
            resource: "nodes",
            subresource: "",
            namespace: "",
            name,
        })
    }

    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply> {
        Box::pin(async move {
            match self.reply(asked).await {
                Ok(body) => super::json_reply(StatusCode::OK, &body),
                Err(refusal) => super::failure(refusal.code(), &Chain(&refusal).to_string()),
            }
        })
    }
}

/// The body of a request, if it is small.
async fn collect(body: RequestBody) -> Result<Vec<u8>, ManagementRefusal> {
    let mut pieces = body.into_data_stream();
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        all.extend_from_slice(&piece.map_err(|_| ManagementRefusal::Body)?);
        if all.len() > REQUEST_LIMIT {
            return Err(ManagementRefusal::Body);
        }
    }
    Ok(all)
}

/// The node that a user is, if it is one.
fn node_name(user: Option<&User>) -> Option<&str> {
    user.filter(|user| user.is_in(NODES)).and_then(|user| node_of_user(&user.name))
}

impl ManagementFacts {
    /// Keys are for nodes that joined with a management token: their Node says so, and nodes cannot
    /// write that.
    async fn keys(&self, user: Option<&User>) -> Result<serde_json::Value, ManagementRefusal> {
        let Some(name) = node_name(user) else {
            warn!(user = user.map(|user| user.name.as_str()), "refused the keys of the cluster");
            return Err(ManagementRefusal::NotManagement);
        };
        let found = Api::<Node>::all(self.client.clone()).get_opt(name).await;
        let node =
            found.map_err(|source| ManagementRefusal::Node { node: name.to_owned(), source })?;
        let labels = node.and_then(|node| node.metadata.labels).unwrap_or_default();
        if labels.get(MANAGEMENT_ROLE).is_none_or(|role| role != "true") {
            warn!(node = name, "refused the keys of the cluster: the node is a worker");
            return Err(ManagementRefusal::NotManagement);
        }
        let vip = vip::read(&self.layout).map_err(ManagementRefusal::Keys)?;
        let keys = ManagementKeys::read(&self.pki, &self.encryption_keys, &self.service_range, vip);
        let keys = keys.map_err(ManagementRefusal::Keys)?;
        info!(node = name, "handed the keys of the cluster to a management node");
        Ok(serde_json::to_value(keys).unwrap_or_default())
    }

    /// A certificate of etcd for the witness: its Node says that it is one, and nodes cannot write
    /// that. The holder of such a certificate reads and writes all objects.
    async fn sign(
        &self,
        user: Option<&User>,
        body: &[u8],
    ) -> Result<serde_json::Value, ManagementRefusal> {
        let Some(name) = node_name(user) else {
            warn!(user = user.map(|user| user.name.as_str()), "refused a certificate of etcd");
            return Err(ManagementRefusal::NotWitness);
        };
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await;
        let nodes = nodes.map_err(ManagementRefusal::Nodes)?.items;
        let asked: MemberRequest =
            serde_json::from_slice(body).map_err(|_| ManagementRefusal::Body)?;
        may_witness(name, asked.address, &nodes)?;
        let request = CertificateRequest::parse(&asked.request)?;
        let signed = EtcdCertificate::sign(&self.pki, &request, asked.address, clock::now())?;
        info!(node = name, address = %asked.address, "signed a certificate of etcd for the witness");
        let EtcdCertificate { ca, certificate } = signed;
        Ok(serde_json::to_value(SignedMember { ca, certificate }).unwrap_or_default())
    }

    async fn view(&self) -> Result<StoreView, ManagementRefusal> {
        let etcd = match &self.store {
            StoreKindInUse::Sqlite => return Ok(StoreView::Sqlite),
            StoreKindInUse::ExternalEtcd => return Ok(StoreView::ExternalEtcd),
            StoreKindInUse::ManagedEtcd(etcd) => etcd,
        };
        let (members, states) = etcd.states().await?;
        let members = members.iter().zip(states).map(|(member, state)| MemberView {
            node: node_of(&member.name).to_owned(),
            url: member.client_urls.first().cloned().unwrap_or_default(),
            is_learner: member.is_learner,
            is_leader: state.as_ref().is_some_and(|state| state.leader == member.id),
            db_size: state.as_ref().map(|state| state.db_size),
            version: state.map(|state| state.version),
        });
        let record = EtcdRecord::load(&self.layout.etcd_record()).ok().flatten();
        Ok(StoreView::Etcd {
            node: node_of(&etcd.record.member).to_owned(),
            members: members.collect(),
            return_failure: record.and_then(|record| record.return_failure),
        })
    }
}

/// Whether a node is the witness of the cluster, at an address that no other node has. Of two that
/// joined at once, the first is.
fn may_witness(name: &str, address: IpAddr, nodes: &[Node]) -> Result<(), ManagementRefusal> {
    let is_witness = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(WITNESS_ROLE)).is_some_and(|role| role == "true")
    };
    let name_of = |node: &Node| node.metadata.name.clone().unwrap_or_default();
    let mut witnesses: Vec<&Node> = nodes.iter().filter(is_witness).collect();
    witnesses.sort_by_key(|node| {
        (node.metadata.creation_timestamp.as_ref().map(|time| time.0), name_of(node))
    });
    let first = witnesses.first().map(|node| name_of(node));
    match first {
        Some(first) if first == name => {}
        Some(other) if witnesses.iter().any(|node| name_of(node) == name) => {
            return Err(ManagementRefusal::SecondWitness { other });
        }
        _ => return Err(ManagementRefusal::NotWitness),
    }
    let has_address = |node: &&Node| {
        let mut all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        name_of(node) != name && all.any(|own| own.address.parse() == Ok(address))
    };
    match nodes.iter().find(has_address) {
        Some(node) => Err(ManagementRefusal::Address { address, other: name_of(node) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use auth::user::AUTHENTICATED;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_first_witness_gets_a_certificate_for_its_own_address() {
        let node = |name: &str, label: &str, created: &str, address: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name, "labels": {label: "true"}, "creationTimestamp": created,
                },
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
            .unwrap()
        };
        let nodes = [
            node("n1", MANAGEMENT_ROLE, "2026-06-01T00:00:00Z", "10.0.0.1"),
            node("x2", WITNESS_ROLE, "2026-06-03T00:00:00Z", "10.0.0.8"),
            node("x9", WITNESS_ROLE, "2026-06-02T00:00:00Z", "10.0.0.9"),
        ];
        for (name, address, refused) in [
            ("x9", "10.0.0.9", None),
            ("x9", "10.0.0.7", None),
            ("x9", "10.0.0.1", Some("is that of the node \"n1\"")),
            ("x2", "10.0.0.8", Some("has a witness, the node \"x9\"")),
            ("n1", "10.0.0.1", Some("only the witness")),
            ("n4", "10.0.0.4", Some("only the witness")),
        ] {
            let found = may_witness(name, address.parse().unwrap(), &nodes).err();
            let found = found.map(|refusal| refusal.to_string());
            match (refused, found) {
                (None, None) => {}
                (Some(part), Some(text)) if text.contains(part) => {}
                (_, found) => panic!("{name} {address}: {found:?}"),
            }
        }
    }

    #[test]
    fn only_the_identity_of_a_node_is_checked() {
        for (user, expected) in [
            (User::new("system:node:n2", [NODES, AUTHENTICATED]), Some("n2")),
            (User::new("system:node:n2", [AUTHENTICATED]), None),
            (User::new("system:bootstrap:abcdef", ["system:bootstrappers:sheaf:management"]), None),
            (User::new("system:admin", ["system:masters"]), None),
        ] {
            assert_eq!(node_name(Some(&user)), expected, "{user:?}");
        }
        assert_eq!(node_name(None), None);
    }
}
