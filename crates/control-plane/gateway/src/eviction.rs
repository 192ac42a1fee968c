//! Evictions of launcher pods: asks the eviction strategy of the instance, and marks an
//! instance that has to leave its node.

use http::StatusCode;
use serde_json::{Value, json};
use virt::ClusterConfig;
use virt::eviction::{
    Decision, SOURCE_ANNOTATION, WEBHOOK, decide, instance_of, is_active_launcher,
};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::ObjectRoute;
use crate::{Gateway, GatewayRequest, instance, objects};

/// How the descheduler names itself in the evictions that it requests.
const DESCHEDULER: &str = "sigs.k8s.io/descheduler";
const KUBEVIRTS: &str = "/apis/kubevirt.io/v1/kubevirts";

/// Whether an eviction is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionMode {
    Real,
    /// Nothing may be changed.
    DryRun,
}

/// Why a pod must not be evicted now, as the message of KubeVirt's webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvictionError {
    #[error("admission webhook \"{WEBHOOK}\" denied the request: {0}")]
    Denied(String),
    #[error(
        "admission webhook \"{WEBHOOK}\" denied the request: kubevirt failed {action} the vmi: {message}"
    )]
    Failed { action: &'static str, message: String },
}

/// Asks the eviction strategy of the instance that runs in a pod.
pub(crate) async fn review(
    gateway: &Gateway,
    pod: &Value,
    eviction: &Value,
    mode: EvictionMode,
) -> Result<(), EvictionError> {
    if !is_active_launcher(pod) {
        return Ok(());
    }
    let Some(name) = instance_of(pod) else { return Ok(()) };
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let at = ObjectRoute { namespace: namespace.to_owned(), name: name.to_owned() };
    let failed =
        |action, failure: GatewayError| EvictionError::Failed { action, message: failure.message };
    let path = objects::instance_path(&at);
    let vmi = objects::find(&gateway.client, &path).await.map_err(|own| failed("getting", own))?;
    let Some(vmi) = vmi else { return Ok(()) };
    let kubevirts = objects::find(&gateway.client, KUBEVIRTS).await;
    let kubevirts = kubevirts.map_err(|own| failed("getting", own))?.unwrap_or_default();
    let config = ClusterConfig::new(&kubevirts["items"][0], virt::ARCHITECTURE);
    match decide(&vmi, pod, &config) {
        Decision::Allow => Ok(()),
        Decision::Deny(why) => Err(EvictionError::Denied(why)),
        Decision::Evacuate(why) => {
            if mode == EvictionMode::Real {
                let marked = objects::merge(&gateway.client, &path, &mark(pod, eviction)).await;
                marked.map_err(|own| failed("marking", own))?;
            }
            Err(EvictionError::Denied(why))
        }
    }
}

/// Takes the mark of an evacuation back, if it names the node that the caller means.
pub(crate) async fn cancel(
    gateway: &Gateway,
    at: &ObjectRoute,
    asked: GatewayRequest,
) -> GatewayResult {
    let body = instance::read(asked.body).await?;
    let vmi = objects::instance(&gateway.client, at).await?;
    if vmi["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty() {
        return Ok(answer::empty(StatusCode::OK));
    }
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(GatewayError::bad_request("No body"));
    }
    let options = instance::options(&body)?;
    let node = options["evacuationNodeName"].as_str().unwrap_or_default();
    let path = objects::instance_path(at);
    let query = if instance::is_dry_run(&options) { "?dryRun=All" } else { "" };
    let patched = objects::patch(&gateway.client, &format!("{path}{query}"), &unmark(node)).await;
    // Upstream answers a name that does not fit with 500, too.
    patched.map_err(|failure| GatewayError::internal(failure.message))?;
    Ok(answer::empty(StatusCode::OK))
}

fn unmark(node: &str) -> Value {
    json!([
        {"op": "test", "path": "/status/evacuationNodeName", "value": node},
        {"op": "remove", "path": "/status/evacuationNodeName"},
    ])
}

/// The merge patch that marks an instance for evacuation.
fn mark(pod: &Value, eviction: &Value) -> Value {
    let mut patch = json!({"status": {"evacuationNodeName": pod["spec"]["nodeName"]}});
    if eviction["metadata"]["annotations"]["requested-by"] == DESCHEDULER {
        patch["metadata"] = json!({"annotations": {SOURCE_ANNOTATION: "descheduler"}});
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_names_the_node_and_the_descheduler() {
        let pod = json!({"spec": {"nodeName": "one"}});
        let plain = json!({"status": {"evacuationNodeName": "one"}});
        assert_eq!(mark(&pod, &json!({})), plain);
        let eviction = json!({"metadata": {"annotations": {"requested-by": DESCHEDULER}}});
        let marked = mark(&pod, &eviction);
        assert_eq!(marked["metadata"]["annotations"][SOURCE_ANNOTATION], "descheduler");
    }
}
