//! HorizontalPodAutoscalers: the `scale` subresource of their targets follows bounds and
//! resource metrics, as kube-controller-manager does it.
//!
//! An autoscaler is evaluated when its spec changes and every [`SYNC_PERIOD`]. Earlier
//! recommendations are kept in memory, as upstream does.

mod behavior;
mod metric;
mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock;
use client::{Catalog, CatalogKind, Fault};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{ListParams, PostParams};
use kube::core::{ObjectList, Request};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use self::behavior::ScaleHistory;
use self::metric::{PodMetrics, TargetPods, Tolerance};
use self::plan::{MetricsOutcome, Rescale, SizeRule, StatusDraft, Warning};
use crate::event::{self, EventType, Regarding};
use crate::key::ObjectKey;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, PODS, Resource, is_refused};

const AUTOSCALERS: Resource = Resource::new("autoscaling", "v2", "horizontalpodautoscalers");
const POD_METRICS: Resource = Resource::new("metrics.k8s.io", "v1beta1", "pods");
const SOURCE: &str = "horizontal-pod-autoscaler";
/// How often metrics are read.
const SYNC_PERIOD: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Autoscalers;

impl EventMapper for Autoscalers {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state }
                if AUTOSCALERS.is(kind) && *state != ObjectState::Deleting =>
            {
                vec![ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) }]
            }
            _ => Vec::new(),
        }
    }
}

/// The state of an autoscaler between two evaluations.
#[derive(Default)]
struct AutoscalerRecord {
    evaluated: Option<(Instant, HorizontalPodAutoscalerSpec)>,
    history: ScaleHistory,
}

/// Why the size of a target is not known. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
enum ScaleError {
    #[error("no matches for kind {kind:?} in group {group:?}")]
    UnknownKind { group: String, kind: String },
    #[error(transparent)]
    Request(#[from] Fault),
}

/// A target's kind and its scale.
struct ScaleTarget {
    kind: Arc<CatalogKind>,
    scale: Scale,
}

pub(crate) struct AutoscalerReconciler {
    objects: Objects,
    catalog: watch::Receiver<Arc<Catalog>>,
    records: Mutex<BTreeMap<ObjectKey, AutoscalerRecord>>,
}

impl Reconciler for AutoscalerReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(AUTOSCALERS, &key.namespace, &key.name).await;
        let found = found.doing("get the autoscaler")?;
        let Some(stored) = found.filter(|own| !crate::object::is_deleting(own)) else {
            self.records().remove(key);
            return Ok(ReconcileResult::Done);
        };
        let autoscaler: HorizontalPodAutoscaler = serde_json::from_value(stored.clone())
            .map_err(kube::Error::SerdeError)
            .doing("read the autoscaler")?;
        let spec = &autoscaler.spec;
        // A write of the status brings the key back at once; metrics are read once a period.
        if let Some(wait) = self.wait(key, spec) {
            return Ok(ReconcileResult::Again(wait));
        }
        let mut status = StatusDraft::of(&autoscaler, clock::now());
        self.evaluate(key, &autoscaler, spec, &mut status).await?;
        let status = serde_json::to_value(&status.status).map_err(kube::Error::SerdeError);
        let patch = status_patch(&stored, status.doing("encode the status")?);
        if !crate::object::is_merged(&stored, &patch) {
            let objects = &self.objects;
            match objects.merge_status(AUTOSCALERS, &key.namespace, &key.name, &patch).await {
                Err(gone) if is_refused(&gone, 404) => return Ok(ReconcileResult::Done),
                written => drop(written.doing("write the autoscaler's status")?),
            }
        }
        Ok(ReconcileResult::Again(SYNC_PERIOD))
    }
}

/// A merge patch that also removes what the new status does not have.
fn status_patch(stored: &Value, mut status: Value) -> Value {
    if let (Some(old), Some(new)) =
        (stored.get("status").and_then(Value::as_object), status.as_object_mut())
    {
        for field in old.keys() {
            new.entry(field.clone()).or_insert(Value::Null);
        }
    }
    json!({"status": status})
}

