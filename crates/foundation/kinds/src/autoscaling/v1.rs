//! Between `v1` and `v2`.
//!
//! `v1` knows one goal, a percentage of CPU. Everything else travels in annotations, in
//! the shapes that upstream gave them: metrics flattened, behavior with capitalised keys.

use serde_json::{Map, Value, json};

use super::default_metric;
use crate::json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// A copy of a `v1` object as `v2`.
pub(super) fn to_v2(object: &Value) -> Value {
    let mut converted = object.clone();
    to_storage(&mut converted);
    converted
}

pub(super) fn to_storage(object: &mut Value) {
    let mut carried = take_annotations(object);
    let mut read =
        |key: &str| -> Option<Value> { serde_json::from_str(carried.remove(key)?.as_str()?).ok() };
    let others = read(METRICS);
    let (behavior, current, conditions) = (read(BEHAVIOR), read(CURRENT_METRICS), read(CONDITIONS));
    if let Some(spec) = json::object(object, "spec") {
        let mut metrics: Vec<Value> = others.iter().flat_map(items).map(expand).collect();
        if let Some(percent) = json::remove(spec, "targetCPUUtilizationPercentage")
            && !percent.is_null()
        {
            let mut metric = default_metric();
            metric["resource"]["target"]["averageUtilization"] = percent;
            metrics.push(metric);
        }
        if metrics.is_empty() {
            metrics.push(default_metric());
        }
        json::set(spec, "metrics", metrics);
        if let Some(behavior) = behavior {
            json::set(spec, "behavior", rename_keys(behavior, char::to_ascii_lowercase));
        }
    }
    if object.get("status").is_some_and(Value::is_object)
        || current.is_some()
        || conditions.is_some()
    {
        status_to_storage(object, current, conditions);
    }
    json::set(object, "apiVersion", "autoscaling/v2");
}

fn status_to_storage(object: &mut Value, current: Option<Value>, conditions: Option<Value>) {
    let Some(status) = json::object(object, "status") else { return };
    let percent = json::remove(status, "currentCPUUtilizationPercentage");
    if let Some(current) = current {
        let metrics: Vec<Value> = items(&current).map(expand_status).collect();
        json::set(status, "currentMetrics", metrics);
    } else if let Some(percent) = percent.filter(|percent| !percent.is_null()) {
        let resource = json!({"name": "cpu", "current": {"averageUtilization": percent}});
        let metric = json!({"type": "Resource", "resource": resource});
        json::set(status, "currentMetrics", json!([metric]));
    }
    if let Some(conditions) = conditions {
        json::set(status, "conditions", conditions);
    }
}

pub(super) fn from_storage(object: &mut Value) {
    take_annotations(object);
    let mut carried = Map::new();
    let mut carry = |key: &str, value: &Value| {
        carried.insert(key.to_owned(), value.to_string().into());
    };
    if let Some(spec) = json::object(object, "spec") {
        let metrics = json::remove(spec, "metrics").unwrap_or_default();
        let (cpu, others): (Vec<&Value>, Vec<&Value>) = items(&metrics).partition(|it| is_cpu(it));
        let others: Vec<Value> = others.into_iter().map(flatten).collect();
        if let Some(metric) = cpu.first() {
            let percent = metric["resource"]["target"]["averageUtilization"].clone();
            json::set(spec, "targetCPUUtilizationPercentage", percent);
        }
        if !others.is_empty() {
            carry(METRICS, &Value::Array(others));
        }
        if let Some(behavior) = json::remove(spec, "behavior") {
            carry(BEHAVIOR, &rename_keys(behavior, char::to_ascii_uppercase));
        }
    }
    if object.get("status").is_some_and(Value::is_object)
        && let Some(status) = json::object(object, "status")
    {
        let current = json::remove(status, "currentMetrics").unwrap_or_default();
        for metric in items(&current) {
            let percent = json::at(metric, "/resource/current/averageUtilization");
            if json::text(metric, "/resource/name") == "cpu"
                && let Some(percent) = percent
            {
                json::set(status, "currentCPUUtilizationPercentage", percent.clone());
            }
        }
        let flat: Vec<Value> = items(&current).map(flatten_status).collect();
        if !flat.is_empty() {
            carry(CURRENT_METRICS, &Value::Array(flat));
        }
        if let Some(conditions) = json::remove(status, "conditions")
            && items(&conditions).next().is_some()
        {
            carry(CONDITIONS, &conditions);
        }
    }
    if !carried.is_empty()
        && let Some(metadata) = json::object(object, "metadata")
        && let Some(annotations) = json::object(metadata, "annotations")
    {
        for (key, value) in carried {
            json::set(annotations, &key, value);
        }
    }
    json::set(object, "apiVersion", "autoscaling/v1");
}

