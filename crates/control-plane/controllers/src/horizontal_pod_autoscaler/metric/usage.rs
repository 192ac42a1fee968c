//! The ratio of the usage of pods to its target, from `metrics.k8s.io` and the requests of the
//! pods, with the rules of kube-controller-manager for unready pods and missing metrics. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use types::Quantity;

use super::{MetricError, TargetPods};

/// How long after its start the CPU usage of a pod is not representative.
const CPU_INITIALIZATION_PERIOD: SignedDuration = SignedDuration::from_mins(5);
/// A pod that became unready this soon after its start has never been ready.
const INITIAL_READINESS_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// An item of a `PodMetricsList` of `metrics.k8s.io`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PodMetrics {
    pub(crate) metadata: ObjectMeta,
    pub(crate) timestamp: Time,
    pub(crate) window: String,
    #[serde(default)]
    pub(crate) containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ContainerMetrics {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) usage: BTreeMap<String, QuantityText>,
}

/// The target of the mean usage.
pub(super) enum Goal {
    /// In thousandths, per pod.
    Average(i64),
    /// Percent of what pods request, in thousandths.
    Utilization { percent: i32, requests: BTreeMap<String, i64> },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MetricUsage {
    /// Usage divided by the goal.
    pub(super) ratio: f64,
    pub(super) percent: Option<i32>,
    pub(super) average: i64,
}

impl Goal {
    pub(super) fn usage(&self, samples: &BTreeMap<&str, i64>) -> Result<MetricUsage, MetricError> {
        match self {
            Self::Average(goal) => {
                let count = i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
                let average = samples.values().sum::<i64>() / count;
                Ok(MetricUsage {
                    ratio: float(average) / float(*goal).max(1.0),
                    percent: None,
                    average,
                })
            }
            Self::Utilization { percent, requests } => {
                let known = samples.iter().filter_map(|(pod, used)| {
                    requests.get(*pod).map(|requested| (*used, *requested))
                });
                let (count, used, requested) = known
                    .fold((0_i64, 0_i64, 0_i64), |(count, used, requested), own| {
                        (count + 1, used + own.0, requested + own.1)
                    });
                if requested == 0 {
                    return Err(MetricError::NoMatch);
                }
                let current = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
                Ok(MetricUsage {
                    ratio: f64::from(current) / f64::from(*percent),
                    percent: Some(current),
                    average: used / count.max(1),
                })
            }
        }
    }

    /// The assumed usage of a pod without a sample when the target would shrink.
    pub(super) fn fallback(&self, pod: &str) -> i64 {
        match self {
            Self::Average(goal) => *goal,
            Self::Utilization { percent, requests } => {
                let requested = requests.get(pod).copied().unwrap_or_default();
                requested * i64::from((*percent).max(100)) / 100
            }
        }
    }
}

/// Usage in thousandths, by pod.
pub(super) fn samples<'a>(
    metrics: &'a [PodMetrics],
    resource: &str,
    container: Option<&str>,
) -> BTreeMap<&'a str, i64> {
    let sample = |own: &'a PodMetrics| {
        let containers =
            own.containers.iter().filter(|own| container.is_none_or(|wanted| wanted == own.name));
        let values: Option<Vec<i64>> = containers
            .map(|own| Some(own.usage.get(resource)?.0.parse::<Quantity>().ok()?.millis()))
            .collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some((own.metadata.name.as_deref()?, values.iter().sum()))
    };
    metrics.iter().filter_map(sample).collect()
}

pub(super) fn requests(
    pods: &[Pod],
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, i64>, MetricError> {
    let mut found = BTreeMap::new();
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut total = 0;
        for own in containers.filter(|own| container.is_none_or(|wanted| wanted == own.name)) {
            let requests = own.resources.as_ref().and_then(|own| own.requests.as_ref());
            let text = requests.and_then(|requests| requests.get(resource));
            let Some(value) = text.and_then(|text| text.0.parse::<Quantity>().ok()) else {
                let (resource, container) = (resource.to_owned(), own.name.clone());
                return Err(MetricError::NoRequest { resource, container, pod: name });
            };
            total += value.millis();
        }
        found.insert(name, total);
    }
    Ok(found)
}

#[derive(Debug, Default)]
pub(super) struct PodGroups<'a> {
    pub(super) ready: usize,
    pub(super) unready: BTreeSet<&'a str>,
    pub(super) missing: BTreeSet<&'a str>,
    pub(super) ignored: BTreeSet<&'a str>,
}

impl<'a> PodGroups<'a> {
    pub(super) fn of(
        of: &TargetPods<'a>,
        metrics: &[PodMetrics],
        samples: &BTreeMap<&str, i64>,
        resource: &str,
    ) -> Self {
        let mut groups = Self::default();
        for pod in of.pods {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let sampled = || metrics.iter().find(|own| own.metadata.name.as_deref() == Some(name));
            if pod.metadata.deletion_timestamp.is_some() || phase == Some("Failed") {
                groups.ignored.insert(name);
            } else if phase == Some("Pending") {
                groups.unready.insert(name);
            } else if !samples.contains_key(name) {
                groups.missing.insert(name);
            } else if resource == "cpu" && sampled().is_some_and(|own| is_unready(pod, own, of.now))
            {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        }
        groups
    }
}

/// Whether the CPU usage of a pod is not representative yet.
fn is_unready(pod: &Pod, metrics: &PodMetrics, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|own| own.type_ == "Ready"));
    let started = status.and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(started)) = (ready, started) else { return true };
    let changed = |own: &PodCondition| own.last_transition_time.as_ref().map(|time| time.0);
    let changed = changed(ready).unwrap_or(Timestamp::UNIX_EPOCH);
    let is_false = ready.status == "False";
    if now.duration_since(started.0) < CPU_INITIALIZATION_PERIOD {
        let window = metrics.window.parse().unwrap_or(SignedDuration::from_mins(1));
        is_false || metrics.timestamp.0.duration_since(changed) < window
    } else {
        is_false && changed.duration_since(started.0) < INITIAL_READINESS_DELAY
    }
}

/// Exact for amounts below 2^53 thousandths.
pub(super) fn float(value: i64) -> f64 {
    value as f64
}
