//! Reads the claims of an instance and the volumes behind them.

use serde_json::Value;

use super::VmiReconciler;
use super::storage::Need;
use crate::object::{self, list, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{CLAIMS, CLASSES, DATA_VOLUMES};

impl VmiReconciler {
    /// Reads the claims and the objects behind them.
    pub(super) async fn needs(
        &self,
        vmi: &Value,
        names: &[&str],
    ) -> Result<Vec<Need>, ReconcileError> {
        let mut needs = Vec::new();
        for name in names {
            needs.push(self.need(object::namespace(vmi), vmi, name).await?);
        }
        Ok(needs)
    }

    async fn need(&self, namespace: &str, vmi: &Value, name: &str) -> Result<Need, ReconcileError> {
        let claim = self.objects.get(CLAIMS, namespace, name).await.doing("get a claim")?;
        let made_for = claim.as_ref().and_then(object::controller);
        let made_for = made_for.filter(|own| text(own, "/kind") == "DataVolume");
        let named = list(vmi, "/spec/volumes")
            .iter()
            .any(|volume| text(volume, "/dataVolume/name") == name);
        let mut need = Need { claim_name: name.to_owned(), ..Need::default() };
        if named || made_for.is_some() {
            let name = made_for.map_or(name, |own| text(own, "/name"));
            let found = self.objects.get(DATA_VOLUMES, namespace, name).await;
            need.data_volume = found.doing("get a data volume")?;
        }
        if let Some(claim) = &claim {
            let volume = text(claim, "/spec/volumeName");
            if text(claim, "/status/phase") == "Bound" && !volume.is_empty() {
                let found = self.objects.volume_of(Some(claim)).await;
                need.volume = found.doing("get a volume")?;
            } else {
                need.waits_for_consumer = self.waits_for_consumer(claim).await?;
            }
        }
        need.claim = claim;
        Ok(need)
    }

    async fn waits_for_consumer(&self, claim: &Value) -> Result<bool, ReconcileError> {
        let class = text(claim, "/spec/storageClassName");
        if class.is_empty() {
            return Ok(false);
        }
        let class = self.objects.get(CLASSES, "", class).await.doing("get a storage class")?;
        Ok(class.is_some_and(|own| text(&own, "/volumeBindingMode") == "WaitForFirstConsumer"))
    }
}
