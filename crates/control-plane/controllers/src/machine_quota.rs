//! Machines that the quota of their project has no room for. The launcher pod of such a machine is
//! refused; the machine is halted, and an annotation says why, as Harvester's clients show it.
//!
//! This is one of the few writes of a `spec` that a user wrote: upstream halts the machine, so that
//! it does not start by itself when other machines stop.

mod plan;

use kube::Client;
use serde_json::Value;
use virt::ClusterConfig;

use crate::event::{self, EventType, Regarding};
use crate::key::ObjectKey;
use crate::object::{self, is_deleting};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{KUBEVIRTS, Objects, QUOTAS, VMIS, VMS, is_refused};

const SOURCE: &str = "VMController.SetHaltIfInsufficientResourceQuota";

/// The object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MachineQuotaKey {
    /// A machine, which may run again.
    Machine(ObjectKey),
    /// An instance, whose pod may have been refused.
    Instance(ObjectKey),
}

#[derive(Debug, Default)]
pub(crate) struct MachineQuotaMapper;

impl EventMapper for MachineQuotaMapper {
    type Key = MachineQuotaKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<MachineQuotaKey> {
        let ObjectChange::Object { kind, namespace, name, state: ObjectState::Live } = touch else {
            return Vec::new();
        };
        let key = || ObjectKey::new(namespace, name);
        if VMS.is(kind) {
            vec![MachineQuotaKey::Machine(key())]
        } else if VMIS.is(kind) {
            vec![MachineQuotaKey::Instance(key())]
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct MachineQuotaReconciler(Objects);

impl MachineQuotaReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    /// Removes the annotation of a machine that runs again.
    async fn machine(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let found = self.0.get(VMS, &key.namespace, &key.name).await;
        let Some(vm) = found.doing("get the virtual machine")? else { return Ok(()) };
        match plan::recovered(&vm) {
            Some(patch) => self.write(&vm, &patch).await.map(drop),
            None => Ok(()),
        }
    }

    /// Halts a machine whose pod exceeds the quota of its project.
    async fn instance(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        let found = self.0.get(VMIS, namespace, name).await.doing("get the instance")?;
        if !found.is_some_and(|vmi| plan::exceeds_quota(&vmi)) {
            return Ok(());
        }
        let found = self.0.get(VMS, namespace, name).await.doing("get the virtual machine")?;
        let Some(vm) = found.filter(|vm| !is_deleting(vm)) else { return Ok(()) };
        let quotas = self.0.list(QUOTAS, namespace, "").await.doing("list quotas")?;
        let kubevirts = self.0.list(KUBEVIRTS, "", "").await.doing("get the configuration")?;
        let config = kubevirts.first().unwrap_or(&Value::Null);
        let ratio = ClusterConfig::new(config, virt::ARCHITECTURE).overhead_ratio();
        let Some(halt) = plan::halted(&vm, &quotas, ratio) else { return Ok(()) };
        if self.write(&vm, &halt.patch).await? {
            let regarding = Regarding {
                api_version: "kubevirt.io/v1",
                kind: "VirtualMachine",
                namespace,
                name,
                uid: object::uid(&vm),
            };
            let message = format!("Set runStrategy to Halted: {}", halt.shortage);
            let reason = "InsufficientResourceQuota";
            event::record(&self.0.0, SOURCE, &regarding, EventType::Warning, reason, message).await;
        }
        Ok(())
    }

    /// Whether the machine was written; another write came first if not, and its event decides
    /// again.
    async fn write(&self, vm: &Value, patch: &Value) -> Result<bool, ReconcileError> {
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        match self.0.merge(VMS, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(false),
            written => written.map(|_| true).doing("write the virtual machine"),
        }
    }
}

impl Reconciler for MachineQuotaReconciler {
    type Key = MachineQuotaKey;

    async fn reconcile(&self, key: &MachineQuotaKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            MachineQuotaKey::Machine(key) => self.machine(key).await?,
            MachineQuotaKey::Instance(key) => self.instance(key).await?,
        }
        Ok(ReconcileResult::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_machine_without_room_is_halted_and_marked_until_it_runs_again() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let limits = json!({"domain": {"resources": {"limits": {"cpu": "2"}}}});
        fake.create(
            "kubevirt.io/virtualmachines",
            "n",
            json!({
                "metadata": {"namespace": "n", "name": "web"},
                "spec": {"runStrategy": "Always", "template": {"spec": limits}},
            }),
        );
        let message = "failed to create virtual machine pod: exceeded quota: q";
        let refused = json!([{"type": "Synchronized", "status": "False",
            "reason": "FailedCreate", "message": message}]);
        fake.create(
            "kubevirt.io/virtualmachineinstances",
            "n",
            json!({
                "metadata": {"namespace": "n", "name": "web"}, "status": {"conditions": refused},
            }),
        );
        let reconciler = MachineQuotaReconciler::new(fake.client());
        let key = ObjectKey::new("n", "web");
        let instance = MachineQuotaKey::Instance(key.clone());
        let vm = || fake.get("kubevirt.io/virtualmachines", "n", "web").unwrap();
        reconciler.reconcile(&instance).await.unwrap();
        assert_eq!(vm()["spec"]["runStrategy"], "Always", "a quota of a user halts nothing");
        fake.create(
            "/resourcequotas",
            "n",
            json!({
                "metadata": {"namespace": "n", "name": "q",
                    "labels": {hci::machine_quota::PROJECT_QUOTA: "true"}},
                "spec": {"hard": {"limits.cpu": "1"}},
            }),
        );
        reconciler.reconcile(&instance).await.unwrap();
        assert_eq!(vm()["spec"]["runStrategy"], "Halted");
        let mark = || vm()["metadata"]["annotations"][hci::machine_quota::SHORTAGE].clone();
        assert_eq!(mark(), "cpu insufficient resources due to resource quota");
        let machine = MachineQuotaKey::Machine(key);
        reconciler.reconcile(&machine).await.unwrap();
        assert!(mark().is_string(), "it is still halted");
        let running = json!({"spec": {"runStrategy": "Always"},
            "status": {"printableStatus": "Running"}});
        fake.merge("kubevirt.io/virtualmachines", "n", "web", &running);
        reconciler.reconcile(&machine).await.unwrap();
        assert!(mark().is_null());
    }
}
