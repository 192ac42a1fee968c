use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::horizontal_pod_autoscaler::metric::{PodMetrics, Tolerance};

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn spec(min: i32, max: i32, metrics: Value) -> HorizontalPodAutoscalerSpec {
    serde_json::from_value(json!({"minReplicas": min, "maxReplicas": max, "metrics": metrics,
        "scaleTargetRef": {"apiVersion": "kubevirt.io/v1", "name": "s",
            "kind": "VirtualMachineInstanceReplicaSet"}}))
    .unwrap()
}

fn cpu(percent: i32) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn external() -> Value {
    json!({"type": "External", "external": {"metric": {"name": "m"},
        "target": {"type": "Value", "value": "1"}}})
}

/// The outcome and the conditions for pods that use `usage` of one CPU each.
fn outcome(spec: &HorizontalPodAutoscalerSpec, usage: &[&str]) -> (MetricsOutcome, StatusDraft) {
    let since = "2026-11-16T10:00:00Z";
    let name = |index: usize| format!("p{index}");
    let pod = |index: usize| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name(index)},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "startTime": since, "conditions":
                [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}}))
        .unwrap()
    };
    let used = |(index, cpu): (usize, &&str)| -> PodMetrics {
        serde_json::from_value(json!({"metadata": {"name": name(index)}, "timestamp": now(),
            "window": "1s", "containers": [{"name": "c", "usage": {"cpu": cpu}}]}))
        .unwrap()
    };
    let pods: Vec<Pod> = (0..usage.len()).map(pod).collect();
    let metrics: Vec<PodMetrics> = usage.iter().enumerate().map(used).collect();
    let pods = TargetPods {
        pods: &pods,
        metrics: Ok(&metrics),
        replicas: i32::try_from(usage.len()).unwrap(),
        tolerance: Tolerance::of(None),
        now: now(),
    };
    let mut status = StatusDraft::of(&HorizontalPodAutoscaler::default(), now());
    let outcome = by_metrics(spec, &pods, &mut ScaleHistory::default(), &mut status);
    (outcome, status)
}

fn condition(draft: &StatusDraft, kind: &str) -> (String, String) {
    let conditions = draft.status.conditions.as_deref().unwrap_or_default();
    let found = conditions.iter().find(|own| own.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone().unwrap())
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn bounds_come_before_metrics() {
    let below = "Current number of replicas below Spec.MinReplicas";
    let above = "Current number of replicas above Spec.MaxReplicas";
    for (min, max, current, expected) in [
        (2, 5, 1, SizeRule::Bound(2, below)),
        (2, 5, 6, SizeRule::Bound(5, above)),
        (2, 5, 0, SizeRule::Disabled),
        (2, 5, 2, SizeRule::Metrics),
        (2, 5, 5, SizeRule::Metrics),
    ] {
        assert_eq!(size_rule(&spec(min, max, json!([])), current), expected);
    }
}

#[test]
fn the_largest_count_wins() {
    let wanted = spec(1, 10, json!([cpu(50), cpu(25)]));
    let (outcome, status) = outcome(&wanted, &["600m", "400m"]);
    let reason = "cpu resource utilization (percentage of request) above target".to_owned();
    assert_eq!(outcome.rescale, Some(Rescale { replicas: 4, reason }));
    assert_eq!(outcome.metrics.len(), 2);
    assert_eq!(condition(&status, "ScalingActive"), pair("True", "ValidMetricFound"));
    assert_eq!(condition(&status, "ScalingLimited"), pair("False", "DesiredWithinRange"));
}

#[test]
fn a_count_beyond_the_bounds_is_limited() {
    let (outcome, status) = outcome(&spec(1, 3, json!([cpu(10)])), &["900m", "900m"]);
    assert_eq!(outcome.rescale.unwrap().replicas, 3);
    assert_eq!(condition(&status, "ScalingLimited"), pair("True", "TooManyReplicas"));
}

#[test]
fn a_failed_metric_allows_growth_only() {
    let wanted = spec(1, 10, json!([cpu(50), external()]));
    let (grown, _) = outcome(&wanted, &["900m"]);
    assert_eq!(grown.rescale.unwrap().replicas, 2);
    let (kept, status) = outcome(&wanted, &["10m", "10m", "10m"]);
    assert!(kept.failed && kept.rescale.is_none());
    assert_eq!(condition(&status, "ScalingActive"), pair("False", "FailedGetExternalMetric"));
    let reasons: Vec<&str> = kept.warnings.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["FailedGetExternalMetric", "FailedComputeMetricsReplicas"]);
    assert!(kept.warnings[1].1.starts_with("invalid metrics (1 invalid out of 2), first error"));
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let mut draft = StatusDraft::of(&HorizontalPodAutoscaler::default(), now());
    draft.set("AbleToScale", true, "SucceededGetScale", "a");
    let mut later = StatusDraft { now: "2026-11-16T13:00:00Z".parse().unwrap(), ..draft };
    later.set("AbleToScale", true, "ReadyForNewScale", "b");
    let time = |draft: &StatusDraft| {
        draft.status.conditions.as_ref().unwrap()[0].last_transition_time.clone().unwrap().0
    };
    assert_eq!(
        (time(&later), condition(&later, "AbleToScale").1.as_str()),
        (now(), "ReadyForNewScale")
    );
    later.set("AbleToScale", false, "FailedGetScale", "c");
    assert_ne!(time(&later), now());
}
