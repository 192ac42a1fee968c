//! Defaults of pods and nodes for their schedulers and kubelets: the priority of a pod, how long
//! it tolerates a node that is not reachable, and a taint on a node until it is ready.

use serde_json::{Value, json};

use super::Operation;
use crate::schemas::refresh;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Seconds for which a pod bears either.
const TOLERATION_SECONDS: i64 = 300;

/// `Priority`: the class becomes a number.
pub(super) fn prioritize(
    call: &Call<'_>,
    operation: Operation,
    pod: &mut Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if !call.path.subresource.is_empty() {
        return Ok(());
    }
    if operation == Operation::Update {
        // An update without these fields keeps the values that the pod has.
        for field in ["priority", "preemptionPolicy"] {
            let before = old.and_then(|old| old["spec"].get(field));
            if let (Some(before), true) = (before, pod["spec"].get(field).is_none()) {
                pod["spec"][field] = before.clone();
            }
        }
        return Ok(());
    }
    let refuse = |pod: &Value, why: String| {
        Err(ApiError::forbidden_because(call.served.subject(object::name(pod)), why))
    };
    let wanted = pod["spec"]["priorityClassName"].as_str().unwrap_or("").to_owned();
    let class = match &*wanted {
        "" => default_class(call),
        name => match call.api.store.get("priorityclasses", name) {
            Some(entry) => Some(entry.item.to_value()),
            None => {
                return refuse(pod, format!("no PriorityClass with name {name} was found"));
            }
        },
    };
    let class = class.unwrap_or_else(|| json!({"value": 0}));
    let (value, policy) =
        (&class["value"], class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"));
    let Some(spec) = pod["spec"].as_object() else { return Ok(()) };
    if let Some(given) = spec.get("priority").filter(|given| *given != value) {
        let text = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return refuse(pod, text);
    }
    if let Some(given) = spec.get("preemptionPolicy").filter(|given| **given != policy) {
        let text = format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name",
            given.as_str().unwrap_or("")
        );
        return refuse(pod, text);
    }
    if let (true, Some(name)) = (wanted.is_empty(), class["metadata"]["name"].as_str()) {
        pod["spec"]["priorityClassName"] = name.into();
    }
    pod["spec"]["priority"] = value.clone();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// The class for those who name none; of several the least, as upstream.
fn default_class(call: &Call<'_>) -> Option<Value> {
    let classes = refresh::entries(call.api, "priorityclasses").into_iter();
    let classes = classes.map(|entry| entry.item.to_value());
    let defaults = classes.filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64())
}

/// `DefaultTolerationSeconds`
pub(super) fn tolerate(call: &Call<'_>, pod: &mut Value) {
    if !call.path.subresource.is_empty() || !pod["spec"].is_object() {
        return;
    }
    let given = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let bears = |key: &str| {
        given.iter().any(|toleration| {
            let text = |field: &str| toleration[field].as_str().unwrap_or("");
            matches!(text("key"), "" | NOT_READY | UNREACHABLE)
                && (text("key").is_empty() || text("key") == key)
                && matches!(text("effect"), "" | "NoExecute")
        })
    };
    let missing = [NOT_READY, UNREACHABLE].into_iter().filter(|key| !bears(key));
    let added: Vec<Value> = missing
        .map(|key| {
            json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            })
        })
        .collect();
    if !added.is_empty() {
        pod["spec"]["tolerations"] = given.into_iter().chain(added).collect();
    }
}

/// `TaintNodesByCondition`: nothing is put on a node before it says that it is ready.
pub(super) fn taint(call: &Call<'_>, operation: Operation, node: &mut Value) {
    if operation != Operation::Create || !call.path.subresource.is_empty() {
        return;
    }
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        return;
    }
    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    node["spec"]["taints"] = taints.into();
}
