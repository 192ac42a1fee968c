//! Changes of what a node is for: its removal from etcd, a management node that becomes a worker, and
//! the return of the objects to SQLite. `quorum` decides what may be done.

use hci::cluster::{CONTROL_PLANE, MANAGEMENT_ROLE, WITNESS_ROLE, WORKER_ROLE};
use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use quorum::{
    EtcdRecord, PhaseEvent, RecordError, ReductionRefusal, may_return, node_of, removable,
};
use serde_json::{Value, json};
use tracing::info;

use super::{ManagementFacts, ManagementRefusal, StoreKindInUse};
use crate::command::management::view::ReturnRequest;
use crate::command::management::{
    ManagedEtcd, ProcessEnd, REMOVAL, management_nodes, no_server_patch,
};

/// Why a node keeps its role, or the objects stay where they are.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoleRefusal {
    #[error("there is no node {node}")]
    NoNode { node: String },
    #[error(
        "node {node} is a witness, which runs no machines: remove it, sheaf node remove {node}"
    )]
    Witness { node: String },
    #[error("node {node} is the only management node")]
    Only { node: String },
    #[error("node {node} is a worker already")]
    Worker { node: String },
    #[error("this is the management node {own}, not {keep}: run the command on {keep}")]
    OtherServer { own: String, keep: String },
    #[error("the objects are in SQLite already")]
    InSqlite,
    #[error(transparent)]
    Reduction(#[from] ReductionRefusal),
    #[error("the body does not say which node stays: keep is expected")]
    Body,
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl RoleRefusal {
    pub(super) fn code(&self) -> StatusCode {
        match self {
            Self::NoNode { .. } => StatusCode::NOT_FOUND,
            Self::Body => StatusCode::BAD_REQUEST,
            Self::Record(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Witness { .. }
            | Self::Only { .. }
            | Self::Worker { .. }
            | Self::OtherServer { .. }
            | Self::InSqlite
            | Self::Reduction(_) => StatusCode::CONFLICT,
        }
    }
}

impl ManagementFacts {
    pub(super) async fn remove(&self, node: &str) -> Result<Value, ManagementRefusal> {
        let etcd = self.etcd().ok_or(ManagementRefusal::NoMembers)?;
        let id = match self.removable(etcd, node).await {
            Ok(id) => id,
            Err(refusal) => {
                // An attempt before this one may have failed after its mark: the node stays.
                self.patch(node, &mark(None)).await?;
                return Err(refusal);
            }
        };
        if let Some(id) = id {
            // So that the node does not take itself for one whose seat another node got.
            self.patch(node, &mark(Some("member"))).await?;
            etcd.members().await?.remove(id).await?;
            info!(node, "removed a member of etcd");
        }
        Ok(json!({"removed": id.is_some()}))
    }

    /// Makes a worker of a management node. Can be repeated if it fails in between.
    pub(super) async fn demote(&self, node: &str) -> Result<Value, ManagementRefusal> {
        let found = Api::<Node>::all(self.client.clone()).get_opt(node).await;
        let found =
            found.map_err(|source| ManagementRefusal::Node { node: node.to_owned(), source })?;
        let labels = found.and_then(|found| found.metadata.labels);
        let name = || node.to_owned();
        let labels = labels.ok_or_else(|| RoleRefusal::NoNode { node: name() })?;
        let has = |label: &str| labels.get(label).is_some_and(|value| value == "true");
        if has(WITNESS_ROLE) {
            return Err(RoleRefusal::Witness { node: name() }.into());
        }
        let id = match self.etcd() {
            Some(etcd) => self.removable(etcd, node).await?,
            None if has(CONTROL_PLANE) => return Err(RoleRefusal::Only { node: name() }.into()),
            None => None,
        };
        if id.is_none() && !has(CONTROL_PLANE) && !has(MANAGEMENT_ROLE) {
            return Err(RoleRefusal::Worker { node: name() }.into());
        }
        // First, so that it does not join again, and knows why its member is gone.
        let labels = json!({WORKER_ROLE: "true", MANAGEMENT_ROLE: null});
        self.patch(node, &json!({"metadata": {"labels": labels}})).await?;
        if let (Some(etcd), Some(id)) = (self.etcd(), id) {
            etcd.members().await?.remove(id).await?;
        }
        self.patch(node, &no_server_patch(false)).await?;
        info!(node, "management node is a worker from now on");
        Ok(json!({"demoted": node}))
    }

    /// Begins the return of the objects to SQLite, which the next start of this process carries out.
    pub(super) async fn return_to_sqlite(&self, body: &[u8]) -> Result<Value, ManagementRefusal> {
        let asked: ReturnRequest = serde_json::from_slice(body).map_err(|_| RoleRefusal::Body)?;
        let etcd = match &self.store {
            StoreKindInUse::Sqlite => return Err(RoleRefusal::InSqlite.into()),
            StoreKindInUse::ExternalEtcd => return Err(ManagementRefusal::NoMembers),
            StoreKindInUse::ManagedEtcd(etcd) => etcd,
        };
        let own = node_of(&etcd.record.member);
        if own != asked.keep {
            let (own, keep) = (own.to_owned(), asked.keep);
            return Err(RoleRefusal::OtherServer { own, keep }.into());
        }
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await;
        let nodes = nodes.map_err(ManagementRefusal::Nodes)?.items;
        let (members, _) = etcd.confirmed_states().await?;
        may_return(own, &members, &management_nodes(&nodes)).map_err(RoleRefusal::from)?;
        let path = self.layout.etcd_record();
        let record = EtcdRecord::load(&path).map_err(RoleRefusal::from)?;
        let mut record = record.unwrap_or_else(|| etcd.record.clone());
        record.return_failure = None;
        record.advance(PhaseEvent::ReturnWanted, &path).map_err(RoleRefusal::from)?;
        info!("restarting to move the objects from etcd into SQLite");
        self.end.request(ProcessEnd::Restart);
        Ok(json!({"phase": "returning"}))
    }

    fn etcd(&self) -> Option<&ManagedEtcd> {
        match &self.store {
            StoreKindInUse::ManagedEtcd(etcd) => Some(etcd),
            StoreKindInUse::Sqlite | StoreKindInUse::ExternalEtcd => None,
        }
    }

    /// The member of a node, if it has one, and etcd keeps its majority without it.
    async fn removable(
        &self,
        etcd: &ManagedEtcd,
        node: &str,
    ) -> Result<Option<u64>, ManagementRefusal> {
        let (members, states) = etcd.confirmed_states().await?;
        let healthy: Vec<u64> = states.into_iter().flatten().map(|state| state.id).collect();
        Ok(removable(&members, &healthy, node, &etcd.record.member)?)
    }

    /// Changes a Node, if it is there.
    async fn patch(&self, node: &str, patch: &Value) -> Result<(), ManagementRefusal> {
        let nodes = Api::<Node>::all(self.client.clone());
        let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
        match nodes.patch_metadata(node, &how, &patch).await {
            Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(()),
            changed => changed.map(drop).map_err(ManagementRefusal::Mark),
        }
    }
}

fn mark(removal: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {REMOVAL: removal}}})
}
