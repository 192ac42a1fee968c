//! HorizontalPodAutoscalers: stored as `v2`, also seen as `v1`.

mod v1;

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, SPEC, STATUS};
use crate::resource::{Column, Conversion, Printer, Resource, Strategy, Subresource};
use crate::{json, print, quantity, syntax};

pub(crate) const V2: Resource = Resource {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        validate_status,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    ..Resource::namespaced(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        "HorizontalPodAutoscaler",
    )
};

pub(crate) const V1: Resource = Resource {
    version: "v1",
    strategy: Strategy {
        default: |object| {
            if let Some(spec) = json::object(object, "spec") {
                json::fill(spec, "minReplicas", 1);
            }
        },
        validate: |object, errors| validate(&v1::to_v2(object), errors),
        validate_update: |new, _, errors| validate(&v1::to_v2(new), errors),
        ..V2.strategy
    },
    printer: Printer { columns: COLUMNS, cells: |object, now| cells(&v1::to_v2(object), now) },
    conversion: Some(Conversion {
        stored: ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        to_storage: v1::to_storage,
        from_storage: v1::from_storage,
    }),
    ..V2
};

/// Where a metric comes from: its type and the field that describes it.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The goal where none is given: four fifths of the requested CPU.
fn default_metric() -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    })
}

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill(spec, "minReplicas", 1);
    if json::count(spec, "/metrics") == 0 {
        json::set(spec, "metrics", json!([default_metric()]));
    }
    if !json::has(spec, "/behavior") {
        return;
    }
    let Some(behavior) = json::object(spec, "behavior") else { return };
    if let Some(up) = json::object(behavior, "scaleUp") {
        json::fill(up, "stabilizationWindowSeconds", 0);
        json::fill(up, "selectPolicy", "Max");
        let policies = json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]);
        json::fill(up, "policies", policies);
    }
    if let Some(down) = json::object(behavior, "scaleDown") {
        json::fill(down, "selectPolicy", "Max");
        let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        json::fill(down, "policies", policies);
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let (least, most) = (json::int_at(spec, "/minReplicas"), json::int(spec, "/maxReplicas"));
    if let Some(least) = least
        && least < 1
    {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(SPEC.field("minReplicas"), least, detail));
    }
    let path = SPEC.field("maxReplicas");
    match most {
        0 => errors.push(FieldError::required(path, "must be set and greater than 0")),
        ..0 => {
            let detail = "must be greater than or equal to 1";
            errors.push(FieldError::invalid(path, most, detail));
        }
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(path, most, detail));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&null);
    let path = SPEC.field("scaleTargetRef");
    for key in ["kind", "name"] {
        if let Some(text) = check::required(target, key, &path, errors) {
            check::each(syntax::path_segment(text), text, &path.field(key), errors);
        }
    }
    let version = json::text(target, "/apiVersion");
    if !version.contains('/') && json::text(target, "/kind") != "ReplicationController" {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(path.field("apiVersion"), version, detail));
    }
    let list = SPEC.field("metrics");
    for (index, metric) in json::list(spec, "/metrics").iter().enumerate() {
        validate_metric(metric, &list.index(index), errors);
    }
    let path = SPEC.field("behavior");
    for key in ["scaleUp", "scaleDown"] {
        if let Some(rules) = json::at(spec, &format!("/behavior/{key}")) {
            validate_rules(rules, &path.field(key), errors);
        }
    }
}

fn validate_metric(metric: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = json::text(metric, "/type");
    let types: Vec<&str> = SOURCES.iter().map(|(kind, _)| *kind).collect();
    if kind.is_empty() {
        let detail = "must specify a metric source type";
        errors.push(FieldError::required(path.field("type"), detail));
    }
    let Some((_, wanted)) = SOURCES.iter().find(|(known, _)| *known == kind) else {
        errors.push(FieldError::not_supported(path.field("type"), kind, &types));
        return;
    };
    match json::at(metric, &format!("/{wanted}")) {
        None => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(path.field(wanted), detail));
        }
        Some(source) => validate_source(source, wanted, &path.field(wanted), errors),
    }
    for (_, other) in SOURCES {
        if other != *wanted && json::has(metric, &format!("/{other}")) {
            let detail = "must populate the given metric source only";
            errors.push(FieldError::forbidden(path.field(other), detail));
        }
    }
}

