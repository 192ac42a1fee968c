//! ClusterRoles that gather the rules of others.

mod plan;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};

use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};

const MANAGER: &str = "clusterrole-aggregation-controller";

/// All roles are one piece of work: a change of one may concern any other.
#[derive(Debug, Default)]
pub(crate) struct Roles;

impl EventMapper for Roles {
    type Key = ();

    fn keys(&mut self, touch: &ObjectChange) -> Vec<()> {
        let (ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind)) = touch;
        if kind.is("rbac.authorization.k8s.io", "clusterroles") { vec![()] } else { vec![] }
    }
}

pub(crate) struct Aggregator {
    pub(crate) client: Client,
}

impl Reconciler for Aggregator {
    type Key = ();

    async fn reconcile(&self, (): &()) -> Result<ReconcileResult, ReconcileError> {
        let api = Api::<ClusterRole>::all(self.client.clone());
        let roles = api.list(&ListParams::default()).await.doing("list cluster roles")?;
        let params = PatchParams::apply(MANAGER).force();
        for (name, rules) in plan::stale(&roles.items) {
            let patch = plan::apply(&name, &rules);
            api.patch(&name, &params, &Patch::Apply(&patch)).await.doing("apply gathered rules")?;
        }
        Ok(ReconcileResult::Done)
    }
}
