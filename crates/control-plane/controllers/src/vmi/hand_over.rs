//! Creating the launcher pod of an instance and handing the instance over to its node.

use base::clock;
use client::Fault;
use serde_json::Value;
use virt::ClusterConfig;
use virt::reason::NotSynchronized;

use super::limits::AutoLimits;
use super::storage::Need;
use super::{VmiReconciler, launcher, plan};
use crate::condition;
use crate::event::EventType;
use crate::guest_address;
use crate::key::ObjectKey;
use crate::object::{self, is_merged, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::{KUBEVIRTS, NAMESPACES, PODS, QUOTAS, is_refused};

impl VmiReconciler {
    pub(super) async fn hand_over(
        &self,
        vmi: &Value,
        node: &str,
        needs: &[Need],
    ) -> Result<ReconcileResult, ReconcileError> {
        // Before the node is notified: the guest starts with the address that is claimed for it.
        guest_address::claim(&self.objects, vmi, node).await?;
        let patch = plan::scheduling(vmi, needs, clock::now());
        let scheduling = async {
            if is_merged(vmi, &patch) { Ok(vmi.clone()) } else { self.write(vmi, &patch).await }
        };
        // After a refusal the status does not change before the pod is accepted: a second
        // refusal then writes nothing, and nothing wakes this key before its back-off ends.
        let (pod, vmi) = if condition::is(vmi, "Synchronized", "False") {
            match self.make_pod(vmi, node).await {
                Ok(pod) => (Ok(pod), scheduling.await),
                Err(failure) => (Err(failure), Ok(vmi.clone())),
            }
        } else {
            tokio::join!(self.make_pod(vmi, node), scheduling)
        };
        let vmi = vmi?;
        let pod = match pod {
            Ok(pod) => pod,
            Err(failure) => return self.pod_refused(&vmi, failure).await,
        };
        self.waiting.accepted(&ObjectKey::of(&vmi));
        let patch = plan::scheduled(&vmi, node, &pod, clock::now());
        let vmi = self.write(&vmi, &patch).await?;
        let message = format!("Created virtual machine pod {}", object::name(&pod));
        self.update_status(&vmi, EventType::Normal, "SuccessfulCreate", message).await;
        Ok(ReconcileResult::Done)
    }

    async fn pod_refused(
        &self,
        vmi: &Value,
        failure: kube::Error,
    ) -> Result<ReconcileResult, ReconcileError> {
        if !is_refused(&failure, 403) && !is_refused(&failure, 422) {
            return Err(failure).doing("create the pod");
        }
        self.waiting.wait_for_quota(&ObjectKey::of(vmi));
        let message = format!("failed to create virtual machine pod: {}", Fault(failure));
        let patch = plan::refused(vmi, NotSynchronized::Create, &message, clock::now());
        if !is_merged(vmi, &patch) {
            self.write(vmi, &patch).await?;
            self.update_status(vmi, EventType::Warning, "FailedCreate", message).await;
        }
        Ok(ReconcileResult::Retry)
    }

    /// The pod of an instance on `node`; one from an attempt before is as good.
    pub(super) async fn make_pod(&self, vmi: &Value, node: &str) -> Result<Value, kube::Error> {
        let namespace = object::namespace(vmi);
        let pod = launcher::pod(vmi, node, self.auto_limits(namespace).await?);
        match self.objects.create(PODS, namespace, &pod).await {
            Err(failure) if is_refused(&failure, 409) => {
                let found = self.objects.get(PODS, namespace, object::name(&pod)).await?;
                match found.filter(|pod| {
                    object::is_controlled_by(pod, vmi) && text(pod, "/spec/nodeName") == node
                }) {
                    Some(pod) => Ok(pod),
                    None => Err(failure),
                }
            }
            created => created,
        }
    }

    /// The limits that instances of a namespace get if they set none.
    async fn auto_limits(&self, namespace: &str) -> Result<AutoLimits, kube::Error> {
        let quotas = self.objects.list(QUOTAS, namespace, "").await?;
        let kubevirts = self.objects.list(KUBEVIRTS, "", "").await?;
        let config = kubevirts.first().unwrap_or(&Value::Null);
        let config = ClusterConfig::new(config, virt::ARCHITECTURE);
        let own = self.objects.get(NAMESPACES, "", namespace).await?;
        Ok(AutoLimits::decide(&quotas, own.as_ref(), config.auto_cpu_limit_selector()))
    }
}
