//! Data volumes: claims with content. Each gets its claim; the agent of the claim's node
//! fills it, and what it says of that is repeated here.

mod plan;

use base::clock;
use kube::Client;
use serde_json::Value;

use self::plan::{Seen, Source};
use crate::event::{self, About, Tone};
use crate::key::Key;
use crate::longhorn::volume_snapshot::VOLUME_SNAPSHOTS;
use crate::object::{self, is_merged, text};
use crate::reconcile::{Doing, Failure, Interest, Next, Reconciler, State, Touch};
use crate::resource::{CLAIMS, CLASSES, DATA_VOLUMES, Objects, Resource, VOLUMES, is_refused};

const DATA_SOURCES: Resource = Resource::new("cdi.kubevirt.io", "v1beta1", "datasources");
const SOURCE: &str = "datavolume-controller";

/// A data volume and its claim have the same name.
#[derive(Debug, Default)]
pub(crate) struct Filled;

impl Interest for Filled {
    type Key = Key;

    fn keys(&mut self, touch: &Touch) -> Vec<Key> {
        match touch {
            Touch::Object { kind, namespace, name, state }
                if DATA_VOLUMES.is(kind) && *state != State::Gone || CLAIMS.is(kind) =>
            {
                vec![Key::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct Filler {
    objects: Objects,
}

impl Reconciler for Filler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let found = self.objects.get(DATA_VOLUMES, &key.namespace, &key.name).await;
        let Some(dv) = found.doing("get the data volume")? else { return Ok(Next::Done) };
        if object::is_deleting(&dv) {
            return Ok(Next::Done);
        }
        let source = self.source(&dv).await?;
        let found = self.objects.get(CLAIMS, &key.namespace, &key.name).await;
        let mut claim = found.doing("get the claim")?;
        if claim.is_none() && !matches!(source, Source::Unsupported(_)) {
            claim = self.make_claim(&dv, &source).await?;
        }
        self.say(&dv, &source, claim.as_ref()).await
    }
}

impl Filler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client) }
    }

    async fn source(&self, dv: &Value) -> Result<Source, Failure> {
        let name = text(dv, "/spec/sourceRef/name");
        let there = text(dv, "/spec/sourceRef/namespace");
        let namespace = if there.is_empty() { object::namespace(dv) } else { there };
        let found = self.objects.get(DATA_SOURCES, namespace, name).await;
        Ok(plan::source(dv, found.doing("get the data source")?.as_ref()))
    }

    async fn make_claim(&self, dv: &Value, source: &Source) -> Result<Option<Value>, Failure> {
        let mut wanted = plan::claim(dv, source);
        if !self.link(dv, source, &mut wanted).await? {
            let message = "a VolumeSnapshot can only be copied to a class of its own driver";
            self.tell(dv, Tone::Warning, "ErrClaimNotValid", message.into()).await;
            return Ok(None);
        }
        match self.objects.create(CLAIMS, object::namespace(dv), &wanted).await {
            Ok(claim) => Ok(Some(claim)),
            // Made a moment ago; the touch of it brings us back.
            Err(failure) if is_refused(&failure, 409) => Ok(None),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                let message = status.message.clone();
                self.tell(dv, Tone::Warning, "ErrClaimNotValid", message).await;
                Ok(None)
            }
            Err(failure) => Err(failure).doing("create the claim"),
        }
    }

    /// Leaves copies to the driver where it can make them; says whether the claim can be made.
    async fn link(&self, dv: &Value, source: &Source, wanted: &mut Value) -> Result<bool, Failure> {
        let snapshot = matches!(source, Source::Snapshot { .. });
        let (from, pointer, resource) = match source {
            Source::Clone { name, .. } => (name, "/status/capacity/storage", CLAIMS),
            Source::Snapshot { name } => (name, "/status/restoreSize", VOLUME_SNAPSHOTS),
            _ => return Ok(true),
        };
        let classes = self.objects.list(CLASSES, "", "").await.doing("list storage classes")?;
        let found = self.objects.get(resource, object::namespace(dv), from).await;
        let found = found.doing("get what is copied")?.unwrap_or_default();
        let volume = self.objects.get(VOLUMES, "", text(&found, "/spec/volumeName")).await;
        let volume = volume.doing("get a volume")?;
        let linked = plan::class(wanted, &classes)
            .is_some_and(|class| plan::is_linked(source, dv, class, volume.as_ref()));
        if linked {
            let size = found.pointer(pointer).cloned().unwrap_or_default();
            plan::link(wanted, source, &size);
        }
        Ok(linked || !snapshot)
    }

    async fn say(
        &self,
        dv: &Value,
        source: &Source,
        claim: Option<&Value>,
    ) -> Result<Next, Failure> {
        let class = claim.map_or("", |claim| text(claim, "/spec/storageClassName"));
        let class = self.objects.get(CLASSES, "", class).await.doing("get the storage class")?;
        let waits_for_consumer =
            class.is_some_and(|class| text(&class, "/volumeBindingMode") == "WaitForFirstConsumer");
        let seen = Seen { dv, source, claim, waits_for_consumer };
        let patch = plan::status(seen, clock::now());
        if is_merged(dv, &patch) {
            return Ok(Next::Done);
        }
        let (namespace, name) = (object::namespace(dv), object::name(dv));
        let written = self.objects.merge_status(DATA_VOLUMES, namespace, name, &patch).await;
        written.doing("say how a data volume is")?;
        let (before, now) = (text(dv, "/status/phase"), text(&patch, "/status/phase"));
        if before != now {
            self.tell_phase(dv, now).await;
        }
        Ok(Next::Done)
    }

    async fn tell_phase(&self, dv: &Value, phase: &str) {
        let own = object::name(dv);
        let (tone, message) = match phase {
            "Succeeded" => (Tone::Normal, format!("Successfully filled PVC {own}")),
            "Failed" => (Tone::Warning, format!("Failed to fill PVC {own}")),
            "ImportInProgress" => (Tone::Normal, format!("Import into {own} in progress")),
            "CloneInProgress" => (Tone::Normal, format!("Cloning into {own} in progress")),
            "UploadReady" => (Tone::Normal, format!("Upload into {own} ready")),
            _ => return,
        };
        self.tell(dv, tone, phase, message).await;
    }

    async fn tell(&self, dv: &Value, tone: Tone, reason: &str, message: String) {
        let about = About {
            api_version: "cdi.kubevirt.io/v1beta1",
            kind: "DataVolume",
            namespace: object::namespace(dv),
            name: object::name(dv),
            uid: object::uid(dv),
        };
        event::tell(&self.objects.0, SOURCE, &about, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_data_volume_gets_its_claim_and_repeats_its_state() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let filler = Filler::new(fake.client());
        let spec = json!({
            "source": {"http": {"url": "http://x"}},
            "pvc": {"accessModes": ["ReadWriteOnce"]},
        });
        fake.create(
            "cdi.kubevirt.io/datavolumes",
            "n",
            json!({"metadata": {"name": "d"}, "spec": spec}),
        );
        let key = Key::new("n", "d");
        filler.reconcile(&key).await.unwrap();
        let phase = || {
            let dv = fake.get("cdi.kubevirt.io/datavolumes", "n", "d").unwrap();
            text(&dv, "/status/phase").to_owned()
        };
        assert!(fake.get("/persistentvolumeclaims", "n", "d").is_some());
        assert_eq!(phase(), "Pending");
        let filled = json!({
            "metadata": {"annotations": {plan::POD_PHASE: "Succeeded"}}, "status": {"phase": "Bound"},
        });
        fake.merge("/persistentvolumeclaims", "n", "d", &filled);
        filler.reconcile(&key).await.unwrap();
        assert_eq!(phase(), "Succeeded");
    }
}