impl AutoscalerReconciler {
    pub(crate) fn new(client: Client, catalog: watch::Receiver<Arc<Catalog>>) -> Self {
        Self { objects: Objects(client), catalog, records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, AutoscalerRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an autoscaler with an unchanged spec has to wait; otherwise it is evaluated now.
    fn wait(&self, key: &ObjectKey, spec: &HorizontalPodAutoscalerSpec) -> Option<Duration> {
        let mut records = self.records();
        let record = records.entry(key.clone()).or_default();
        if let Some((at, known)) = &record.evaluated
            && known == spec
        {
            let left = SYNC_PERIOD.saturating_sub(at.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
        }
        record.evaluated = Some((Instant::now(), spec.clone()));
        None
    }

    async fn evaluate(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        status: &mut StatusDraft,
    ) -> Result<(), ReconcileError> {
        let target = match self.target(&key.namespace, &spec.scale_target_ref).await {
            Ok(target) => target,
            Err(cause) => {
                let message = format!(
                    "the HPA controller was unable to get the target's current scale: {cause}"
                );
                status.set("AbleToScale", false, "FailedGetScale", message);
                self.warn(autoscaler, ("FailedGetScale", cause.to_string())).await;
                return Ok(());
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        status.set("AbleToScale", true, "SucceededGetScale", message);
        let (current, now) = (plan::replicas(&target.scale), clock::now());
        self.records().entry(key.clone()).or_default().history.start(current, now);
        let outcome = match plan::size_rule(spec, current) {
            SizeRule::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                status.set("ScalingActive", false, "ScalingDisabled", message);
                MetricsOutcome::default()
            }
            SizeRule::Bound(replicas, reason) => MetricsOutcome {
                rescale: Some(Rescale { replicas, reason: reason.to_owned() }),
                ..MetricsOutcome::default()
            },
            SizeRule::Metrics => self.by_metrics(key, spec, &target.scale, status, now).await?,
        };
        for warning in outcome.warnings {
            self.warn(autoscaler, warning).await;
        }
        status.observed(current, outcome.metrics);
        match outcome.rescale {
            Some(rescale) => self.rescale(key, autoscaler, target, &rescale, status).await,
            None if outcome.failed => {}
            None => status.status.desired_replicas = current,
        }
        Ok(())
    }

    async fn by_metrics(
        &self,
        key: &ObjectKey,
        spec: &HorizontalPodAutoscalerSpec,
        scale: &Scale,
        status: &mut StatusDraft,
        now: Timestamp,
    ) -> Result<MetricsOutcome, ReconcileError> {
        let Some(selector) = plan::selector(scale) else {
            let message = "the HPA target's scale is missing a selector";
            status.set("ScalingActive", false, "InvalidSelector", message);
            let warnings = vec![("SelectorRequired", "selector is required".to_owned())];
            return Ok(MetricsOutcome { warnings, failed: true, ..MetricsOutcome::default() });
        };
        let pods = self.list::<Pod>(PODS, &key.namespace, selector).await.doing("list pods")?;
        let metrics = self.list::<PodMetrics>(POD_METRICS, &key.namespace, selector).await;
        let metrics = metrics.map_err(|failure| {
            let cause = Fault(failure);
            format!("unable to fetch metrics from resource metrics API: {cause}")
        });
        let pods = TargetPods {
            pods: &pods,
            metrics: metrics.as_deref().map_err(String::as_str),
            replicas: plan::replicas(scale),
            tolerance: Tolerance::of(spec.behavior.as_ref()),
            now,
        };
        let mut records = self.records();
        let history = &mut records.entry(key.clone()).or_default().history;
        Ok(plan::by_metrics(spec, &pods, history, status))
    }

    /// All objects with these labels.
    async fn list<T: DeserializeOwned + Clone>(
        &self,
        resource: Resource,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<T>, kube::Error> {
        let params = ListParams::default().labels(labels);
        let request = Request::new(resource.path(namespace)).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let list: ObjectList<T> = self.objects.0.request(request).await?;
        Ok(list.items)
    }

    async fn target(
        &self,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<ScaleTarget, ScaleError> {
        let catalog = Arc::clone(&self.catalog.borrow());
        let version = reference.api_version.as_deref().unwrap_or("v1");
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let mut kinds = catalog.kinds().iter();
        let kind = kinds.find(|own| &*own.group == group && *own.kind == *reference.kind);
        let Some(kind) = kind.filter(|kind| kind.namespaced) else {
            let (group, kind) = (group.to_owned(), reference.kind.clone());
            return Err(ScaleError::UnknownKind { group, kind });
        };
        let request = Request::new(kind.path(namespace));
        let request = request.get_subresource("scale", &reference.name);
        let request = request.map_err(kube::Error::BuildRequest).map_err(Fault)?;
        let scale = self.objects.0.request(request).await.map_err(Fault)?;
        Ok(ScaleTarget { kind: Arc::clone(kind), scale })
    }

    async fn rescale(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        target: ScaleTarget,
        rescale: &Rescale,
        status: &mut StatusDraft,
    ) {
        let current = plan::replicas(&target.scale);
        let Rescale { replicas, reason } = rescale;
        if let Err(failure) = self.write_scale(key, target, *replicas).await {
            let cause = Fault(failure);
            let message = format!("New size: {replicas}; reason: {reason}; error: {cause}");
            self.warn(autoscaler, ("FailedRescale", message)).await;
            let message =
                format!("the HPA controller was unable to update the target scale: {cause}");
            status.set("AbleToScale", false, "FailedUpdateScale", message);
            return;
        }
        let message =
            format!("the HPA controller was able to update the target scale to {replicas}");
        status.set("AbleToScale", true, "SucceededRescale", message);
        let message = format!("New size: {replicas}; reason: {reason}");
        self.record(autoscaler, EventType::Normal, "SuccessfulRescale", message).await;
        let now = clock::now();
        let mut records = self.records();
        records.entry(key.clone()).or_default().history.note_change(current, *replicas, now);
        status.rescaled(*replicas);
    }

    async fn write_scale(
        &self,
        key: &ObjectKey,
        mut target: ScaleTarget,
        replicas: i32,
    ) -> Result<(), kube::Error> {
        target.scale.spec.get_or_insert_default().replicas = Some(replicas);
        let name = target.scale.metadata.name.clone().unwrap_or_default();
        let body = serde_json::to_vec(&target.scale).map_err(kube::Error::SerdeError)?;
        let request = Request::new(target.kind.path(&key.namespace))
            .replace_subresource("scale", &name, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.objects.0.request_text(request).await.map(drop)
    }

    async fn warn(&self, autoscaler: &HorizontalPodAutoscaler, (reason, message): Warning) {
        self.record(autoscaler, EventType::Warning, reason, message).await;
    }

    async fn record(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        tone: EventType,
        reason: &str,
        message: String,
    ) {
        let meta = &autoscaler.metadata;
        let regarding = Regarding {
            api_version: "autoscaling/v2",
            kind: "HorizontalPodAutoscaler",
            namespace: meta.namespace.as_deref().unwrap_or_default(),
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests;
