//! A Job for each change of the policy of a node's processors: Harvester's clients wait for it.
//! Nothing runs in it. The agent of the node makes the change, and the status of the Job shows how
//! far that is.

use std::sync::Arc;

use hci::cpu_manager::{CpuPolicy, STATUS, is_requested, job_name};
use kube::Client;
use serde_json::{Value, json};

use crate::object::{annotation, is_deleting, is_merged, name, uid};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, is_refused};

const JOBS: Resource = Resource::new("batch", "v1", "jobs");
const NAMESPACE: &str = "harvester-system";
const NODE_LABEL: &str = "harvesterhci.io/cpu-manager-update-node";
const POLICY_LABEL: &str = "harvesterhci.io/cpu-manager-update-policy";

/// Every node that changes.
#[derive(Debug, Default)]
pub(crate) struct CpuManagerMapper;

impl EventMapper for CpuManagerMapper {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. } if NODES.is(kind) => {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct CpuManagerJobReconciler(Objects);

impl CpuManagerJobReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for CpuManagerJobReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, key: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(NODES, "", key).await.doing("get the node")?;
        let wanted = found.filter(|node| !is_deleting(node)).and_then(|node| job(&node));
        let Some((object, status)) = wanted else { return Ok(ReconcileResult::Done) };
        let own = name(&object).to_owned();
        let job = match self.0.get(JOBS, NAMESPACE, &own).await.doing("get the job")? {
            Some(job) => job,
            None => match self.0.create(JOBS, NAMESPACE, &object).await {
                // The namespace is not there yet, or another write came first.
                Err(failure) if is_refused(&failure, 404) || is_refused(&failure, 409) => {
                    return Ok(ReconcileResult::Retry);
                }
                created => created.doing("create the job")?,
            },
        };
        if is_merged(&job, &status) {
            return Ok(ReconcileResult::Done);
        }
        match self.0.merge_status(JOBS, NAMESPACE, &own, &status).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the status of the job"),
        }
    }
}

/// The Job of the policy that a node was asked for last, and the patch of its status; nothing if
/// the node was asked for none.
fn job(node: &Value) -> Option<(Value, Value)> {
    annotation(node, STATUS)?;
    let policy = CpuPolicy::of(node);
    let labels = json!({NODE_LABEL: name(node), POLICY_LABEL: policy.as_str()});
    let container = json!({"name": "update-cpu-manager", "image": "sheaf/none"});
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job_name(name(node), policy), "namespace": NAMESPACE, "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name(node), "uid": uid(node),
            }],
        },
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }},
    });
    let status = match is_requested(node) {
        true => json!({"active": 1, "succeeded": null}),
        false => json!({"active": null, "succeeded": 1}),
    };
    Some((object, json!({"status": status})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_job_is_active_until_the_agent_has_followed() {
        let fake = Fake::new();
        fake.add_kind("batch", "jobs", "Job");
        fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
        let request = CpuPolicy::None.request();
        let node = json!({"metadata": {"name": "one",
            "annotations": request["metadata"]["annotations"]}});
        fake.create("/nodes", "", node.clone());
        let reconciler = CpuManagerJobReconciler::new(fake.client());
        reconciler.reconcile(&"one".into()).await.unwrap();
        let job = || fake.get("batch/jobs", NAMESPACE, "update-cpu-manager-one-none").unwrap();
        assert_eq!(job()["status"]["active"], 1);
        let done = hci::cpu_manager::completed(&node).unwrap();
        let patch = json!({"metadata": {"annotations": {STATUS: done}}});
        fake.merge("/nodes", "", "one", &patch);
        reconciler.reconcile(&"one".into()).await.unwrap();
        assert_eq!(job()["status"], json!({"succeeded": 1}));
    }

    #[test]
    fn a_node_that_was_asked_for_nothing_has_no_job() {
        assert_eq!(job(&json!({"metadata": {"name": "one"}})), None);
    }
}
