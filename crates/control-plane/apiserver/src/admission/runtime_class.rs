//! A pod names its RuntimeClass: the class must exist, and its overhead and scheduling fields are
//! copied into the pod.

use serde_json::{Map, Value, json};

use super::Operation;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

const TABLE: &str = "runtimeclasses";

pub(super) fn mutate(call: &Call<'_>, operation: Operation, pod: &mut Value) -> ApiResult<()> {
    if operation != Operation::Create {
        return Ok(());
    }
    let class = match pod["spec"]["runtimeClassName"].as_str() {
        None | Some("") => json!({}),
        Some(name) => match call.api.store.get(TABLE, name) {
            Some(entry) => entry.item.to_value(),
            None => {
                let error = RuntimeClassError::NotFound(name.to_owned());
                return Err(forbidden(call, pod, &error));
            }
        },
    };
    complete(pod, &class).map_err(|error| forbidden(call, pod, &error))
}

/// Why a pod and its class do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RuntimeClassError {
    #[error("pod rejected: RuntimeClass {0:?} not found")]
    NotFound(String),
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    OtherOverhead,
    #[error("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
    OwnOverhead,
    #[error(
        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {class}; pod.spec.nodeSelector[{key}] = {pod}"
    )]
    NodeSelector { key: String, class: String, pod: String },
}

fn forbidden(call: &Call<'_>, pod: &Value, error: &RuntimeClassError) -> ApiError {
    ApiError::forbidden_because(call.served.subject(object::name(pod)), error)
}

/// Copies what the class adds to its pods.
fn complete(pod: &mut Value, class: &Value) -> Result<(), RuntimeClassError> {
    let fixed = class["overhead"].get("podFixed").filter(|fixed| !is_empty(fixed));
    match (pod["spec"].get("overhead").filter(|own| !is_empty(own)), fixed) {
        (Some(own), Some(fixed)) if own != fixed => {
            return Err(RuntimeClassError::OtherOverhead);
        }
        (Some(_), None) => return Err(RuntimeClassError::OwnOverhead),
        (None, Some(fixed)) => pod["spec"]["overhead"] = fixed.clone(),
        (Some(_), Some(_)) | (None, None) => {}
    }
    place(pod, &class["scheduling"])
}

fn place(pod: &mut Value, scheduling: &Value) -> Result<(), RuntimeClassError> {
    if let Some(labels) = scheduling["nodeSelector"].as_object().filter(|map| !map.is_empty()) {
        if !pod["spec"]["nodeSelector"].is_object() {
            pod["spec"]["nodeSelector"] = Value::Object(Map::new());
        }
        for (key, value) in labels {
            let own = &mut pod["spec"]["nodeSelector"][key];
            if !own.is_null() && own != value {
                let (class, pod) = (text(value).to_owned(), text(own).to_owned());
                return Err(RuntimeClassError::NodeSelector { key: key.clone(), class, pod });
            }
            *own = value.clone();
        }
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        if !pod["spec"]["tolerations"].is_array() {
            pod["spec"]["tolerations"] = json!([]);
        }
        if let Some(own) = pod["spec"]["tolerations"].as_array_mut()
            && !own.contains(toleration)
        {
            own.push(toleration.clone());
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_none_or(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_takes_over_what_its_class_says() {
        let class = json!({
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "k"}]},
        });
        let mut pod = json!({"spec": {"nodeSelector": {"zone": "a"}}});
        complete(&mut pod, &class).unwrap();
        let expected = json!({"spec": {
            "overhead": {"cpu": "250m"},
            "nodeSelector": {"disk": "fast", "zone": "a"},
            "tolerations": [{"key": "k"}],
        }});
        assert_eq!(pod, expected);
        complete(&mut pod, &class).unwrap();
        assert_eq!(pod, expected);
    }

    #[test]
    fn a_pod_may_not_contradict_its_class() {
        for (pod, class, why) in [
            (
                json!({"spec": {"overhead": {"cpu": "1"}}}),
                json!({}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"spec": {"overhead": {"cpu": "1"}}}),
                json!({"overhead": {"podFixed": {"cpu": "2"}}}),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"spec": {"nodeSelector": {"disk": "slow"}}}),
                json!({"scheduling": {"nodeSelector": {"disk": "fast"}}}),
                "conflict: runtimeClass.scheduling.nodeSelector[disk] = fast; pod.spec.nodeSelector[disk] = slow",
            ),
        ] {
            assert_eq!(complete(&mut pod.clone(), &class).unwrap_err().to_string(), why, "{pod}");
        }
    }
}
