//! LimitRanges: bounds and defaults for containers, pods and claims of a namespace.

use serde_json::{Map, Value, json};
use store::Range;
use types::Quantity;

use super::Operation;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

/// The annotation of a pod with the values that were filled in.
const NOTE: &str = "kubernetes.io/limit-ranger";

fn ranges(call: &Call<'_>) -> Vec<Value> {
    let prefix = format!("{}/", call.namespace());
    let range = Range { prefix: &prefix, ..Range::default() };
    let page = call.api.store.list("limitranges", range);
    let entries = page.map(|page| page.entries).unwrap_or_default();
    entries.iter().map(|entry| entry.item.to_value()).collect()
}

fn items<'a>(ranges: &'a [Value], ty: &'a str) -> impl Iterator<Item = &'a Value> {
    ranges
        .iter()
        .flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten())
        .filter(move |item| item["type"] == ty)
}

/// Fills in the requests and limits that containers leave out.
pub(super) fn mutate(call: &Call<'_>, operation: Operation, object: &mut Value) -> ApiResult<()> {
    if operation != Operation::Create || &*call.served.table != "pods" {
        return Ok(());
    }
    let ranges = ranges(call);
    let items: Vec<&Value> = items(&ranges, "Container").collect();
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in object::list_mut(object, &format!("/spec/{list}")) {
            let before = container["resources"].clone();
            items.iter().for_each(|item| fill(container, item));
            notes.extend(filled(&before, container, word));
        }
    }
    if !notes.is_empty() {
        let annotations = object::metadata_mut(object).entry("annotations");
        let annotations = annotations.or_insert_with(|| json!({}));
        annotations[NOTE] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
    }
    Ok(())
}

/// The values that were filled in, in upstream's words.
fn filled(before: &Value, container: &Value, word: &str) -> Vec<String> {
    let name = container["name"].as_str().unwrap_or("");
    let kinds = [("requests", "request"), ("limits", "limit")];
    let texts = kinds.iter().filter_map(|(field, kind)| {
        let after = container["resources"][*field].as_object()?;
        let new: Vec<&str> = after
            .keys()
            .filter(|resource| before[*field].get(resource.as_str()).is_none())
            .map(String::as_str)
            .collect();
        (!new.is_empty()).then(|| format!("{} {kind} for {word} {name}", new.join(", ")))
    });
    texts.collect()
}

fn fill(container: &mut Value, item: &Value) {
    for (ours, theirs) in [("limits", "default"), ("requests", "defaultRequest")] {
        for (resource, amount) in item[theirs].as_object().into_iter().flatten() {
            let resources = &mut container["resources"];
            if resources.is_null() {
                *resources = json!({});
            }
            let slot = &mut resources[ours];
            if slot.is_null() {
                *slot = Value::Object(Map::new());
            }
            if slot.get(resource).is_none() {
                slot[resource.as_str()] = amount.clone();
            }
        }
    }
}

