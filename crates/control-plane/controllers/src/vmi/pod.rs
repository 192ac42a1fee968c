//! The launcher pod of an instance that has a node: its status, and its end.
//!
//! A pod that is deleted or evicted ends its instance: the guest is shut down, and the pod
//! goes when that is done. `kubectl drain` waits for that.

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use tracing::info;

use super::plan::{self, VmiStage};
use super::{VmiReconciler, launcher};
use crate::event::EventType;
use crate::key::ObjectKey;
use crate::object::{self, is_merged, list, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::{PODS, VMIS, is_refused};

impl VmiReconciler {
    /// Makes the pod show what the instance is. One whose deletion was not seen is made again:
    /// that a pod is missing is no reason to end a guest.
    pub(super) async fn reflect(
        &self,
        vmi: &Value,
        node: Option<&Value>,
    ) -> Result<(), ReconcileError> {
        let (namespace, name) = (object::namespace(vmi), launcher::pod_name(vmi));
        let found = self.objects.get(PODS, namespace, &name).await.doing("get the pod")?;
        let over = plan::stage(vmi) == VmiStage::Over;
        let pod = match found {
            Some(pod) => pod,
            None if over || object::is_deleting(vmi) || plan::is_evicted(vmi) => return Ok(()),
            None => match self.make_pod(vmi, text(vmi, "/status/nodeName")).await {
                Ok(pod) => pod,
                // The machine runs whether or not it may be shown.
                Err(failure) if is_refused(&failure, 403) || is_refused(&failure, 404) => {
                    return Ok(());
                }
                Err(failure) => return Err(failure).doing("create the pod"),
            },
        };
        let status = launcher::status(vmi, &pod, address(node), clock::now());
        let patch = json!({"status": status});
        if !is_merged(&pod, &patch) {
            match self.objects.merge_status(PODS, namespace, &name, &patch).await {
                Err(failure) if is_refused(&failure, 404) => return Ok(()),
                written => drop(written.doing("write the pod's status")?),
            }
        }
        if over { self.remove_pod(&pod).await } else { Ok(()) }
    }

    /// A pod that is being deleted or was: its instance is shut down, and the pod is removed at
    /// once if no instance runs in it.
    pub(super) async fn deleted_pod(
        &self,
        key: &ObjectKey,
    ) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(PODS, &key.namespace, &key.name).await.doing("get a pod")?;
        let Some(instance) = launcher::instance_of(&key.name) else {
            return Ok(ReconcileResult::Done);
        };
        let is_of_pod = |vmi: &Value| launcher::pod_name(vmi) == *key.name;
        let vmi = match found.as_ref().and_then(object::controller) {
            Some(owner) => self.objects.get(VMIS, &key.namespace, text(owner, "/name")).await,
            None => self.objects.get(VMIS, &key.namespace, instance).await,
        };
        let mut vmi = vmi.doing("get the instance")?.filter(is_of_pod);
        // Names that are too long are cut off in the pod's, which is not there any more to ask.
        if vmi.is_none() && found.is_none() {
            let all = self.objects.list(VMIS, &key.namespace, "").await.doing("list instances")?;
            vmi = all.into_iter().find(is_of_pod);
        }
        let now = clock::now();
        match (vmi.filter(|vmi| plan::stage(vmi) == VmiStage::Placed), found) {
            // Its node ends it, and the end triggers a new check of the pod.
            (Some(vmi), _) if object::is_deleting(&vmi) => {}
            (Some(vmi), Some(pod)) if launcher::lingers(&pod) => {
                self.evict(&vmi, plan::deadline(&pod, now)).await?;
            }
            // It was deleted without a grace period.
            (Some(vmi), _) => self.evict(&vmi, plan::full_grace(&vmi, now)).await?,
            (None, Some(pod)) => self.remove_pod(&pod).await?,
            (None, None) => {}
        }
        Ok(ReconcileResult::Done)
    }

    /// Has the node shut the guest down by `deadline`.
    async fn evict(&self, vmi: &Value, deadline: Timestamp) -> Result<(), ReconcileError> {
        let Some(patch) = plan::evicted(vmi, deadline) else { return Ok(()) };
        let vmi = self.write(vmi, &patch).await?;
        info!(
            namespace = object::namespace(&vmi),
            name = object::name(&vmi),
            "launcher pod deleted; shutting down the guest"
        );
        let message = "virt-launcher pod was deleted or evicted; shutting down the guest";
        self.update_status(&vmi, EventType::Normal, "Evicted", message.into()).await;
        Ok(())
    }

    /// Ends the wait of a pod that is being deleted: no kubelet is there to end it.
    async fn remove_pod(&self, pod: &Value) -> Result<(), ReconcileError> {
        if !launcher::lingers(pod) {
            return Ok(());
        }
        let (namespace, name, uid) = (object::namespace(pod), object::name(pod), object::uid(pod));
        self.objects.remove(PODS, namespace, name, uid).await.doing("remove a deleted pod")
    }
}

/// The address by which the node is reached.
fn address(node: Option<&Value>) -> &str {
    let addresses = node.map_or(&[][..], |node| list(node, "/status/addresses"));
    let internal = addresses.iter().find(|own| text(own, "/type") == "InternalIP");
    internal.map_or("", |own| text(own, "/address"))
}