/// Removes what only represents fields of the other version; an empty map goes with it.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(metadata) = object.get_mut("metadata") else { return taken };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for key in [METRICS, CURRENT_METRICS, BEHAVIOR, CONDITIONS] {
            if let Some(value) = annotations.remove(key) {
                taken.insert(key.to_owned(), value);
            }
        }
        if annotations.is_empty() && !taken.is_empty() {
            json::remove(metadata, "annotations");
        }
    }
    taken
}

fn is_cpu(metric: &Value) -> bool {
    json::text(metric, "/type") == "Resource"
        && json::text(metric, "/resource/name") == "cpu"
        && json::has(metric, "/resource/target/averageUtilization")
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The place of each field of a flat source in the nested one.
struct Shape {
    key: &'static str,
    fields: &'static [(&'static str, &'static str)],
}

const SPECS: [Shape; 5] = [
    Shape {
        key: "object",
        fields: &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("averageValue", "/target/averageValue"),
        ],
    },
    Shape {
        key: "pods",
        fields: &[
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    },
    Shape {
        key: "resource",
        fields: &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    },
    Shape {
        key: "containerResource",
        fields: &[
            ("name", "/name"),
            ("container", "/container"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    },
    Shape {
        key: "external",
        fields: &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    },
];

const STATUSES: [Shape; 5] = [
    Shape {
        key: "object",
        fields: &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("currentValue", "/current/value"),
            ("averageValue", "/current/averageValue"),
        ],
    },
    Shape {
        key: "pods",
        fields: &[
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    },
    Shape {
        key: "resource",
        fields: &[
            ("name", "/name"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    },
    Shape {
        key: "containerResource",
        fields: &[
            ("name", "/name"),
            ("container", "/container"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    },
    Shape {
        key: "external",
        fields: &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("currentValue", "/current/value"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    },
];

/// Flat to nested; the type of the target follows from which goal is given.
fn expand(flat: &Value) -> Value {
    let mut metric = nest(flat, &SPECS);
    for Shape { key, .. } in &SPECS {
        let Some(target) = metric.pointer_mut(&format!("/{key}/target")) else { continue };
        let kind = ["averageUtilization", "averageValue", "value"]
            .into_iter()
            .find(|field| target.get(field).is_some());
        match kind {
            Some("averageUtilization") => json::set(target, "type", "Utilization"),
            Some("averageValue") => json::set(target, "type", "AverageValue"),
            _ => json::set(target, "type", "Value"),
        }
    }
    metric
}

fn expand_status(flat: &Value) -> Value {
    nest(flat, &STATUSES)
}

fn nest(flat: &Value, shapes: &[Shape]) -> Value {
    let mut metric = json!({"type": flat.get("type").cloned().unwrap_or_default()});
    for Shape { key, fields } in shapes {
        let Some(source) = flat.get(key).filter(|source| source.is_object()) else { continue };
        let mut nested = json!({});
        for (from, to) in *fields {
            let Some(value) = source.get(from).filter(|value| !value.is_null()) else { continue };
            put(&mut nested, to, value.clone());
        }
        json::set(&mut metric, key, nested);
    }
    metric
}

fn flatten(metric: &Value) -> Value {
    lower(metric, &SPECS)
}

fn flatten_status(metric: &Value) -> Value {
    lower(metric, &STATUSES)
}

fn lower(metric: &Value, shapes: &[Shape]) -> Value {
    let mut flat = json!({"type": metric.get("type").cloned().unwrap_or_default()});
    for Shape { key, fields } in shapes {
        let Some(source) = metric.get(key).filter(|source| source.is_object()) else { continue };
        let mut fields_flat = json!({});
        for (to, from) in *fields {
            if let Some(value) = json::at(source, from) {
                json::set(&mut fields_flat, to, value.clone());
            }
        }
        json::set(&mut flat, key, fields_flat);
    }
    flat
}

/// Sets the place at a pointer of one or two steps, making what is on the way.
fn put(object: &mut Value, pointer: &str, value: Value) {
    match pointer.trim_start_matches('/').split_once('/') {
        None => json::set(object, pointer.trim_start_matches('/'), value),
        Some((parent, key)) => {
            if let Some(parent) = json::object(object, parent) {
                json::set(parent, key, value);
            }
        }
    }
}

/// Changes the first letter of every key, all the way down.
fn rename_keys(value: Value, change: fn(&char) -> char) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| {
                let mut chars = key.chars();
                let first = chars.next().map(|first| change(&first));
                let key: String = first.into_iter().chain(chars).collect();
                (key, rename_keys(value, change))
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| rename_keys(item, change)).collect(),
        other => other,
    }
}
