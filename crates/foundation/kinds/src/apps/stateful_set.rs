//! StatefulSets.

use schema::{FieldError, Path};
use serde_json::{Value, json};

use super::{default_replicated, no_runtime, validate_counts, validate_workload};
use crate::check::{self, SPEC};
use crate::core::claim;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy {
        default,
        validate,
        validate_update,
        warnings: no_runtime,
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Ready", "How many are ready, of how many"),
            Column::AGE,
            Column::text("Containers", "Names of its containers").wide(),
            Column::text("Images", "Images of its containers").wide(),
        ],
        cells: |object, now| {
            let ready = json::int(object, "/status/readyReplicas");
            let desired = json::int(object, "/spec/replicas");
            let (names, images) = print::containers(object, "/spec/template/spec");
            let ready = format!("{ready}/{desired}").into();
            vec![print::name(object), ready, print::age(object, now), names, images]
        },
    },
    ..Resource::namespaced("apps", "v1", "statefulsets", "statefulset", "StatefulSet")
};

fn default(object: &mut Value) {
    default_replicated(object);
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill_zero(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = json::object(spec, "updateStrategy") {
        if json::text(strategy, "/type").is_empty() {
            json::set(strategy, "type", "RollingUpdate");
            json::fill(strategy, "rollingUpdate", json!({}));
        }
        if json::text(strategy, "/type") == "RollingUpdate"
            && let Some(rolling) = strategy.get_mut("rollingUpdate")
        {
            json::fill(rolling, "partition", 0);
        }
    }
    if let Some(policy) = json::object(spec, "persistentVolumeClaimRetentionPolicy") {
        json::fill_zero(policy, "whenDeleted", "Retain");
        json::fill_zero(policy, "whenScaled", "Retain");
    }
    json::fill(spec, "revisionHistoryLimit", 10);
    for template in json::items_mut(spec, "volumeClaimTemplates") {
        json::set(template, "apiVersion", "v1");
        json::set(template, "kind", "PersistentVolumeClaim");
        if let Some(spec) = json::object(template, "spec") {
            claim::default_spec(spec);
        }
        if let Some(status) = json::object(template, "status") {
            json::fill_zero(status, "phase", "Pending");
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let policy = json::text(spec, "/podManagementPolicy");
    match policy {
        "" => errors.push(FieldError::required(SPEC.field("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        _ => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(SPEC.field("podManagementPolicy"), policy, detail));
        }
    }
    validate_strategy(spec, errors);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy").unwrap_or(&Value::Null);
    let path = SPEC.field("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        check::one_of(retention, key, &["Delete", "Retain"], &path, errors);
    }
    validate_counts(spec, errors);
    if let Some(ordinals) = json::at(spec, "/ordinals") {
        check::not_negative(ordinals, "start", &SPEC.field("ordinals"), errors);
    }
    let service = json::text(spec, "/serviceName");
    if !service.is_empty() {
        check::each(syntax::label(service), service, &SPEC.field("serviceName"), errors);
    }
    validate_workload(&with_claims(spec), "statefulset", "StatefulSet", errors);
}

fn validate_strategy(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("updateStrategy");
    let rolling = json::at(spec, "/updateStrategy/rollingUpdate");
    match (json::text(spec, "/updateStrategy/type"), rolling) {
        ("", _) => errors.push(FieldError::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let at = path.field("rollingUpdate");
            errors.push(FieldError::invalid(at, rolling.clone(), detail));
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        ("RollingUpdate", Some(rolling)) => {
            check::not_negative(rolling, "partition", &path.field("rollingUpdate"), errors);
        }
        _ => {
            let given = spec.get("updateStrategy").cloned().unwrap_or_default();
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(path, given, detail));
        }
    }
}

/// The spec with the volumes that its claims will become, so that mounts find them.
fn with_claims(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<Value> = json::list(&spec, "/volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = json::text(claim, "/metadata/name");
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    if let Some(pod) = spec.pointer_mut("/template/spec") {
        let mut volumes = claims.clone();
        volumes.extend(
            json::list(pod, "/volumes")
                .iter()
                .filter(|volume| !claims.iter().any(|claim| claim["name"] == volume["name"]))
                .cloned(),
        );
        json::set(pod, "volumes", volumes);
    }
    spec
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let null = Value::Null;
    let spec = |object| json::at(object, "/spec").unwrap_or(&null);
    let path: &Path<'_> = &SPEC;
    for key in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
        check::immutable(spec(new), spec(old), key, path, errors);
    }
}
