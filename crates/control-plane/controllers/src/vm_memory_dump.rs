//! Memory dumps of virtual machines: the request in a machine's status becomes a volume of its
//! instance, which the node dumps the guest's memory to.
//!
//! Upstream also adds the volume to the machine's template. Here the template is left as its
//! author wrote it; `status.memoryDumpRequest` alone records the association.

mod plan;

use kube::Client;
use serde_json::{Value, json};
use virt::api::atom::Quantity;
use virt::v1::{VirtualMachineInstance, VirtualMachineMemoryDumpRequest};

use self::plan::{MemoryDumpPlan, RequestChange};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{CLAIMS, Objects, VMIS, VMS};

const ANNOTATION: &str = "kubevirt.io/memory-dump";

/// Machines, their instances, which have the same names, and the claims of their dumps.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDumps(pub(crate) Dependents);

impl EventMapper for MemoryDumps {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if VMS.is(kind) && *state == ObjectState::Gone {
            self.0.forget(&key);
            return Vec::new();
        }
        if CLAIMS.is(kind) {
            return self.0.of(&key);
        }
        if VMS.is(kind) || VMIS.is(kind) { vec![key] } else { Vec::new() }
    }
}

pub(crate) struct MemoryDumpReconciler {
    objects: Objects,
    claims: Dependents,
}

impl Reconciler for MemoryDumpReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VMS, &key.namespace, &key.name).await;
        let Some(vm) = found.doing("get the virtual machine")? else {
            return Ok(ReconcileResult::Done);
        };
        let request: Option<VirtualMachineMemoryDumpRequest> =
            object::read(&vm["status"]["memoryDumpRequest"]);
        let Some(request) = request.filter(|_| !is_deleting(&vm)) else {
            self.claims.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let claim = &request.claim_name;
        self.claims.set(key, [ObjectKey::new(&key.namespace, claim)].into());
        let claim = self.objects.get(CLAIMS, &key.namespace, claim).await;
        let claim = claim.doing("get the claim of the memory dump")?;
        let vmi = self.objects.get(VMIS, &key.namespace, &key.name).await;
        let vmi = vmi.doing("get the instance")?.filter(|vmi| object::is_controlled_by(vmi, &vm));
        let instance: Option<VirtualMachineInstance> =
            vmi.clone().and_then(|vmi| serde_json::from_value(vmi).ok());
        let is_growing = claim.as_ref().is_some_and(is_growing);
        let plan = plan::plan(&request, instance.as_ref(), is_growing);
        if let (Some(value), Some(claim)) = (&plan.annotation, &claim) {
            self.annotate(claim, value).await?;
        }
        self.carry_out(&vm, vmi.as_ref(), plan).await.map(|()| ReconcileResult::Done)
    }
}

impl MemoryDumpReconciler {
    pub(crate) fn new(client: Client, claims: Dependents) -> Self {
        Self { objects: Objects(client), claims }
    }

    async fn carry_out(
        &self,
        vm: &Value,
        vmi: Option<&Value>,
        plan: MemoryDumpPlan,
    ) -> Result<(), ReconcileError> {
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        if let (Some(volumes), Some(vmi)) = (plan.volumes, vmi) {
            let patch = json!({"metadata": object::version(vmi), "spec": {"volumes": volumes}});
            let written = self.objects.merge(VMIS, namespace, name, &patch).await;
            written.doing("change the volumes of the instance")?;
        }
        let request = match plan.change {
            RequestChange::None => return Ok(()),
            RequestChange::Set(request) => json!(request),
            RequestChange::Remove => Value::Null,
        };
        let patch =
            json!({"metadata": object::version(vm), "status": {"memoryDumpRequest": request}});
        let written = self.objects.merge_status(VMS, namespace, name, &patch).await;
        written.map(drop).doing("write the phase of the memory dump")
    }

    async fn annotate(&self, claim: &Value, value: &str) -> Result<(), ReconcileError> {
        if object::annotation(claim, ANNOTATION) == Some(value) {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {ANNOTATION: value}}});
        let (namespace, name) = (object::namespace(claim), object::name(claim));
        let written = self.objects.merge(CLAIMS, namespace, name, &patch).await;
        written.map(drop).doing("annotate the claim of the memory dump")
    }
}

/// Whether a bound claim is not as large yet as it was requested.
fn is_growing(claim: &Value) -> bool {
    let bytes = |at| Quantity(text(claim, at).to_owned()).units();
    let (has, wants) =
        (bytes("/status/capacity/storage"), bytes("/spec/resources/requests/storage"));
    matches!((has, wants), (Some(has), Some(wants)) if has < wants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const MACHINES: &str = "kubevirt.io/virtualmachines";
    const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";

    #[tokio::test]
    async fn a_request_becomes_a_volume_of_the_instance_and_ends_with_the_claim_annotated() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        fake.create("/persistentvolumeclaims", "n", json!({"metadata": {"name": "c"}}));
        let request = json!({"claimName": "c", "phase": "Associating"});
        let vm = json!({"metadata": {"name": "m"}, "status": {"memoryDumpRequest": request}});
        fake.create(MACHINES, "n", vm);
        let uid = fake.get(MACHINES, "n", "m").unwrap()["metadata"]["uid"].clone();
        let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "m",
            "uid": uid, "controller": true});
        let vmi = json!({"metadata": {"name": "m", "ownerReferences": [owner]},
            "spec": {"domain": {"devices": {}}, "volumes": []}, "status": {"phase": "Running"}});
        fake.create(INSTANCES, "n", vmi);
        let reconciler = MemoryDumpReconciler::new(fake.client(), Dependents::default());
        let key = ObjectKey::new("n", "m");
        let phase = || {
            fake.get(MACHINES, "n", "m").unwrap()["status"]["memoryDumpRequest"]["phase"].clone()
        };
        let volumes = || fake.get(INSTANCES, "n", "m").unwrap()["spec"]["volumes"].clone();
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), "InProgress");
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(volumes()[0]["memoryDump"]["claimName"], "c");
        let status = json!({"status": {"volumeStatus": [{"name": "c", "target": "",
            "phase": "MemoryDumpCompleted", "memoryDumpVolume": {"targetFileName": "f"}}]}});
        fake.merge(INSTANCES, "n", "m", &status);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), "Unmounting");
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(volumes(), json!([]));
        fake.merge(INSTANCES, "n", "m", &json!({"status": {"volumeStatus": null}}));
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), "Completed");
        let claim = fake.get("/persistentvolumeclaims", "n", "c").unwrap();
        assert_eq!(claim["metadata"]["annotations"][ANNOTATION], "f");
        let remove = json!({"status": {"memoryDumpRequest": {"phase": "Dissociating"}}});
        fake.merge(MACHINES, "n", "m", &remove);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), Value::Null);
    }
}
