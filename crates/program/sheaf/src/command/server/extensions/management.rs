//! What management nodes ask of each other's servers, and commands about them: the keys of the
//! cluster, the state of the store, and the removal of a member of etcd.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apiserver::HttpReply;
use apiserver::extension::{AuthorizedRequest, PathAccess, Paths, RequiredAccess};
use auth::User;
use auth::user::NODES;
use base::Chain;
use futures_util::future::{BoxFuture, join_all};
use hci::cluster::{MANAGEMENT_ROLE, node_of_user};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use quorum::{MemberError, MemberInfo, MemberStatus, Members, RemovalRefusal, node_of, removable};
use serde_json::json;
use tracing::{info, warn};

use crate::command::management::view::{MEMBERS_PATH, MemberView, STORE_PATH, StoreView};
use crate::command::management::{KEYS_PATH, ManagedEtcd, ManagementKeys};

/// How long a member may take to tell its state.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// What the answers need to know.
pub(in crate::command::server) struct ManagementFacts {
    /// Reads Nodes.
    pub(in crate::command::server) client: Client,
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
    #[error("cannot read the Node of {node:?}")]
    Node { node: String, source: kube::Error },
    #[error("cannot read the keys of the cluster")]
    Keys(#[source] anyhow::Error),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Removal(#[from] RemovalRefusal),
    #[error("this cluster has no etcd that Sheaf manages")]
    NoMembers,
    #[error("the method is not allowed")]
    Method,
}

impl ManagementRefusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Starting | Self::Member(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotManagement => StatusCode::FORBIDDEN,
            Self::Node { .. } | Self::Keys(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Removal(_) | Self::NoMembers => StatusCode::CONFLICT,
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
            (&Method::GET, _) if path == STORE_PATH => {
                Ok(serde_json::to_value(facts.view().await?).unwrap_or_default())
            }
            (&Method::DELETE, Some(node)) => facts.remove(node).await,
            _ => Err(ManagementRefusal::Method),
        }
    }
}

impl Paths for ManagementHandle {
    fn own(&self, path: &str, _query: &str) -> bool {
        path == KEYS_PATH || path == STORE_PATH || path.starts_with(MEMBERS_PATH)
    }

    fn access<'a>(&self, path: &'a str) -> PathAccess<'a> {
        let (verb, name) = match path.strip_prefix(MEMBERS_PATH) {
            Some(node) => ("delete", node),
            // The handler looks at the Node of who asks.
            None if path == KEYS_PATH => return PathAccess::Authenticated,
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
        let keys = ManagementKeys::read(&self.pki, &self.encryption_keys, &self.service_range);
        let keys = keys.map_err(ManagementRefusal::Keys)?;
        info!(node = name, "handed the keys of the cluster to a management node");
        Ok(serde_json::to_value(keys).unwrap_or_default())
    }

    async fn view(&self) -> Result<StoreView, ManagementRefusal> {
        let etcd = match &self.store {
            StoreKindInUse::Sqlite => return Ok(StoreView::Sqlite),
            StoreKindInUse::ExternalEtcd => return Ok(StoreView::ExternalEtcd),
            StoreKindInUse::ManagedEtcd(etcd) => etcd,
        };
        let (members, states) = states(etcd).await?;
        let members = members.iter().zip(states).map(|(member, state)| MemberView {
            node: node_of(&member.name).to_owned(),
            url: member.client_urls.first().cloned().unwrap_or_default(),
            is_learner: member.is_learner,
            is_leader: state.as_ref().is_some_and(|state| state.leader == member.id),
            db_size: state.as_ref().map(|state| state.db_size),
            version: state.map(|state| state.version),
        });
        Ok(StoreView::Etcd { members: members.collect() })
    }

    async fn remove(&self, node: &str) -> Result<serde_json::Value, ManagementRefusal> {
        let StoreKindInUse::ManagedEtcd(etcd) = &self.store else {
            return Err(ManagementRefusal::NoMembers);
        };
        let (members, states) = states(etcd).await?;
        let healthy: Vec<u64> = states.into_iter().flatten().map(|state| state.id).collect();
        let id = removable(&members, &healthy, node, &etcd.record.member)?;
        if let Some(id) = id {
            etcd.members().await?.remove(id).await?;
            info!(node, "removed a member of etcd");
        }
        Ok(json!({"removed": id.is_some()}))
    }
}

/// All members, and the state of each that answers.
async fn states(
    etcd: &ManagedEtcd,
) -> Result<(Vec<MemberInfo>, Vec<Option<MemberStatus>>), MemberError> {
    let members = etcd.members().await?.list().await?;
    let tls = &etcd.process.spec().tls;
    let state = |member: &MemberInfo| {
        let urls = member.client_urls.clone();
        async move {
            if urls.is_empty() {
                return None;
            }
            let asked = async { Members::connect(&urls, tls).await?.status().await };
            tokio::time::timeout(STATUS_TIMEOUT, asked).await.ok()?.ok()
        }
    };
    let states = join_all(members.iter().map(state)).await;
    Ok((members, states))
}

#[cfg(test)]
mod tests {
    use auth::user::AUTHENTICATED;

    use super::*;

    #[test]
    fn only_the_identity_of_a_node_is_looked_at() {
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
