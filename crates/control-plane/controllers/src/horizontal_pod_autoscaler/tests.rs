use serde_json::{Value, json};

use super::*;
use crate::fake::Fake;

const HPA: &str = "autoscaling/horizontalpodautoscalers";
const SET: &str = "kubevirt.io/virtualmachineinstancereplicasets";

/// An autoscaler of 2 to 5 replicas for a set, and its reconciler.
async fn cluster(replicas: i64) -> (Fake, AutoscalerReconciler) {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": replicas, "template": {}},
        "status": {"replicas": replicas, "selector": "app=a"}});
    fake.create(SET, "n", set);
    let target = json!({"apiVersion": "kubevirt.io/v1", "kind": "Set", "name": "s"});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let spec = json!({"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": target,
        "metrics": [metric]});
    fake.create(HPA, "n", json!({"metadata": {"name": "h"}, "spec": spec}));
    let catalog = client::discover(&fake.client()).await.unwrap();
    let reconciler = AutoscalerReconciler::new(fake.client(), watch::channel(Arc::new(catalog)).1);
    (fake, reconciler)
}

fn status(fake: &Fake) -> Value {
    fake.get(HPA, "n", "h").unwrap()["status"].clone()
}

fn condition(status: &Value, kind: &str) -> Value {
    let found = status["conditions"].as_array().unwrap().iter().find(|own| own["type"] == kind);
    found.cloned().unwrap()
}

fn has_event(fake: &Fake, reason: &str, message: &str) -> bool {
    fake.any("/events", |event| event["reason"] == reason && event["message"] == message)
}

#[tokio::test(start_paused = true)]
async fn a_target_below_its_bounds_is_scaled_and_reported() {
    let (fake, reconciler) = cluster(1).await;
    let key = ObjectKey::new("n", "h");
    let result = reconciler.reconcile(&key).await.unwrap();
    assert_eq!(result, ReconcileResult::Again(SYNC_PERIOD));
    let set = fake.get(SET, "n", "s").unwrap();
    assert_eq!(set["spec"], json!({"replicas": 2, "template": {}}));
    let found = status(&fake);
    assert_eq!((&found["currentReplicas"], &found["desiredReplicas"]), (&json!(1), &json!(2)));
    assert!(found["lastScaleTime"].is_string());
    assert_eq!(condition(&found, "AbleToScale")["reason"], "SucceededRescale");
    let message = "New size: 2; reason: Current number of replicas below Spec.MinReplicas";
    assert!(has_event(&fake, "SuccessfulRescale", message));
}

#[tokio::test(start_paused = true)]
async fn without_metrics_the_size_stays_and_the_condition_says_why() {
    let (fake, reconciler) = cluster(3).await;
    let key = ObjectKey::new("n", "h");
    reconciler.reconcile(&key).await.unwrap();
    assert_eq!(fake.get(SET, "n", "s").unwrap()["spec"]["replicas"], 3);
    let active = condition(&status(&fake), "ScalingActive");
    assert_eq!(
        (&active["status"], &active["reason"]),
        (&json!("False"), &json!("FailedGetResourceMetric"))
    );
    assert!(active["message"].as_str().unwrap().starts_with(
        "the HPA was unable to compute the replica count: failed to get cpu utilization: "
    ));
    // The write of the status brings the autoscaler back, and metrics are not read again.
    let result = reconciler.reconcile(&key).await.unwrap();
    assert!(matches!(result, ReconcileResult::Again(left) if left <= SYNC_PERIOD));
    fake.merge(SET, "n", "s", &json!({"spec": {"replicas": 0}}));
    fake.merge(HPA, "n", "h", &json!({"spec": {"maxReplicas": 4}}));
    reconciler.reconcile(&key).await.unwrap();
    assert_eq!(condition(&status(&fake), "ScalingActive")["reason"], "ScalingDisabled");
    assert_eq!(status(&fake)["desiredReplicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_exist_is_reported() {
    let (fake, reconciler) = cluster(1).await;
    let key = ObjectKey::new("n", "h");
    fake.merge(HPA, "n", "h", &json!({"spec": {"scaleTargetRef": {"kind": "Thing"}}}));
    reconciler.reconcile(&key).await.unwrap();
    let able = condition(&status(&fake), "AbleToScale");
    assert_eq!((&able["status"], &able["reason"]), (&json!("False"), &json!("FailedGetScale")));
    assert!(has_event(
        &fake,
        "FailedGetScale",
        "no matches for kind \"Thing\" in group \"kubevirt.io\""
    ));
    fake.delete(HPA, "n", "h", "Background");
    assert_eq!(reconciler.reconcile(&key).await.unwrap(), ReconcileResult::Done);
    assert!(reconciler.records().is_empty());
}