fn validate_source(source: &Value, key: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if key.ends_with("esource") {
        if json::text(source, "/name").is_empty() {
            let detail = "must specify a resource name";
            errors.push(FieldError::required(path.field("name"), detail));
        }
    } else if json::text(source, "/metric/name").is_empty() {
        let metric = path.field("metric");
        let detail = "must specify a metric name";
        errors.push(FieldError::required(metric.field("name"), detail));
    }
    let target = path.field("target");
    let null = Value::Null;
    let given = source.get("target").unwrap_or(&null);
    check::required_one_of(
        given,
        "type",
        &["AverageValue", "Utilization", "Value"],
        &target,
        errors,
    );
    for key in ["value", "averageValue"] {
        if let Some(amount) = given.get(key) {
            quantity::positive(amount, &target.field(key), errors);
        }
    }
    if let Some(percent) = json::int_at(given, "/averageUtilization")
        && percent < 1
    {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(target.field("averageUtilization"), percent, detail));
    }
}

fn validate_rules(rules: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = json::int_at(rules, "/stabilizationWindowSeconds") {
        let detail = match seconds {
            ..0 => Some("must be greater than or equal to zero"),
            3601.. => Some("must be less than or equal to 3600"),
            _ => None,
        };
        errors.extend(detail.map(|detail| {
            FieldError::invalid(path.field("stabilizationWindowSeconds"), seconds, detail)
        }));
    }
    check::one_of(rules, "selectPolicy", &["Disabled", "Max", "Min"], path, errors);
    let list = path.field("policies");
    let policies = json::list(rules, "/policies");
    if policies.is_empty() {
        errors.push(FieldError::required(list, "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = list.index(index);
        check::one_of(policy, "type", &["Percent", "Pods"], &at, errors);
        for key in ["value", "periodSeconds"] {
            let number = json::int(policy, &format!("/{key}"));
            if number <= 0 {
                let detail = "must be greater than zero";
                errors.push(FieldError::invalid(at.field(key), number, detail));
            }
        }
        let period = json::int(policy, "/periodSeconds");
        if period > 1800 {
            let detail = "must be less than or equal to 1800";
            errors.push(FieldError::invalid(at.field("periodSeconds"), period, detail));
        }
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    let status = new.get("status").unwrap_or(&Value::Null);
    for key in ["currentReplicas", "desiredReplicas"] {
        check::not_negative(status, key, &STATUS, errors);
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Reference", "What is scaled"),
    Column::text("Targets", "What is measured, and its goal"),
    Column::text("MinPods", "The fewest there may be"),
    Column::text("MaxPods", "The most there may be"),
    Column::text("Replicas", "How many there are"),
    Column::AGE,
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = json::at(object, "/spec/scaleTargetRef").unwrap_or(&Value::Null);
    let reference = format!("{}/{}", json::text(target, "/kind"), json::text(target, "/name"));
    let least = json::int_at(object, "/spec/minReplicas");
    vec![
        print::name(object),
        reference.into(),
        metrics(object).into(),
        least.map_or("<unset>".to_owned(), |least| least.to_string()).into(),
        json::int(object, "/spec/maxReplicas").into(),
        json::int(object, "/status/currentReplicas").into(),
        print::age(object, now),
    ]
}

fn metrics(object: &Value) -> String {
    const SHOWN: usize = 2;
    let wanted = json::list(object, "/spec/metrics");
    let current = json::list(object, "/status/currentMetrics");
    let texts: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(index, metric)| show_metric(metric, current.get(index)))
        .collect();
    match texts.len() {
        0 => "<none>".to_owned(),
        count if count > SHOWN => {
            format!("{} + {} more...", texts[..SHOWN].join(", "), count - SHOWN)
        }
        _ => texts.join(", "),
    }
}

fn show_metric(metric: &Value, status: Option<&Value>) -> String {
    let kind = json::text(metric, "/type");
    let Some((_, key)) = SOURCES.iter().find(|(known, _)| *known == kind) else {
        return "<unknown type>".to_owned();
    };
    let target = |field: &str| json::at(metric, &format!("/{key}/target/{field}"));
    let current = |field: &str| {
        let found = status.and_then(|status| json::at(status, &format!("/{key}/current/{field}")));
        found.map_or("<unknown>".to_owned(), print::int_or_string)
    };
    let name = match kind {
        "Resource" | "ContainerResource" => {
            format!("{}: ", json::text(metric, &format!("/{key}/name")))
        }
        _ => String::new(),
    };
    if let Some(goal) = target("averageValue") {
        let note = if matches!(kind, "External" | "Object") { " (avg)" } else { "" };
        return format!("{name}{}/{}{note}", current("averageValue"), print::int_or_string(goal));
    }
    if name.is_empty() {
        let goal = target("value").map_or("0".to_owned(), print::int_or_string);
        return format!("{}/{goal}", current("value"));
    }
    let used = match current("averageUtilization") {
        unknown if unknown.starts_with('<') => unknown,
        percent => format!("{percent}%"),
    };
    let goal = target("averageUtilization")
        .map_or("<auto>".to_owned(), |goal| format!("{}%", print::int_or_string(goal)));
    format!("{name}{used}/{goal}")
}

#[cfg(test)]
mod tests;
