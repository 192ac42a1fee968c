//! How many replicas one metric asks for, from the usage of the target's pods: pure.
//!
//! The rules are those of kube-controller-manager: pods that start count as idle when they
//! would cause growth, and pods without a sample never cause a change in their direction.

mod usage;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HPAScalingRules, HorizontalPodAutoscalerBehavior, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use types::Quantity;

pub(crate) use self::usage::PodMetrics;
use self::usage::{Goal, MetricUsage, PodGroups, float, requests, samples};

/// How far the usage may be off its target without an effect.
const TOLERANCE: f64 = 0.1;

/// Why a metric gives no replica count. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetricError {
    #[error("unable to get metrics for resource {resource}: {cause}")]
    Fetch { resource: String, cause: String },
    #[error("No pods returned by selector while calculating replica count")]
    NoPods,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NotReady,
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    NoRequest { resource: String, container: String, pod: String },
    #[error("no metrics returned matched known pods")]
    NoMatch,
    #[error(
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
    )]
    NoTarget,
    #[error("metrics of type {kind} are not supported, only Resource and ContainerResource")]
    Unsupported { kind: String },
}

/// A failed metric, with what its condition and its event say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricFailure {
    pub(crate) reason: &'static str,
    /// The failure as the condition reports it.
    pub(crate) message: String,
    /// The failure as part of the list of metrics.
    pub(crate) summary: String,
}

/// The replica count that a metric proposes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricProposal {
    pub(crate) replicas: i32,
    pub(crate) name: String,
    pub(crate) status: MetricStatus,
}

/// The pods of a scale target.
#[derive(Debug)]
pub(crate) struct TargetPods<'a> {
    pub(crate) pods: &'a [Pod],
    /// The answer of the resource metrics API.
    pub(crate) metrics: Result<&'a [PodMetrics], &'a str>,
    pub(crate) replicas: i32,
    pub(crate) tolerance: Tolerance,
    pub(crate) now: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    up: f64,
    down: f64,
}

