//! CDI's DataImportCrons: the content that a source was last seen to have is imported, the managed
//! DataSource then points at it, and old imports are deleted.
//!
//! Agents poll the source: nothing here reaches outside the cluster.

mod plan;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use virt::api::cdi::DataImportCron;

use self::plan::ImportStage;
use crate::data_volume::record::DataVolumeFields;
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{DATA_SOURCES, DATA_VOLUMES, Objects, Resource, is_refused};

const CRONS: Resource = Resource::new("cdi.kubevirt.io", "v1beta1", "dataimportcrons");
const SOURCE: &str = "dataimportcron-controller";

/// Crons, and the imports that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crons(pub(crate) Dependents);

impl EventMapper for Crons {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey::new(namespace, name);
        if CRONS.is(kind) {
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            vec![key]
        } else if DATA_VOLUMES.is(kind) || DATA_SOURCES.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct CronReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for CronReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(CRONS, &key.namespace, &key.name).await;
        let found = found.doing("get the import cron")?;
        let Some(object) = found.filter(|own| !object::is_deleting(own)) else {
            return Ok(ReconcileResult::Done);
        };
        let cron: DataImportCron = serde_json::from_value(object.clone()).unwrap_or_default();
        let Some(digest) = plan::desired(&cron) else {
            return self.update_status(&object, &cron, ImportStage::NoDigest).await;
        };
        let import = plan::import_name(&cron, digest);
        let here = |name: &str| ObjectKey::new(&key.namespace, name);
        self.waiting.set(key, [here(&import), here(&cron.spec.managed_data_source)].into());
        let found = self.objects.get(DATA_VOLUMES, &key.namespace, &import).await;
        let dv = match found.doing("get the import")? {
            Some(dv) => dv,
            None => match self.create(&object, &cron, digest).await? {
                Some(dv) => dv,
                None => {
                    return self
                        .update_status(&object, &cron, ImportStage::Importing("Pending"))
                        .await;
                }
            },
        };
        let phase = object::read::<DataVolumeFields<'_>>(&dv).status.phase;
        if phase != "Succeeded" {
            return self.update_status(&object, &cron, ImportStage::Importing(phase)).await;
        }
        self.publish(&object, &cron, &import).await?;
        self.collect(&object, &cron, &import).await?;
        self.update_status(&object, &cron, ImportStage::Imported).await
    }
}

impl CronReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn create(
        &self,
        object: &Value,
        cron: &DataImportCron,
        digest: &str,
    ) -> Result<Option<Value>, ReconcileError> {
        let wanted = plan::import(object, cron, digest);
        match self.objects.create(DATA_VOLUMES, object::namespace(object), &wanted).await {
            Ok(made) => Ok(Some(made)),
            Err(failure) if is_refused(&failure, 409) => Ok(None),
            Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                let regarding = Regarding {
                    api_version: plan::API,
                    kind: "DataImportCron",
                    namespace: object::namespace(object),
                    name: object::name(object),
                    uid: object::uid(object),
                };
                let (reason, message) = ("ErrImportNotValid", refusal.message.clone());
                event::record(
                    &self.objects.0,
                    SOURCE,
                    &regarding,
                    EventType::Warning,
                    reason,
                    message,
                )
                .await;
                Ok(None)
            }
            Err(failure) => Err(failure).doing("create an import"),
        }
    }

    /// Has the managed DataSource point at an import.
    async fn publish(
        &self,
        object: &Value,
        cron: &DataImportCron,
        import: &str,
    ) -> Result<(), ReconcileError> {
        let namespace = object::namespace(object);
        let wanted = plan::data_source(object, cron, import);
        let name = object::name(&wanted);
        let found = self.objects.get(DATA_SOURCES, namespace, name).await;
        let Some(found) = found.doing("get the data source")? else {
            return match self.objects.create(DATA_SOURCES, namespace, &wanted).await {
                Err(failure) if is_refused(&failure, 409) => Ok(()),
                made => made.map(drop).doing("create the data source"),
            };
        };
        let patch = json!({
            "metadata": {"labels": wanted["metadata"]["labels"]},
            "spec": {"source": {"pvc": wanted["spec"]["source"]["pvc"], "snapshot": null}},
        });
        if is_merged(&found, &patch) {
            return Ok(());
        }
        let written = self.objects.merge(DATA_SOURCES, namespace, name, &patch).await;
        written.map(drop).doing("point the data source at an import")
    }

    async fn collect(
        &self,
        object: &Value,
        cron: &DataImportCron,
        current: &str,
    ) -> Result<(), ReconcileError> {
        let namespace = object::namespace(object);
        let label = format!("{}={}", plan::LABEL, object::name(object));
        let imports = self.objects.list(DATA_VOLUMES, namespace, &label).await;
        let imports = imports.doing("list imports")?;
        for import in plan::outdated(cron, current, &imports) {
            let (name, uid) = (object::name(import), object::uid(import));
            let deleted = self.objects.delete(DATA_VOLUMES, namespace, name, uid).await;
            deleted.doing("delete an old import")?;
        }
        Ok(())
    }

    async fn update_status(
        &self,
        object: &Value,
        cron: &DataImportCron,
        stage: ImportStage<'_>,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::status(object, cron, stage, clock::now());
        if is_merged(object, &patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(object), object::name(object));
        // The kind has no status subresource.
        let written = self.objects.merge(CRONS, namespace, name, &patch).await;
        written.map(|_| ReconcileResult::Done).doing("write the status of an import cron")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::object::text;

    const DV: &str = "cdi.kubevirt.io/datavolumes";

    #[tokio::test]
    async fn each_digest_is_imported_and_the_data_source_follows() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let reconciler = CronReconciler::new(fake.client(), Dependents::default());
        let template = json!({"spec": {"source": {"registry": {"url": "docker://h/d:1"}}}});
        let spec = json!({"schedule": "@daily", "managedDataSource": "d", "template": template,
            "importsToKeep": 1});
        let cron = json!({"metadata": {"name": "c"}, "spec": spec});
        fake.create("cdi.kubevirt.io/dataimportcrons", "n", cron);
        let key = ObjectKey::new("n", "c");
        reconciler.reconcile(&key).await.unwrap();
        assert!(fake.names(DV).is_empty(), "the source was not polled");
        let see = |digest: &str| {
            let patch =
                json!({"metadata": {"annotations": {hci::import_cron::SOURCE_DIGEST: digest}}});
            fake.merge("cdi.kubevirt.io/dataimportcrons", "n", "c", &patch);
        };
        let source = || {
            let found = fake.get("cdi.kubevirt.io/datasources", "n", "d").unwrap();
            text(&found, "/spec/source/pvc/name").to_owned()
        };
        let done = json!({"status": {"phase": "Succeeded"}});
        see("sha256:aaaaaaaaaaaaaaaa");
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(fake.names(DV), ["d-aaaaaaaaaaaa"]);
        fake.merge(DV, "n", "d-aaaaaaaaaaaa", &done);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(source(), "d-aaaaaaaaaaaa");
        see("sha256:bbbbbbbbbbbbbbbb");
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(source(), "d-aaaaaaaaaaaa", "the old one is good until the new one is there");
        fake.merge(DV, "n", "d-bbbbbbbbbbbb", &done);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(source(), "d-bbbbbbbbbbbb");
        assert_eq!(fake.names(DV), ["d-bbbbbbbbbbbb"], "only one is kept");
        let cron = fake.get("cdi.kubevirt.io/dataimportcrons", "n", "c").unwrap();
        assert!(crate::condition::is(&cron, "UpToDate", "True"));
    }
}
