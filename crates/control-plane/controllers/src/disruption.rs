//! The status of PodDisruptionBudgets, as kube-controller-manager writes it: how many of the
//! selected pods are healthy, and how many may be evicted.
//!
//! The eviction of a pod reads and decrements it (`apiserver`, `verbs/subresource/eviction`).

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::clock;
use kube::Client;
use serde_json::{Value, json};

use self::plan::BudgetEvent;
use crate::event::{self, EventType, Regarding};
use crate::key::ObjectKey;
use crate::object::{self, is_merged, name, namespace};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, PODS, Resource};

const BUDGETS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");
const SOURCE: &str = "controllermanager";

/// Remembers the budgets of each namespace, any of which may select a pod.
#[derive(Debug, Default)]
pub(crate) struct Budgets(BTreeMap<Arc<str>, BTreeSet<Arc<str>>>);

impl EventMapper for Budgets {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let (kind, namespace, name, state) = match touch {
            ObjectChange::Object { kind, namespace, name, state } => (kind, namespace, name, state),
            ObjectChange::Missed(kind) if BUDGETS.is(kind) || PODS.is(kind) => {
                return self.0.keys().flat_map(|namespace| self.all(namespace)).collect();
            }
            ObjectChange::Missed(_) => return Vec::new(),
        };
        if PODS.is(kind) {
            return self.all(namespace);
        }
        if !BUDGETS.is(kind) {
            return Vec::new();
        }
        if *state == ObjectState::Gone {
            if let Some(names) = self.0.get_mut(namespace) {
                names.remove(name);
                if names.is_empty() {
                    self.0.remove(namespace);
                }
            }
            return Vec::new();
        }
        self.0.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name));
        vec![ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) }]
    }
}

impl Budgets {
    fn all(&self, namespace: &Arc<str>) -> Vec<ObjectKey> {
        let names = self.0.get(namespace).into_iter().flatten();
        let key = |name: &Arc<str>| ObjectKey {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        names.map(key).collect()
    }
}

pub(crate) struct DisruptionReconciler {
    objects: Objects,
}

impl Reconciler for DisruptionReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(BUDGETS, &key.namespace, &key.name).await;
        let Some(budget) = found.doing("get the disruption budget")? else {
            return Ok(ReconcileResult::Done);
        };
        let pods = self.objects.list(PODS, &key.namespace, "").await.doing("list pods")?;
        let plan = plan::plan(&budget, &pods, clock::now());
        for event in &plan.events {
            self.record(&budget, &pods, event).await;
        }
        if !is_merged(&budget["status"], &plan.status) {
            let patch = json!({"metadata": object::version(&budget), "status": plan.status});
            let written = self.objects.merge_status(BUDGETS, &key.namespace, &key.name, &patch);
            written.await.doing("write the status of the disruption budget")?;
        }
        Ok(plan.recheck.map_or(ReconcileResult::Done, ReconcileResult::Again))
    }
}

impl DisruptionReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client) }
    }

    async fn record(&self, budget: &Value, pods: &[Value], event: &BudgetEvent) {
        let of_pod = event.pod.as_ref();
        let pod = of_pod.and_then(|wanted| pods.iter().find(|pod| name(pod) == wanted));
        let (api_version, kind, subject) = match pod {
            Some(pod) => ("v1", "Pod", pod),
            None => ("policy/v1", "PodDisruptionBudget", budget),
        };
        let regarding = Regarding {
            api_version,
            kind,
            namespace: namespace(subject),
            name: name(subject),
            uid: object::uid(subject),
        };
        let tone =
            if event.reason == plan::NO_PODS { EventType::Normal } else { EventType::Warning };
        let (client, message) = (&self.objects.0, event.message.clone());
        event::record(client, SOURCE, &regarding, tone, event.reason, message).await;
    }
}

#[cfg(test)]
mod tests {
    use client::Meta;

    use super::*;
    use crate::fake::{Fake, kind_in, touch};

    fn budget_touch(name: &str, state: ObjectState) -> ObjectChange {
        let meta = Meta { name: name.into(), namespace: "n".into(), ..Meta::default() };
        ObjectChange::object(&kind_in("policy", "poddisruptionbudgets"), &meta, state)
    }

    #[test]
    fn a_pod_concerns_the_budgets_of_its_namespace() {
        let mut budgets = Budgets::default();
        let mut keys = |touch: ObjectChange| budgets.keys(&touch).len();
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Live)), 0);
        for name in ["a", "b"] {
            assert_eq!(keys(budget_touch(name, ObjectState::Live)), 1);
        }
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Gone)), 2);
        assert_eq!(keys(touch("pods", "m", "p", ObjectState::Live)), 0);
        assert_eq!(keys(touch("services", "n", "s", ObjectState::Live)), 0);
        assert_eq!(keys(budget_touch("a", ObjectState::Gone)), 0);
        assert_eq!(keys(touch("pods", "n", "p", ObjectState::Live)), 1);
    }

    #[tokio::test]
    async fn a_budget_counts_the_pods_that_it_selects() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        for (name, app) in [("a", "web"), ("b", "web"), ("c", "other")] {
            let pod = json!({"metadata": {"name": name, "labels": {"app": app}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            fake.create("/pods", "n", pod);
        }
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
        let budget = json!({"metadata": {"name": "pdb", "generation": 1}, "spec": spec});
        fake.create("policy/poddisruptionbudgets", "n", budget);
        let reconciler = DisruptionReconciler::new(fake.client());
        let key = ObjectKey::new("n", "pdb");
        reconciler.reconcile(&key).await.unwrap();
        let status = || fake.get("policy/poddisruptionbudgets", "n", "pdb").unwrap();
        let written = status();
        assert_eq!(written["status"]["disruptionsAllowed"], 1);
        assert_eq!(written["status"]["observedGeneration"], 1);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(status(), written, "nothing changed");
        fake.delete("/pods", "n", "a", "Background");
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(status()["status"]["disruptionsAllowed"], 0);
    }
}
