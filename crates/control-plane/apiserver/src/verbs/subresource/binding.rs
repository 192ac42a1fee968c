//! `/pods/N/binding`: a scheduler assigns a pod to a node.

use base::clock;
use http::StatusCode;
use schema::FieldError;
use serde_json::{Value, json};

use crate::admission::{self, AdmissionOperation, Operation};
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::WriteOptions;
use crate::http::respond::HttpReply;
use crate::http::verb_result::VerbResult;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::update::{self, Proposal};

pub(super) async fn answer(call: &mut Call<'_>, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let binding = body::parse(call.headers, &bytes, Accepts::All)?.value;
    let name = object::name(&binding);
    if !name.is_empty() && name != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    check(&binding)?;
    let act = AdmissionOperation::new(Operation::Create, options.dry_run);
    admission::outside(call, &act, &mut Some(binding.clone()), None).await?;
    update::change(call, &options, Endpoint::Binding, |call, live| {
        let object = bound(live, &binding).map_err(|why| {
            let subject =
                StatusSubject { group: "", resource: "pods/binding", name: call.path.name };
            ApiError::conflict(subject, why)
        })?;
        Ok(Proposal { object, managers_done: false })
    })
    .await?;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(VerbResult::Status(StatusCode::CREATED, status).render(call))
}

fn check(binding: &Value) -> ApiResult<()> {
    let mut errors = Vec::new();
    let text = |field: &str| binding["target"][field].as_str().unwrap_or("");
    if !matches!(text("kind"), "" | "Node") {
        let supported = ["Node", "<empty>"];
        errors.push(FieldError::not_supported("target.kind", text("kind"), &supported));
    }
    if text("name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    match &errors[..] {
        [] => Ok(()),
        [one] => Err(ApiError::unclassified(one.to_string())),
        many => {
            let list: Vec<String> = many.iter().map(ToString::to_string).collect();
            Err(ApiError::unclassified(format!("[{}]", list.join(", "))))
        }
    }
}

/// Why a pod cannot be assigned to a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BindingError {
    #[error("pod {0} is being deleted, cannot be assigned to a host")]
    Deleting(String),
    #[error("pod {pod} is already assigned to node {node:?}")]
    Assigned { pod: String, node: String },
    #[error("pod {0} has non-empty .spec.schedulingGates")]
    Gated(String),
}

/// The pod on its node.
fn bound(live: &Value, binding: &Value) -> Result<Value, BindingError> {
    let (pod, node) = (object::name(live).to_owned(), &binding["target"]["name"]);
    if object::is_deleting(live) {
        return Err(BindingError::Deleting(pod));
    }
    if let Some(before) = live["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(BindingError::Assigned { pod, node: before.to_owned() });
    }
    if live["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(BindingError::Gated(pod));
    }
    let mut object = live.clone();
    object::set_meta(&mut object, "resourceVersion", None);
    object["spec"]["nodeName"] = node.clone();
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    let mut conditions = live["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": clock::now_rfc3339(),
    }));
    object["status"]["conditions"] = conditions.into();
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_placed_once() {
        let binding = json!({"target": {"name": "n"}});
        let pod = json!({"metadata": {"name": "p", "resourceVersion": "3"}, "spec": {}});
        let placed = bound(&pod, &binding).unwrap();
        assert_eq!(placed["spec"]["nodeName"], "n");
        assert_eq!(placed["status"]["conditions"][0]["type"], "PodScheduled");
        assert_eq!(
            bound(&placed, &binding).unwrap_err().to_string(),
            "pod p is already assigned to node \"n\""
        );
    }

    #[test]
    fn a_target_is_a_node() {
        assert!(check(&json!({"target": {"kind": "Node", "name": "n"}})).is_ok());
        assert!(check(&json!({"target": {"name": ""}})).is_err());
        assert!(check(&json!({"target": {"kind": "Pod", "name": "n"}})).is_err());
    }
}
