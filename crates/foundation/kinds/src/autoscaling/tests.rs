use serde_json::json;

use super::*;

fn full() -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": {"kept": "yes"}},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"type": "Pods", "pods": {
                    "metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}},
                    "target": {"type": "AverageValue", "averageValue": "10"},
                }},
                {"type": "External", "external": {
                    "metric": {"name": "queue"},
                    "target": {"type": "Value", "value": "30"},
                }},
                {"type": "Resource", "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 60},
                }},
            ],
            "behavior": {"scaleDown": {
                "selectPolicy": "Max",
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            }},
        },
        "status": {
            "currentReplicas": 2,
            "currentMetrics": [
                {"type": "Pods", "pods": {
                    "metric": {"name": "rps"}, "current": {"averageValue": "7"},
                }},
                {"type": "External", "external": {
                    "metric": {"name": "queue"}, "current": {"value": "3"},
                }},
                {"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageUtilization": 41, "averageValue": "100m"},
                }},
            ],
            "conditions": [{"type": "AbleToScale", "status": "True"}],
        },
    })
}

#[test]
fn v1_carries_what_it_cannot_say_in_annotations() {
    let mut object = full();
    v1::from_storage(&mut object);
    assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 41);
    assert!(object["spec"].get("metrics").is_none());
    let annotations = &object["metadata"]["annotations"];
    let show = |name: &str| {
        annotations[format!("autoscaling.alpha.kubernetes.io/{name}")].as_str().unwrap().to_owned()
    };
    expect_test::expect![[r#"[{"pods":{"metricName":"rps","selector":{"matchLabels":{"a":"b"}},"targetAverageValue":"10"},"type":"Pods"},{"external":{"metricName":"queue","targetValue":"30"},"type":"External"}]"#]].assert_eq(&show("metrics"));
    expect_test::expect![[r#"{"ScaleDown":{"Policies":[{"PeriodSeconds":15,"Type":"Percent","Value":100}],"SelectPolicy":"Max"}}"#]].assert_eq(&show("behavior"));
}

#[test]
fn nothing_is_lost_on_the_way_to_v1_and_back() {
    let mut object = full();
    v1::from_storage(&mut object);
    v1::to_storage(&mut object);
    assert_eq!(object, full());
}

#[test]
fn a_v1_object_without_a_goal_gets_the_usual_one() {
    let object = json!({"spec": {"maxReplicas": 3}});
    assert_eq!(v1::to_v2(&object)["spec"]["metrics"], json!([default_metric()]));
}

#[test]
fn goals_are_shown_with_what_is_measured() {
    assert_eq!(metrics(&full()), "7/10, 3/30 + 1 more...");
}
