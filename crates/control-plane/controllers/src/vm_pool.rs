//! Pools of equal virtual machines: as many as are wanted, each with a number, brought to
//! the pool's template as its strategies say.

mod plan;

use std::collections::BTreeSet;

use base::clock;
use client::Fault;
use kube::Client;
use serde_json::Value;

use self::plan::{PoolInput, PoolPlan};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_merged, name};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{CLAIMS, DATA_VOLUMES, Objects, REVISIONS, Resource, VMIS, VMS, is_refused};

const POOLS: Resource = Resource::new("pool.kubevirt.io", "v1beta1", "virtualmachinepools");
const SOURCE: &str = "virtualmachinepool-controller";

/// Every pool, again when one of its machines changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pools(pub(crate) Dependents);

impl EventMapper for Pools {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state } => {
                let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
                if POOLS.is(kind) {
                    if *state == ObjectState::Gone {
                        self.0.forget(&key);
                    }
                    vec![key]
                } else if VMS.is(kind) || VMIS.is(kind) {
                    self.0.of(&key)
                } else {
                    Vec::new()
                }
            }
            ObjectChange::Missed(kind) if VMS.is(kind) || VMIS.is(kind) => self.0.all(),
            ObjectChange::Missed(_) => Vec::new(),
        }
    }
}

pub(crate) struct VmPoolReconciler {
    objects: Objects,
    dependents: Dependents,
}

impl Reconciler for VmPoolReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(POOLS, &key.namespace, &key.name).await;
        let Some(pool) = found.doing("get the pool")? else { return Ok(ReconcileResult::Done) };
        let machines = self.objects.list(VMS, &key.namespace, "").await.doing("list machines")?;
        let vmis = self.objects.list(VMIS, &key.namespace, "").await.doing("list instances")?;
        let records = self.objects.list(REVISIONS, &key.namespace, "").await;
        let records = records.doing("list revisions")?;
        let own = plan::own(&pool, &machines);
        let revisions = plan::own_revisions(&pool, &records);
        let taken: Vec<&str> = machines.iter().map(name).collect();
        let seen = PoolInput { own: &own, taken: &taken, vmis: &vmis, revisions: &revisions };
        let plan = plan::plan(&pool, seen, clock::now());
        let watched: BTreeSet<ObjectKey> = own
            .iter()
            .map(|vm| ObjectKey::of(vm))
            .chain(
                plan.create
                    .iter()
                    .map(|index| ObjectKey::new(&key.namespace, &format!("{}-{index}", key.name))),
            )
            .collect();
        self.dependents.set(key, watched);
        let failure = self.carry_out(&pool, &plan, &machines, &vmis).await?;
        for record in named(&records, &plan.prune) {
            let (name, uid) = (name(record), object::uid(record));
            let deleted = self.objects.delete(REVISIONS, &key.namespace, name, uid).await;
            deleted.doing("forget a template")?;
        }
        let status = plan::status(&pool, &own, failure.as_deref(), clock::now());
        if !is_merged(&pool, &status) {
            let written =
                self.objects.merge_status(POOLS, &key.namespace, &key.name, &status).await;
            match written {
                Err(gone) if is_refused(&gone, 404) => {}
                written => drop(written.doing("write the pool's status")?),
            }
        }
        if failure.is_some() {
            return Ok(ReconcileResult::Retry);
        }
        Ok(plan.again.map_or(ReconcileResult::Done, ReconcileResult::Again))
    }
}

impl VmPoolReconciler {
    pub(crate) fn new(client: Client, dependents: Dependents) -> Self {
        Self { objects: Objects(client), dependents }
    }

    /// Answers why a machine could not be made.
    async fn carry_out(
        &self,
        pool: &Value,
        plan: &PoolPlan,
        machines: &[Value],
        vmis: &[Value],
    ) -> Result<Option<String>, ReconcileError> {
        let namespace = object::namespace(pool);
        if plan.record {
            // One of this name that is not ours goes with a pool that is gone; until then we wait.
            let made = self.objects.create(REVISIONS, namespace, &plan::revision(pool)).await;
            made.doing("record the pool's template")?;
        }
        for index in &plan.create {
            match self.objects.create(VMS, namespace, &plan::machine(pool, *index)).await {
                Ok(vm) => {
                    let message = format!("Created VM {namespace}/{}", name(&vm));
                    self.update_status(pool, EventType::Normal, "SuccessfulCreate", message).await;
                }
                // Another owner's, or made by an attempt that did not see the answer.
                Err(failure) if is_refused(&failure, 409) => {}
                Err(failure @ kube::Error::Api(_)) => {
                    return Ok(Some(self.refused(pool, failure).await));
                }
                Err(failure) => return Err(failure).doing("create a machine"),
            }
        }
        for vm in named(machines, &plan.delete) {
            if plan::keeps_disks(pool) {
                self.keep_disks(vm).await?;
            }
            self.delete(pool, vm).await?;
        }
        for vm in named(machines, &plan.replace) {
            self.delete(pool, vm).await?;
        }
        for vm in named(machines, &plan.update) {
            let Some(patch) = plan::update(pool, vm) else { continue };
            match self.objects.merge(VMS, namespace, name(vm), &patch).await {
                Err(failure) if is_refused(&failure, 422) => {
                    return Ok(Some(self.refused(pool, failure).await));
                }
                written => drop(written.doing("update a machine")?),
            }
            let message = format!("Updated VM {namespace}/{}", name(vm));
            self.update_status(pool, EventType::Normal, "SuccessfulUpdate", message).await;
        }
        for vmi in named(vmis, &plan.restart) {
            let deleted = self.objects.delete(VMIS, namespace, name(vmi), object::uid(vmi)).await;
            deleted.doing("restart a machine")?;
            let message = format!("Successfully updated resource {namespace}/{}", name(vmi));
            self.update_status(pool, EventType::Normal, "SuccessfulDelete", message).await;
        }
        for (own, revision) in &plan.relabel {
            let Some(vmi) = vmis.iter().find(|vmi| name(vmi) == own) else { continue };
            let patch = plan::relabelled(vmi, revision);
            match self.objects.merge(VMIS, namespace, name(vmi), &patch).await {
                Err(gone) if is_refused(&gone, 404) => {}
                written => drop(written.doing("name an instance's template")?),
            }
        }
        Ok(None)
    }

