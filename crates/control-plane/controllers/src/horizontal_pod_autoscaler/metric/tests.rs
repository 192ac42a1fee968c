use k8s_openapi::api::autoscaling::v2::MetricSpec;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-16T12:00:00Z";

/// A pod that has been ready for long, unless the arguments differ.
fn pod(name: &str, phase: &str, ready: &str, since: &str) -> Pod {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "compute",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": phase, "startTime": since, "conditions": [condition]}});
    serde_json::from_value(pod).unwrap()
}

fn running(name: &str) -> Pod {
    pod(name, "Running", "True", "2026-11-16T10:00:00Z")
}

fn used(name: &str, cpu: &str) -> PodMetrics {
    serde_json::from_value(json!({"metadata": {"name": name}, "timestamp": NOW,
        "window": "15.5s", "containers": [{"name": "compute",
            "usage": {"cpu": cpu, "memory": "512Mi"}}]}))
    .unwrap()
}

fn metric(source: Value) -> MetricSpec {
    serde_json::from_value(source).unwrap()
}

fn cpu(percent: i32) -> MetricSpec {
    metric(json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}}))
}

fn proposal(
    spec: &MetricSpec,
    pods: &[Pod],
    metrics: Result<&[PodMetrics], &str>,
) -> Result<MetricProposal, MetricFailure> {
    let replicas = i32::try_from(pods.len()).unwrap();
    let now = NOW.parse().unwrap();
    let tolerance = Tolerance::of(None);
    evaluate(spec, &TargetPods { pods, metrics, replicas, tolerance, now })
}

#[test]
fn replicas_follow_the_mean_utilization() {
    let pods = [running("a"), running("b")];
    for (usage, expected) in [
        (["500m", "500m"], 2),
        (["540m", "540m"], 2), // within the tolerance
        (["900m", "700m"], 4),
        (["100m", "100m"], 1),
        (["0", "0"], 0),
    ] {
        let metrics = [used("a", usage[0]), used("b", usage[1])];
        let found = proposal(&cpu(50), &pods, Ok(&metrics)).unwrap();
        assert_eq!(found.replicas, expected, "{usage:?}");
    }
    let metrics = [used("a", "900m"), used("b", "700m")];
    let found = proposal(&cpu(50), &pods, Ok(&metrics)).unwrap();
    assert_eq!(found.name, "cpu resource utilization (percentage of request)");
    let current = found.status.resource.unwrap().current;
    assert_eq!(current.average_utilization, Some(80));
    assert_eq!(current.average_value.unwrap().0, "800m");
}

#[test]
fn replicas_follow_the_mean_value() {
    let pods = [running("a"), running("b")];
    let metrics = [used("a", "1"), used("b", "1")];
    let of = |target: Value| {
        let spec = metric(json!({"type": "Resource", "resource": {"name": "memory",
            "target": target}}));
        proposal(&spec, &pods, Ok(&metrics))
    };
    let found = of(json!({"type": "AverageValue", "averageValue": "256Mi"})).unwrap();
    assert_eq!((found.replicas, found.name.as_str()), (4, "memory resource"));
    let failed = of(json!({"type": "Utilization"})).unwrap_err();
    assert!(failed.message.starts_with("invalid resource metric source"), "{failed:?}");
}

#[test]
fn a_container_is_measured_alone() {
    let spec = |container: &str| {
        metric(json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
            "container": container, "target": {"type": "Utilization", "averageUtilization": 50}}}))
    };
    let (pods, metrics) = ([running("a")], [used("a", "1")]);
    let found = proposal(&spec("compute"), &pods, Ok(&metrics)).unwrap();
    assert_eq!(found.replicas, 2);
    assert_eq!(found.name, "cpu container resource utilization (percentage of request)");
    let failed = proposal(&spec("other"), &pods, Ok(&metrics)).unwrap_err();
    assert_eq!(failed.reason, "FailedGetContainerResourceMetric");
}

#[test]
fn pods_without_a_sample_are_assumed_to_need_no_change() {
    let pods = [running("a"), running("b"), running("c")];
    // Growth: the missing ones count as idle.
    let found = proposal(&cpu(50), &pods, Ok(&[used("a", "1800m")])).unwrap();
    assert_eq!(found.replicas, 4);
    // Shrinkage: the missing ones count as fully used.
    let metrics = [used("a", "10m"), used("b", "10m")];
    let found = proposal(&cpu(50), &pods, Ok(&metrics)).unwrap();
    assert_eq!(found.replicas, 3, "a full use of the third reaches the target");
}

#[test]
fn pods_that_start_count_as_idle_and_dying_ones_not_at_all() {
    let starting = pod("b", "Running", "False", "2026-11-16T11:59:00Z");
    let metrics = [used("a", "1800m"), used("b", "1")];
    let found = proposal(&cpu(50), &[running("a"), starting.clone()], Ok(&metrics)).unwrap();
    assert_eq!(found.replicas, 4);
    let mut dying = running("b");
    dying.metadata.deletion_timestamp = dying.status.as_ref().unwrap().start_time.clone();
    let found = proposal(&cpu(50), &[running("a"), dying], Ok(&metrics)).unwrap();
    assert_eq!(found.replicas, 4, "as if there were one");
    let failed = proposal(&cpu(50), &[starting], Ok(&[used("b", "1")])).unwrap_err();
    assert!(failed.message.contains("pods might be unready"), "{failed:?}");
}

#[test]
fn failures_have_the_texts_of_upstream() {
    let pods = [running("a")];
    let mut bare = running("a");
    bare.spec.as_mut().unwrap().containers[0].resources = None;
    let metrics = [used("a", "1")];
    let other = metric(json!({"type": "External", "external": {"metric": {"name": "m"},
        "target": {"type": "Value", "value": "1"}}}));
    let gone = "unable to fetch metrics from resource metrics API: the server could not find \
        the requested resource";
    for (spec, pods, metrics, reason, message) in [
        (
            &cpu(50),
            &pods[..],
            Err(gone),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable to \
             fetch metrics from resource metrics API: the server could not find the requested \
             resource",
        ),
        (
            &cpu(50),
            &pods[..],
            Ok(&[][..]),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics \
             returned from resource metrics API",
        ),
        (
            &cpu(50),
            &[][..],
            Ok(&metrics[..]),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: No pods returned by selector while calculating \
             replica count",
        ),
        (
            &cpu(50),
            std::slice::from_ref(&bare),
            Ok(&metrics[..]),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: missing request for cpu in container compute of \
             Pod a",
        ),
        (
            &other,
            &pods[..],
            Ok(&metrics[..]),
            "FailedGetExternalMetric",
            "metrics of type External are not supported, only Resource and ContainerResource",
        ),
    ] {
        let failed = proposal(spec, pods, metrics).unwrap_err();
        assert_eq!((failed.reason, failed.message.as_str()), (reason, message));
    }
}
