//! Reports the filling of a claim in CDI's annotations on it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use base::Chain;
use client::Fault;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tracing::debug;

use super::gauge::{Gauge, StallReason};
use super::object::{self, Claim};
use crate::api::{merge, present};

const PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
const RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
const REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
const MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";
const PROGRESS: &str = "sheaf.io/import-progress";

/// Progress is written at most this often.
const PACE: Duration = Duration::from_secs(1);

/// Writes to one claim.
pub(super) struct ClaimStatusWriter {
    claims: Api<PersistentVolumeClaim>,
    name: String,
    uid: String,
    /// The annotations that were written last.
    written: Map<String, Value>,
    /// The claim after the last write.
    claim: Option<PersistentVolumeClaim>,
}

impl ClaimStatusWriter {
    pub(super) fn new(client: Client, claim: &Claim) -> Self {
        Self {
            claims: Api::namespaced(client, &claim.namespace),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            written: Map::new(),
            claim: None,
        }
    }

    /// The claim as it is now; nothing if it is gone or another.
    pub(super) async fn read_claim(&mut self) -> Result<Option<Claim>, Fault> {
        let found = present(self.claims.get(&self.name).await).map_err(Fault)?;
        self.claim = found.filter(|claim| claim.metadata.uid.as_ref() == Some(&self.uid));
        Ok(self.claim.as_ref().and_then(object::claim))
    }

    /// The claim as it was last seen.
    pub(super) fn into_claim(self) -> Option<PersistentVolumeClaim> {
        self.claim
    }

    pub(super) async fn begun(&mut self) -> Result<(), Fault> {
        self.write(running(&Gauge::default())).await
    }

    /// An upload may begin.
    pub(super) async fn ready(&mut self) -> Result<(), Fault> {
        let mut wanted = running(&Gauge::default());
        wanted.insert(READY.into(), "true".into());
        self.write(wanted).await
    }

    pub(super) async fn succeeded(&mut self) -> Result<(), Fault> {
        self.write(notes(json!({
            PHASE: "Succeeded", READY: "false", PROGRESS: "100.0%",
            RUNNING: "false", REASON: "Completed", MESSAGE: null,
        })))
        .await
    }

    pub(super) async fn failed(&mut self, trouble: &StallReason) -> Result<(), Fault> {
        self.write(notes(json!({
            PHASE: "Failed", READY: "false",
            RUNNING: "false", REASON: trouble.reason.as_str(), MESSAGE: trouble.message,
        })))
        .await
    }

    /// Reports progress and trouble while `work` goes on.
    pub(super) async fn follow<T>(
        &mut self,
        gauge: &Gauge,
        mut work: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> T {
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(PACE) => {}
            }
            let write = self.write(running(gauge));
            // The work goes on while the server takes its time.
            let written = tokio::select! {
                result = &mut work => return result,
                written = write => written,
            };
            if let Err(failure) = written {
                debug!(claim = self.name, error = %Chain(&failure), "cannot report progress");
            }
        }
    }

    /// Writes what is not written yet.
    pub(super) async fn write(&mut self, wanted: Map<String, Value>) -> Result<(), Fault> {
        let news: Map<String, Value> = wanted
            .iter()
            .filter(|(key, value)| self.written.get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if news.is_empty() {
            return Ok(());
        }
        // The uid keeps it from a later claim of the same name.
        let patch = json!({"metadata": {"uid": self.uid, "annotations": news}});
        self.claim = Some(merge(&self.claims, &self.name, &patch).await.map_err(Fault)?);
        self.written.extend(news);
        Ok(())
    }
}

/// The annotations of a filling that is under way.
pub(super) fn running(gauge: &Gauge) -> Map<String, Value> {
    let trouble = gauge.trouble();
    let (reason, message) = match &trouble {
        Some(trouble) => (Some(trouble.reason.as_str()), Some(trouble.message.as_str())),
        None => (Some("Pod is running"), None),
    };
    notes(json!({
        PHASE: "Running",
        PROGRESS: gauge.percent(),
        RESTARTS: gauge.restarts().to_string(),
        RUNNING: trouble.is_none().to_string(),
        REASON: reason,
        MESSAGE: message,
    }))
}

fn notes(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use virt::reason::FillFailure;

    use super::*;

    #[test]
    fn trouble_is_reported_and_cleared() {
        let gauge = Gauge::default();
        gauge.set(0.5);
        let trouble = StallReason { reason: FillFailure::Error, message: "404".into() };
        gauge.stumble(trouble);
        let notes = running(&gauge);
        assert_eq!(notes[MESSAGE], "404");
        assert_eq!(notes[RESTARTS], "1");
        assert_eq!(notes[PROGRESS], "50.0%");
        gauge.recover();
        assert_eq!(running(&gauge)[MESSAGE], Value::Null);
    }
}