    async fn delete(&self, pool: &Value, vm: &Value) -> Result<(), ReconcileError> {
        let (namespace, uid) = (object::namespace(vm), object::uid(vm));
        let deleted = self.objects.delete(VMS, namespace, name(vm), uid).await;
        deleted.doing("delete a machine")?;
        let message = format!("Deleted VM {namespace}/{} with uid {uid} from pool", name(vm));
        self.update_status(pool, EventType::Normal, "SuccessfulDelete", message).await;
        Ok(())
    }

    /// Takes the disks of a machine out of its hands. They are found again by their names when
    /// a machine of its number is made.
    async fn keep_disks(&self, vm: &Value) -> Result<(), ReconcileError> {
        let namespace = object::namespace(vm);
        for disk in plan::disks(vm) {
            for kind in [CLAIMS, DATA_VOLUMES] {
                let found = self.objects.get(kind, namespace, &disk).await;
                let found = found.doing("get a machine's disk")?;
                let Some(patch) = found.and_then(|found| plan::released(&found, vm)) else {
                    continue;
                };
                let kept = self.objects.merge(kind, namespace, &disk, &patch).await;
                kept.doing("keep a machine's disk")?;
            }
        }
        Ok(())
    }

    async fn refused(&self, pool: &Value, failure: kube::Error) -> String {
        let cause = Fault(failure).to_string();
        if !crate::condition::is(pool, "ReplicaFailure", "True") {
            let message = format!("Error creating VM: {cause}");
            self.update_status(pool, EventType::Warning, "FailedCreate", message).await;
        }
        cause
    }

    async fn update_status(&self, pool: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "pool.kubevirt.io/v1beta1",
            kind: "VirtualMachinePool",
            namespace: object::namespace(pool),
            name: name(pool),
            uid: object::uid(pool),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

fn named<'a>(objects: &'a [Value], names: &'a [String]) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(|object| names.iter().any(|own| own == name(object)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    const POOL: &str = "pool.kubevirt.io/virtualmachinepools";
    const VM: &str = "kubevirt.io/virtualmachines";
    const REVISION: &str = "apps/controllerrevisions";

    #[tokio::test]
    async fn a_pool_grows_changes_and_shrinks() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let template = json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"a": 1}}}}});
        fake.create(
            POOL,
            "n",
            json!({"metadata": {"name": "p", "generation": 1}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": "a"}}, "virtualMachineTemplate": template}}),
        );
        let pooler = VmPoolReconciler::new(fake.client(), Dependents::default());
        let key = ObjectKey::new("n", "p");
        pooler.reconcile(&key).await.unwrap();
        assert_eq!(fake.names(VM), ["p-0", "p-1"]);
        assert_eq!(pooler.dependents.of(&ObjectKey::new("n", "p-1")), vec![key.clone()]);
        assert_eq!(fake.names(REVISION), ["p-1"]);
        let change = json!({"metadata": {"generation": 2}, "spec": {"replicas": 1,
            "virtualMachineTemplate": {"spec": {"template": {"spec": {"domain": {"a": 2}}}}}}});
        fake.merge(POOL, "n", "p", &change);
        pooler.reconcile(&key).await.unwrap();
        assert_eq!(fake.names(VM), ["p-0"]);
        let vm = fake.get(VM, "n", "p-0").unwrap();
        assert_eq!(vm["spec"]["template"]["spec"]["domain"]["a"], 2);
        assert_eq!(vm["metadata"]["labels"]["kubevirt.io/vm-pool-revision-name"], "p-2");
        pooler.reconcile(&key).await.unwrap();
        assert_eq!(fake.names(REVISION), ["p-2"], "the first is no longer needed");
        let pool = fake.get(POOL, "n", "p").unwrap();
        assert_eq!(pool["status"]["replicas"], 1);
        assert_eq!(pool["status"]["labelSelector"], "app=a");
    }
}
