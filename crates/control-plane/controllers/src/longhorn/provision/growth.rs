//! Claims that ask for more than they have.

use base::clock;
use hci::longhorn::NAMESPACE;
use serde_json::{Value, json};

use super::plan::{self, ExpansionStep};
use super::{Provisioner, RECHECK_INTERVAL};
use crate::condition::{self, Condition};
use crate::event::EventType;
use crate::longhorn::object::{engine_name, handle};
use crate::longhorn::{ENGINES, LONGHORN_VOLUMES};
use crate::object::{self, is_merged, read};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::record::claim::ClaimFields;
use crate::resource::{CLAIMS, VOLUMES};

impl Provisioner {
    /// A claim with a volume may want more of it.
    pub(super) async fn grow(&self, claim: &Value) -> Result<ReconcileResult, ReconcileError> {
        let bound = read::<ClaimFields<'_>>(claim).spec.volume_name;
        let found = self.objects.volume_of(Some(claim)).await.doing("get the volume")?;
        let Some(volume) = found else { return Ok(ReconcileResult::Done) };
        let Some(own) = handle(&volume) else { return Ok(ReconcileResult::Done) };
        let found = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, own).await;
        let Some(backing) = found.doing("get the volume behind a claim")? else {
            return Ok(ReconcileResult::Done);
        };
        let engine = self.objects.get(ENGINES, NAMESPACE, &engine_name(own)).await;
        let engine = engine.doing("get the engine")?;
        match plan::growth(claim, &backing, engine.as_ref()) {
            ExpansionStep::Nothing => Ok(ReconcileResult::Done),
            ExpansionStep::Wait => self.set_resizing(claim).await,
            ExpansionStep::Ask { size } => {
                let patch = json!({"spec": {"size": size.to_string()}});
                match self.objects.merge(LONGHORN_VOLUMES, NAMESPACE, own, &patch).await {
                    Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                        let message = format!("resize volume {bound} failed: {}", refusal.message);
                        self.record_event(claim, EventType::Warning, "VolumeResizeFailed", message)
                            .await;
                        return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                    }
                    written => drop(written.doing("grow the volume")?),
                }
                let message = format!("External resizer is resizing volume {bound}");
                self.record_event(claim, EventType::Normal, "Resizing", message).await;
                self.set_resizing(claim).await
            }
            ExpansionStep::Grown { capacity } => self.set_resized(claim, &volume, &capacity).await,
        }
    }

    async fn set_resizing(&self, claim: &Value) -> Result<ReconcileResult, ReconcileError> {
        let mut conditions = condition::of(claim);
        condition::set(&mut conditions, &Condition::new("Resizing", "True"), clock::now());
        self.write_claim_status(claim, &json!({"status": {"conditions": conditions}})).await
    }

    async fn set_resized(
        &self,
        claim: &Value,
        volume: &Value,
        capacity: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = json!({"spec": {"capacity": {"storage": capacity}}});
        let written = self.objects.merge(VOLUMES, "", object::name(volume), &patch).await;
        written.doing("say how large the volume is")?;
        let mut conditions = condition::of(claim);
        condition::remove(&mut conditions, "Resizing");
        let patch = json!({"status": {
            "capacity": {"storage": capacity}, "conditions": conditions,
        }});
        let next = self.write_claim_status(claim, &patch).await?;
        let message = "Resize volume succeeded".to_owned();
        self.record_event(claim, EventType::Normal, "VolumeResizeSuccessful", message).await;
        Ok(next)
    }

    async fn write_claim_status(
        &self,
        claim: &Value,
        patch: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_merged(claim, patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(claim), object::name(claim));
        let written = self.objects.merge_status(CLAIMS, namespace, name, patch).await;
        written.map(|_| ReconcileResult::Done).doing("say how a claim grows")
    }
}