pub(super) fn validate(call: &Call<'_>, operation: Operation, object: &Value) -> ApiResult<()> {
    let is_claim = &*call.served.table == "persistentvolumeclaims";
    let is_pod = &*call.served.table == "pods" && operation == Operation::Create;
    if !is_claim && !is_pod {
        return Ok(());
    }
    let ranges = ranges(call);
    let mut problems = Vec::new();
    if is_claim {
        let requests = &object["spec"]["resources"]["requests"];
        for item in items(&ranges, "PersistentVolumeClaim") {
            let asked = RequestedAmount { requests, limits: requests, word: "request" };
            bound(item, "PersistentVolumeClaim", asked, &mut problems);
        }
    }
    if is_pod {
        for item in items(&ranges, "Container") {
            for container in object["spec"]["containers"].as_array().into_iter().flatten() {
                let resources = &container["resources"];
                let (requests, limits) = (&resources["requests"], &resources["limits"]);
                bound(
                    item,
                    "Container",
                    RequestedAmount { requests, limits, word: "limit" },
                    &mut problems,
                );
            }
        }
        for item in items(&ranges, "Pod") {
            let sum = |kind: &str| total(&object["spec"]["containers"], kind);
            let (requests, limits) = (&sum("requests"), &sum("limits"));
            bound(item, "Pod", RequestedAmount { requests, limits, word: "limit" }, &mut problems);
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        problems => {
            let text = match problems {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            let subject = call.served.subject(object::name(object));
            Err(ApiError::forbidden_because(subject, text))
        }
    }
}

fn total(containers: &Value, kind: &str) -> Value {
    let mut sums: Map<String, Value> = Map::new();
    for container in containers.as_array().into_iter().flatten() {
        for (resource, amount) in container["resources"][kind].as_object().into_iter().flatten() {
            let before = sums.get(resource).and_then(|sum| Quantity::from_json(sum).ok());
            let Ok(amount) = Quantity::from_json(amount) else { continue };
            let sum = before.map_or(amount.clone(), |before| before + &amount);
            sums.insert(resource.clone(), sum.to_string().into());
        }
    }
    Value::Object(sums)
}

/// The requests and limits under check; `word` is the name of the upper bound.
#[derive(Clone, Copy)]
struct RequestedAmount<'a> {
    requests: &'a Value,
    limits: &'a Value,
    word: &'a str,
}

/// One item's minimum and maximum against what is requested and limited.
fn bound(item: &Value, ty: &str, asked: RequestedAmount<'_>, problems: &mut Vec<String>) {
    let RequestedAmount { requests, limits, word } = asked;
    let read = |value: &Value| Quantity::from_json(value).ok();
    for (resource, least) in item["min"].as_object().into_iter().flatten() {
        let Some(least) = read(least) else { continue };
        match requests.get(resource).and_then(read) {
            None => problems.push(format!(
                "minimum {resource} usage per {ty} is {least}.  No request is specified"
            )),
            Some(asked) if asked < least => problems.push(format!(
                "minimum {resource} usage per {ty} is {least}, but request is {asked}"
            )),
            Some(_) => {}
        }
    }
    for (resource, most) in item["max"].as_object().into_iter().flatten() {
        let Some(most) = read(most) else { continue };
        match limits.get(resource).and_then(read) {
            None => problems.push(format!(
                "maximum {resource} usage per {ty} is {most}.  No {word} is specified"
            )),
            Some(asked) if asked > most => problems.push(format!(
                "maximum {resource} usage per {ty} is {most}, but {word} is {asked}"
            )),
            Some(_) => {}
        }
    }
    for (resource, most) in item["maxLimitRequestRatio"].as_object().into_iter().flatten() {
        let Some(most) = read(most) else { continue };
        // Far below what a fraction of two of them could lose.
        let float = |it: Quantity| it.nanos() as f64;
        let amount = |of: &Value| of.get(resource).and_then(read).map(float);
        let refuse = |why: &str| {
            format!("{resource} max limit to request ratio per {ty} is {most}, but {why}")
        };
        match (amount(requests).filter(|it| *it > 0.0), amount(limits).filter(|it| *it > 0.0)) {
            (None, _) => problems.push(refuse("no request is specified or request is 0")),
            (_, None) => problems.push(refuse("no limit is specified or limit is 0")),
            (Some(request), Some(limit)) if limit / request > most.nanos() as f64 / 1e9 => {
                problems.push(refuse(&format!("provided ratio is {:.6}", limit / request)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_reported_in_upstreams_words() {
        let item = json!({"min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}});
        let mut problems = Vec::new();
        let asks = |amount: &str| json!({"storage": amount});
        for size in ["512Mi", "6Gi", "2Gi"] {
            let requests = &asks(size);
            let asked = RequestedAmount { requests, limits: requests, word: "request" };
            bound(&item, "PersistentVolumeClaim", asked, &mut problems);
        }
        assert_eq!(
            problems,
            [
                "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
                "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi",
            ]
        );
    }

    #[test]
    fn defaults_fill_only_what_is_missing() {
        let mut container = json!({"resources": {"limits": {"cpu": "2"}}});
        let item =
            json!({"default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let before = container["resources"].clone();
        container["name"] = "c".into();
        fill(&mut container, &item);
        assert_eq!(
            container["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            filled(&before, &container, "container"),
            ["cpu request for container c", "memory limit for container c"]
        );
    }
}
