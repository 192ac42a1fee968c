//! Claims that ask for more than they have.

use base::clock;
use hci::longhorn::NAMESPACE;
use serde_json::{Value, json};

use super::plan::{self, Growth};
use super::{LOOK_AGAIN, Provisioner};
use crate::condition::{self, Condition};
use crate::event::Tone;
use crate::longhorn::object::{engine_name, handle};
use crate::longhorn::{BACKINGS, ENGINES};
use crate::object::{self, is_merged, text};
use crate::reconcile::{Doing, Failure, Next};
use crate::resource::{CLAIMS, VOLUMES};

impl Provisioner {
    /// A claim with a volume may want more of it.
    pub(super) async fn grow(&self, claim: &Value) -> Result<Next, Failure> {
        let bound = text(claim, "/spec/volumeName");
        let found = self.objects.volume_of(Some(claim)).await.doing("get the volume")?;
        let Some(volume) = found else { return Ok(Next::Done) };
        let Some(own) = handle(&volume) else { return Ok(Next::Done) };
        let found = self.objects.get(BACKINGS, NAMESPACE, own).await;
        let Some(backing) = found.doing("get the volume behind a claim")? else {
            return Ok(Next::Done);
        };
        let engine = self.objects.get(ENGINES, NAMESPACE, &engine_name(own)).await;
        let engine = engine.doing("get the engine")?;
        match plan::growth(claim, &backing, engine.as_ref()) {
            Growth::Nothing => Ok(Next::Done),
            Growth::Wait => self.say_growing(claim).await,
            Growth::Ask { size } => {
                let patch = json!({"spec": {"size": size.to_string()}});
                match self.objects.merge(BACKINGS, NAMESPACE, own, &patch).await {
                    Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                        let message = format!("resize volume {bound} failed: {}", refusal.message);
                        self.tell(claim, Tone::Warning, "VolumeResizeFailed", message).await;
                        return Ok(Next::Again(LOOK_AGAIN));
                    }
                    written => drop(written.doing("grow the volume")?),
                }
                let message = format!("External resizer is resizing volume {bound}");
                self.tell(claim, Tone::Normal, "Resizing", message).await;
                self.say_growing(claim).await
            }
            Growth::Tell { capacity } => self.say_grown(claim, &volume, &capacity).await,
        }
    }

    async fn say_growing(&self, claim: &Value) -> Result<Next, Failure> {
        let mut conditions = condition::of(claim);
        condition::set(&mut conditions, &Condition::new("Resizing", "True"), clock::now());
        self.write_claim_status(claim, &json!({"status": {"conditions": conditions}})).await
    }

    async fn say_grown(
        &self,
        claim: &Value,
        volume: &Value,
        capacity: &Value,
    ) -> Result<Next, Failure> {
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
        self.tell(claim, Tone::Normal, "VolumeResizeSuccessful", message).await;
        Ok(next)
    }

    async fn write_claim_status(&self, claim: &Value, patch: &Value) -> Result<Next, Failure> {
        if is_merged(claim, patch) {
            return Ok(Next::Done);
        }
        let (namespace, name) = (object::namespace(claim), object::name(claim));
        let written = self.objects.merge_status(CLAIMS, namespace, name, patch).await;
        written.map(|_| Next::Done).doing("say how a claim grows")
    }
}
