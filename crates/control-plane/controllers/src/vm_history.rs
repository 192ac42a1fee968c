//! Versions of machines' specifications, kept as ControllerRevisions beside the machine: what its owner
//! changed can be compared and restored later. They are records only; no controller starts a
//! guest from them, and labels, annotations and status are not kept.

mod plan;

use kube::Client;

use self::plan::{HISTORY_LABEL, HistoryPlan};
use crate::key::ObjectKey;
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, REVISIONS, VMS, is_refused};

/// Every machine that changes.
#[derive(Debug, Default)]
pub(crate) struct HistoryMapper;

impl EventMapper for HistoryMapper {
    type Key = ObjectKey;

    fn keys(&mut self, change: &ObjectChange) -> Vec<ObjectKey> {
        match change {
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if VMS.is(kind) =>
            {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct HistoryReconciler(Objects);

impl HistoryReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for HistoryReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let namespace = &*key.namespace;
        let found = self.0.get(VMS, namespace, &key.name).await.doing("get the machine")?;
        let Some(vm) = found.filter(|vm| !object::is_deleting(vm)) else {
            return Ok(ReconcileResult::Done);
        };
        // Most changes are of the status, and their version is known.
        let name = plan::version_name(&vm);
        if self.0.get(REVISIONS, namespace, &name).await.doing("get a version")?.is_some() {
            return Ok(ReconcileResult::Done);
        }
        let labels = format!("{HISTORY_LABEL}={}", object::uid(&vm));
        let known = self.0.list(REVISIONS, namespace, &labels).await.doing("list versions")?;
        let HistoryPlan { create, delete } = plan::plan(&vm, &known);
        if let Some(version) = create {
            match self.0.create(REVISIONS, namespace, &version).await {
                Err(failure) if is_refused(&failure, 409) => {}
                made => drop(made.doing("keep a version")?),
            }
        }
        for old in delete {
            let (name, uid) = (object::name(old), object::uid(old));
            self.0.delete(REVISIONS, namespace, name, uid).await.doing("delete a version")?;
        }
        Ok(ReconcileResult::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    const VM: &str = "kubevirt.io/virtualmachines";
    const REVISION: &str = "apps/controllerrevisions";

    #[tokio::test]
    async fn a_machine_keeps_its_last_versions() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        fake.create(
            VM,
            "n",
            json!({"metadata": {"name": "web", "generation": 1}, "spec": {"template": {"size": 1}}}),
        );
        let reconciler = HistoryReconciler::new(fake.client());
        let key = ObjectKey::new("n", "web");
        for generation in 1..=12 {
            let change = json!({"metadata": {"generation": generation},
                "spec": {"template": {"size": generation}}});
            fake.merge(VM, "n", "web", &change);
            for _ in 0..2 {
                reconciler.reconcile(&key).await.unwrap();
            }
        }
        let names = fake.names(REVISION);
        let mut kept: Vec<i64> = names
            .iter()
            .map(|name| object::int(&fake.get(REVISION, "n", name).unwrap(), "/revision").unwrap())
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, (3..=12).collect::<Vec<_>>());
        reconciler.reconcile(&ObjectKey::new("n", "absent")).await.unwrap();
    }
}