impl Tolerance {
    pub(crate) fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        let of = |rules: Option<&HPAScalingRules>| {
            let text = rules.and_then(|rules| rules.tolerance.as_ref());
            let quantity = text.and_then(|text| text.0.parse::<Quantity>().ok());
            quantity.map_or(TOLERANCE, |quantity| float(quantity.millis()) / 1000.0)
        };
        Self {
            up: of(behavior.and_then(|own| own.scale_up.as_ref())),
            down: of(behavior.and_then(|own| own.scale_down.as_ref())),
        }
    }

    fn contains(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// The replica count that one metric asks for.
pub(crate) fn evaluate(
    spec: &MetricSpec,
    of: &TargetPods<'_>,
) -> Result<MetricProposal, MetricFailure> {
    match (&spec.resource, &spec.container_resource) {
        (Some(source), _) if spec.type_ == "Resource" => {
            let found = resource(of, &source.name, None, &source.target);
            let (replicas, name, current) = found.map_err(|(doing, error)| {
                failure("FailedGetResourceMetric", doing, &source.name, "resource", &error)
            })?;
            let resource = Some(ResourceMetricStatus { current, name: source.name.clone() });
            let status = MetricStatus { resource, type_: spec.type_.clone(), ..Default::default() };
            Ok(MetricProposal { replicas, name, status })
        }
        (_, Some(source)) if spec.type_ == "ContainerResource" => {
            let found = resource(of, &source.name, Some(&source.container), &source.target);
            let (replicas, name, current) = found.map_err(|(doing, error)| {
                failure(
                    "FailedGetContainerResourceMetric",
                    doing,
                    &source.name,
                    "container",
                    &error,
                )
            })?;
            let container_resource = Some(ContainerResourceMetricStatus {
                container: source.container.clone(),
                current,
                name: source.name.clone(),
            });
            let type_ = spec.type_.clone();
            let status = MetricStatus { container_resource, type_, ..Default::default() };
            Ok(MetricProposal { replicas, name, status })
        }
        _ => {
            let reason = match spec.type_.as_str() {
                "Pods" => "FailedGetPodsMetric",
                "Object" => "FailedGetObjectMetric",
                "External" => "FailedGetExternalMetric",
                _ => "InvalidMetricSourceType",
            };
            let error = MetricError::Unsupported { kind: spec.type_.clone() }.to_string();
            Err(MetricFailure { reason, message: error.clone(), summary: error })
        }
    }
}

fn failure(
    reason: &'static str,
    doing: &str,
    resource: &str,
    source: &str,
    error: &MetricError,
) -> MetricFailure {
    let message = match error {
        MetricError::NoTarget => error.to_string(),
        _ => format!("failed to get {resource} {doing}: {error}"),
    };
    let summary = format!("failed to get {resource} {source} metric value: {message}");
    MetricFailure { reason, message, summary }
}

type Measured = (i32, String, MetricValueStatus);

fn resource(
    of: &TargetPods<'_>,
    name: &str,
    container: Option<&str>,
    target: &MetricTarget,
) -> Result<Measured, (&'static str, MetricError)> {
    let prefix = if container.is_some() { "container " } else { "" };
    if let Some(value) = &target.average_value {
        let goal = value.0.parse::<Quantity>().map_or(0, |value| value.millis());
        let measured = replicas(of, name, container, || Ok(Goal::Average(goal)));
        let (count, usage) = measured.map_err(|error| ("usage", error))?;
        let status =
            MetricValueStatus { average_value: Some(millis(usage.average)), ..Default::default() };
        return Ok((count, format!("{name} {prefix}resource"), status));
    }
    let Some(percent) = target.average_utilization else {
        return Err(("utilization", MetricError::NoTarget));
    };
    let goal = || {
        let requests = requests(of.pods, name, container)?;
        Ok(Goal::Utilization { percent, requests })
    };
    let measured = replicas(of, name, container, goal);
    let (count, usage) = measured.map_err(|error| ("utilization", error))?;
    let status = MetricValueStatus {
        average_utilization: usage.percent,
        average_value: Some(millis(usage.average)),
        ..Default::default()
    };
    Ok((count, format!("{name} {prefix}resource utilization (percentage of request)"), status))
}

fn millis(value: i64) -> QuantityText {
    QuantityText(Quantity::from_millis(value).to_string())
}

fn replicas(
    of: &TargetPods<'_>,
    resource: &str,
    container: Option<&str>,
    goal: impl FnOnce() -> Result<Goal, MetricError>,
) -> Result<(i32, MetricUsage), MetricError> {
    let fetch =
        |cause: &str| MetricError::Fetch { resource: resource.to_owned(), cause: cause.to_owned() };
    let metrics = of.metrics.map_err(fetch)?;
    let mut samples = samples(metrics, resource, container);
    if samples.is_empty() {
        return Err(fetch("no metrics returned from resource metrics API"));
    }
    if of.pods.is_empty() {
        return Err(MetricError::NoPods);
    }
    let groups = PodGroups::of(of, metrics, &samples, resource);
    samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if samples.is_empty() {
        return Err(MetricError::NotReady);
    }
    let goal = goal()?;
    let usage = goal.usage(&samples)?;
    let grows_beside_unready = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !grows_beside_unready && groups.missing.is_empty() {
        if of.tolerance.contains(usage.ratio) {
            return Ok((of.replicas, usage));
        }
        return Ok((ceil(usage.ratio, groups.ready), usage));
    }
    for pod in &groups.missing {
        if usage.ratio < 1.0 {
            samples.insert(pod, goal.fallback(pod));
        } else if usage.ratio > 1.0 {
            samples.insert(pod, 0);
        }
    }
    if grows_beside_unready {
        samples.extend(groups.unready.iter().map(|pod| (*pod, 0)));
    }
    let ratio = goal.usage(&samples)?.ratio;
    let reversed = (usage.ratio < 1.0 && ratio > 1.0) || (usage.ratio > 1.0 && ratio < 1.0);
    if of.tolerance.contains(ratio) || reversed {
        return Ok((of.replicas, usage));
    }
    let count = ceil(ratio, samples.len());
    let reversed = (ratio < 1.0 && count > of.replicas) || (ratio > 1.0 && count < of.replicas);
    Ok((if reversed { of.replicas } else { count }, usage))
}

/// Saturates; pods are counted in thousands.
fn ceil(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

#[cfg(test)]
mod tests;
