//! Moving machines so that the memory of hosts is used evenly: Harvester's add-on `descheduler`.
//! Off unless that is enabled; one machine at a time.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::clock;
use kube::Client;
use tracing::info;

use self::plan::Move;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{NODES, Objects, Resource, VMIS};

const ADDONS: Resource = Resource::new("harvesterhci.io", "v1beta1", "addons");
const MIGRATIONS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachineinstancemigrations");
const NAMESPACE: &str = "kube-system";
const ADDON: &str = "descheduler";
/// Memory that guests request changes when they start and stop, not by itself.
const INTERVAL: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(3600);

/// The add-on.
#[derive(Debug, Default)]
pub(crate) struct BalanceMapper;

impl EventMapper for BalanceMapper {
    type Key = Arc<str>;

    fn keys(&mut self, change: &ObjectChange) -> Vec<Arc<str>> {
        match change {
            ObjectChange::Object { kind, namespace, name, .. }
                if ADDONS.is(kind) && **namespace == *NAMESPACE && **name == *ADDON =>
            {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

/// The history of this process.
#[derive(Debug, Default)]
struct History {
    uneven_since: Option<Instant>,
    /// When machines were moved, by the uid of their instance.
    moved: BTreeMap<String, Instant>,
}

pub(crate) struct BalanceReconciler {
    objects: Objects,
    history: Mutex<History>,
}

impl Reconciler for BalanceReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, _: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let addon = self.objects.get(ADDONS, NAMESPACE, ADDON).await.doing("get the add-on")?;
        if !addon.is_some_and(|own| crate::addon::is_enabled(&own)) {
            self.history().uneven_since = None;
            return Ok(ReconcileResult::Done);
        }
        let migrations = self.objects.list(MIGRATIONS, "", "").await.doing("list migrations")?;
        if migrations.iter().any(plan::is_active) {
            return Ok(ReconcileResult::Again(INTERVAL));
        }
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let instances = self.objects.list(VMIS, "", "").await.doing("list instances")?;
        let hosts = plan::hosts(&nodes, &instances);
        let moved = {
            let mut history = self.history();
            history.moved.retain(|_, at| at.elapsed() < REST);
            history.moved.keys().cloned().collect()
        };
        let candidates = plan::candidates(&instances, &moved, clock::now());
        let found = plan::best_move(&hosts, &candidates);
        if let Some(wanted) = self.due(found, Instant::now()) {
            info!(
                namespace = wanted.machine.namespace,
                machine = wanted.machine.name,
                to = wanted.to,
                reason = wanted.reason,
                "moving a machine to balance hosts"
            );
            let migration = plan::migration(&wanted);
            let made = self.objects.create(MIGRATIONS, &wanted.machine.namespace, &migration).await;
            made.doing("create a migration")?;
            self.history().moved.insert(wanted.machine.uid, Instant::now());
        }
        Ok(ReconcileResult::Again(INTERVAL))
    }
}

impl BalanceReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client), history: Mutex::default() }
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The move, if hosts have been uneven for long enough.
    fn due(&self, found: Option<Move>, now: Instant) -> Option<Move> {
        let mut history = self.history();
        let Some(found) = found else {
            history.uneven_since = None;
            return None;
        };
        let since = *history.uneven_since.get_or_insert(now);
        (now.duration_since(since) >= plan::UNEVEN_FOR).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_machine_moves_when_hosts_have_been_uneven_for_long() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
        for name in ["a", "b"] {
            fake.create(
                "/nodes",
                "",
                json!({"metadata": {"name": name}, "status": {
                "allocatable": {"memory": "8Gi"},
                "conditions": [{"type": "Ready", "status": "True"}]}}),
            );
        }
        for name in ["one", "two", "three"] {
            fake.create(
                "kubevirt.io/virtualmachineinstances",
                "n",
                json!({
                "metadata": {"name": name}, "spec": {"domain": {"memory": {"guest": "2Gi"}}},
                "status": {"phase": "Running", "nodeName": "a",
                    "conditions": [{"type": "LiveMigratable", "status": "True"}]}}),
            );
        }
        let addon = "harvesterhci.io/addons";
        fake.create(addon, NAMESPACE, json!({"metadata": {"name": ADDON}, "spec": {}}));
        let reconciler = BalanceReconciler::new(fake.client());
        let key: Arc<str> = ADDON.into();
        let kind = "kubevirt.io/virtualmachineinstancemigrations";
        assert_eq!(reconciler.reconcile(&key).await.unwrap(), ReconcileResult::Done, "it is off");
        fake.merge(addon, NAMESPACE, ADDON, &json!({"spec": {"enabled": true}}));
        reconciler.reconcile(&key).await.unwrap();
        assert!(fake.names(kind).is_empty(), "not yet");
        let long_ago = Instant::now().checked_sub(2 * plan::UNEVEN_FOR);
        reconciler.history().uneven_since = long_ago;
        reconciler.reconcile(&key).await.unwrap();
        let [name] = &fake.names(kind)[..] else { panic!("{:?}", fake.names(kind)) };
        let migration = fake.get(kind, "n", name).unwrap();
        let selector = &migration["spec"]["addedNodeSelector"];
        assert_eq!(selector["kubernetes.io/hostname"], "b");
        // One at a time.
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(fake.names(kind).len(), 1);
    }
}
