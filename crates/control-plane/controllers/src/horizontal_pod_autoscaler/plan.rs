//! The desired replica count of an autoscaler, and its status: pure.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behavior::{ScaleHistory, ScaleLimits, limit};
use super::metric::{MetricFailure, TargetPods, evaluate};

/// The rule that decides about a target's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeRule {
    /// The target was scaled to zero, which switches autoscaling off.
    Disabled,
    /// The target is outside the bounds: its new size, and why.
    Bound(i32, &'static str),
    Metrics,
}

pub(crate) fn size_rule(spec: &HorizontalPodAutoscalerSpec, current: i32) -> SizeRule {
    let min = min_replicas(spec);
    if current == 0 && min != 0 {
        SizeRule::Disabled
    } else if current > spec.max_replicas {
        SizeRule::Bound(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    } else if current < min {
        SizeRule::Bound(min, "Current number of replicas below Spec.MinReplicas")
    } else {
        SizeRule::Metrics
    }
}

fn min_replicas(spec: &HorizontalPodAutoscalerSpec) -> i32 {
    spec.min_replicas.unwrap_or(1)
}

pub(crate) fn replicas(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default()
}

/// The label selector of the target's pods, if it has one.
pub(crate) fn selector(scale: &Scale) -> Option<&str> {
    let selector = scale.status.as_ref()?.selector.as_deref()?;
    (!selector.is_empty()).then_some(selector)
}

/// A new size of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rescale {
    pub(crate) replicas: i32,
    pub(crate) reason: String,
}

/// A Warning event: reason and message.
pub(crate) type Warning = (&'static str, String);

/// The result of the metrics.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MetricsOutcome {
    pub(crate) rescale: Option<Rescale>,
    pub(crate) metrics: Vec<MetricStatus>,
    pub(crate) warnings: Vec<Warning>,
    /// The metrics give no replica count.
    pub(crate) failed: bool,
}

/// Evaluates all metrics; the largest count wins. A metric that fails never lets the target
/// shrink.
pub(crate) fn by_metrics(
    spec: &HorizontalPodAutoscalerSpec,
    pods: &TargetPods<'_>,
    history: &mut ScaleHistory,
    status: &mut StatusDraft,
) -> MetricsOutcome {
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    let (mut statuses, mut failures, mut best) = (Vec::new(), Vec::new(), None::<(i32, String)>);
    for metric in metrics {
        match evaluate(metric, pods) {
            Ok(proposal) => {
                statuses.push(proposal.status);
                if best.as_ref().is_none_or(|(count, _)| proposal.replicas > *count) {
                    best = Some((proposal.replicas, proposal.name));
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    let mut warnings: Vec<Warning> =
        failures.iter().map(|own| (own.reason, own.message.clone())).collect();
    let usable = best.filter(|(count, _)| failures.is_empty() || *count >= pods.replicas);
    let Some((wanted, name)) = usable else {
        if let Some(first) = failures.first() {
            let message =
                format!("the HPA was unable to compute the replica count: {}", first.message);
            status.set("ScalingActive", false, first.reason, message);
            warnings.push(("FailedComputeMetricsReplicas", summary(&failures, metrics.len())));
        }
        return MetricsOutcome { metrics: statuses, warnings, failed: true, rescale: None };
    };
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    status.set("ScalingActive", true, "ValidMetricFound", message);
    let current = pods.replicas;
    let limits = ScaleLimits {
        current,
        min: min_replicas(spec),
        max: spec.max_replicas,
        behavior: spec.behavior.as_ref(),
        now: pods.now,
    };
    let limited = limit(wanted, limits, history);
    let (reason, message) =
        limited.stabilized.unwrap_or(("ReadyForNewScale", "recommended size matches current size"));
    status.set("AbleToScale", true, reason, message);
    status.set("ScalingLimited", limited.is_limited, limited.reason, limited.message);
    let reason = if wanted > current {
        format!("{name} above target")
    } else {
        "All metrics below target".to_owned()
    };
    let replicas = limited.replicas;
    let rescale = (replicas != current).then_some(Rescale { replicas, reason });
    MetricsOutcome { rescale, metrics: statuses, warnings, failed: false }
}

fn summary(failures: &[MetricFailure], total: usize) -> String {
    let first = failures.first().map_or("", |first| &first.summary);
    format!("invalid metrics ({} invalid out of {total}), first error is: {first}", failures.len())
}

/// The status of an autoscaler while it is worked out.
#[derive(Debug, Clone)]
pub(crate) struct StatusDraft {
    pub(crate) status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl StatusDraft {
    pub(crate) fn of(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let mut status = autoscaler.status.clone().unwrap_or_default();
        status.observed_generation = autoscaler.metadata.generation;
        Self { status, now }
    }

    pub(crate) fn set(
        &mut self,
        kind: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let value = if holds { "True" } else { "False" };
        let conditions = self.status.conditions.get_or_insert_default();
        let old = conditions.iter_mut().find(|own| own.type_ == kind);
        let since = old.as_ref().filter(|old| old.status == value);
        let since = since.and_then(|old| old.last_transition_time.clone());
        let new = HorizontalPodAutoscalerCondition {
            last_transition_time: Some(since.unwrap_or(Time(self.now))),
            message: Some(message.into()),
            observed_generation: None,
            reason: Some(reason.to_owned()),
            status: value.to_owned(),
            type_: kind.to_owned(),
        };
        match old {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }

    /// The counts and metrics that were found, without a change of the target.
    pub(crate) fn observed(&mut self, current: i32, metrics: Vec<MetricStatus>) {
        self.status.current_replicas = Some(current);
        self.status.current_metrics = (!metrics.is_empty()).then_some(metrics);
    }

    pub(crate) fn rescaled(&mut self, replicas: i32) {
        self.status.desired_replicas = replicas;
        self.status.last_scale_time = Some(Time(self.now));
    }
}

#[cfg(test)]
mod tests;
