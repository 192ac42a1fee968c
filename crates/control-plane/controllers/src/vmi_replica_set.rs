//! Sets of equal instances: as many as are wanted, those that end replaced.

pub(crate) mod plan;

use base::clock;
use client::Fault;
use kube::Client;
use serde_json::Value;

use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, VMIS, is_refused};

const SETS: Resource = Resource::new("kubevirt.io", "v1", "virtualmachineinstancereplicasets");
const SOURCE: &str = "virtualmachinereplicaset-controller";

/// Every set, again when one of its instances changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sets(pub(crate) Dependents);

impl EventMapper for Sets {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state } => {
                let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
                if SETS.is(kind) {
                    if *state == ObjectState::Gone {
                        self.0.forget(&key);
                    }
                    vec![key]
                } else if VMIS.is(kind) {
                    self.0.of(&key)
                } else {
                    Vec::new()
                }
            }
            ObjectChange::Missed(kind) if VMIS.is(kind) => self.0.all(),
            ObjectChange::Missed(_) => Vec::new(),
        }
    }
}

pub(crate) struct ReplicaSetReconciler {
    objects: Objects,
    dependents: Dependents,
}

impl Reconciler for ReplicaSetReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(SETS, &key.namespace, &key.name).await;
        let Some(set) = found.doing("get the replica set")? else {
            return Ok(ReconcileResult::Done);
        };
        let found = self.objects.list(VMIS, &key.namespace, &plan::labels(&set)).await;
        let found = found.doing("list instances")?;
        let own = plan::own(&set, &found);
        let watched = own.iter().map(|vmi| ObjectKey::of(vmi));
        let mut watched: std::collections::BTreeSet<ObjectKey> = watched.collect();
        self.dependents.set(key, watched.clone());
        let plan = plan::plan(&set, &own);
        let mut failure = None;
        for _ in 0..plan.create {
            match self.objects.create(VMIS, &key.namespace, &plan::instance(&set)).await {
                Ok(vmi) => {
                    watched.insert(ObjectKey::of(&vmi));
                    self.dependents.set(key, watched.clone());
                    self.started(&set, &vmi).await;
                }
                Err(refused @ kube::Error::Api(_)) => {
                    failure = Some(self.refused(&set, refused).await);
                    break;
                }
                Err(refused) => return Err(refused).doing("create an instance"),
            }
        }
        for name in &plan.delete {
            self.delete(
                &set,
                &own,
                name,
                "Stopped the virtual machine by deleting the virtual machine instance",
            )
            .await?;
        }
        for name in &plan.finished {
            self.delete(&set, &own, name, "Deleted finished virtual machine:").await?;
        }
        // New instances count as soon as they are observed, which triggers another reconciliation.
        let status = plan::status(&set, &own, failure.as_deref(), clock::now());
        if !is_merged(&set, &status) {
            let written = self.objects.merge_status(SETS, &key.namespace, &key.name, &status).await;
            match written {
                Err(gone) if is_refused(&gone, 404) => {}
                written => drop(written.doing("write the replica set's status")?),
            }
        }
        Ok(if failure.is_some() { ReconcileResult::Retry } else { ReconcileResult::Done })
    }
}

impl ReplicaSetReconciler {
    pub(crate) fn new(client: Client, dependents: Dependents) -> Self {
        Self { objects: Objects(client), dependents }
    }

    async fn started(&self, set: &Value, vmi: &Value) {
        let name = object::name(vmi);
        let message = format!(
            "Started the virtual machine by creating the new virtual machine instance {name}"
        );
        self.update_status(set, EventType::Normal, "SuccessfulCreate", message).await;
    }

    async fn refused(&self, set: &Value, failure: kube::Error) -> String {
        let cause = Fault(failure).to_string();
        if !crate::condition::is(set, "ReplicaFailure", "True") {
            let message = format!("Error creating virtual machine instance: {cause}");
            self.update_status(set, EventType::Warning, "FailedCreate", message).await;
        }
        cause
    }

    async fn delete(
        &self,
        set: &Value,
        own: &[&Value],
        name: &str,
        message: &str,
    ) -> Result<(), ReconcileError> {
        let Some(vmi) = own.iter().find(|vmi| object::name(vmi) == name) else { return Ok(()) };
        let uid = object::uid(vmi);
        let deleted = self.objects.delete(VMIS, object::namespace(set), name, uid).await;
        deleted.doing("delete an instance")?;
        self.update_status(set, EventType::Normal, "SuccessfulDelete", format!("{message} {uid}"))
            .await;
        Ok(())
    }

    async fn update_status(&self, set: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachineInstanceReplicaSet",
            namespace: object::namespace(set),
            name: object::name(set),
            uid: object::uid(set),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    const SET: &str = "kubevirt.io/virtualmachineinstancereplicasets";
    const VMI: &str = "kubevirt.io/virtualmachineinstances";

    #[tokio::test]
    async fn a_set_grows_shrinks_and_says_how_many_are_ready() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"domain": {}}});
        fake.create(
            SET,
            "n",
            json!({"metadata": {"name": "s"}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": "a"}}, "template": template}}),
        );
        let replicator = ReplicaSetReconciler::new(fake.client(), Dependents::default());
        let key = ObjectKey::new("n", "s");
        replicator.reconcile(&key).await.unwrap();
        let names = || fake.names(VMI);
        assert_eq!(names().len(), 2);
        assert_eq!(replicator.dependents.of(&ObjectKey::new("n", &names()[0])), vec![key.clone()]);
        let ready = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        fake.merge(VMI, "n", &names()[0], &ready);
        replicator.reconcile(&key).await.unwrap();
        let status = fake.get(SET, "n", "s").unwrap()["status"].clone();
        assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(2), &json!(1)));
        fake.merge(SET, "n", "s", &json!({"spec": {"replicas": 1}}));
        let kept = names()[0].clone();
        replicator.reconcile(&key).await.unwrap();
        assert_eq!(names(), [kept], "the one that is ready stays");
    }
}
