//! `/scale`: the number of replicas as an object of its own, `autoscaling/v1` Scale.

use http::StatusCode;
use schema::FieldError;
use serde_json::{Value, json};

use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::WriteOptions;
use crate::http::respond::HttpReply;
use crate::http::verb::Verb;
use crate::http::verb_result::VerbResult;
use crate::schemas::crd;
use crate::schemas::served::{Endpoint, KindOrigin, ServedKind};
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::read;
use crate::verbs::selector::LabelSelector;
use crate::verbs::write::patch::{self, Patch};
use crate::verbs::write::update::{self, Proposal};

/// Where a kind keeps its numbers, as dotted paths.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn paths(served: &ServedKind) -> Paths {
    let dotted = |path: &str| path.trim_start_matches('.').to_owned();
    match &served.origin {
        KindOrigin::Custom(custom) => {
            let scale: crd::Scale = custom.version.subresources.scale.clone().unwrap_or_default();
            Paths {
                spec: dotted(&scale.spec_replicas_path),
                status: dotted(&scale.status_replicas_path),
                selector: scale.label_selector_path.as_deref().map(dotted),
            }
        }
        KindOrigin::BuiltIn(_) => Paths {
            spec: "spec.replicas".to_owned(),
            status: "status.replicas".to_owned(),
            selector: Some("spec.selector".to_owned()),
        },
    }
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, field| &value[field])
}

/// The Scale of an object.
pub(crate) fn scale_of(served: &ServedKind, live: &Value) -> Value {
    let paths = paths(served);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = live["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = at(live, &paths.spec).as_i64().filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": at(live, &paths.status).as_i64().unwrap_or(0)});
    let selector = paths.selector.map(|path| at(live, &path).clone()).unwrap_or(Value::Null);
    let selector = match selector {
        Value::String(text) => text,
        Value::Object(_) => LabelSelector::of(&selector).to_string(),
        _ => String::new(),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": metadata, "spec": spec, "status": status,
    })
}

/// Takes over the number of replicas that a Scale asks for.
pub(crate) fn set_replicas(served: &ServedKind, object: &mut Value, scale: &Value) {
    let mut slot = object;
    for field in paths(served).spec.split('.') {
        if slot.is_null() {
            *slot = json!({});
        }
        slot = &mut slot[field];
    }
    *slot = scale["spec"]["replicas"].as_i64().unwrap_or(0).into();
}

pub(super) async fn answer(
    call: &mut Call<'_>,
    verb: Verb,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if verb == Verb::Get {
        let VerbResult::Stored(_, entry) = read::get(call).await? else {
            return Err(ApiError::internal("a read gives a stored object"));
        };
        let scale = scale_of(&call.served, &call.served.live(&entry));
        return Ok(VerbResult::Made(StatusCode::OK, scale).render(call));
    }
    let bytes = body::read(body).await?;
    let options = super::options(call, verb)?;
    let given = if verb == Verb::Update {
        ReplicasValue::Whole(body::parse(call.headers, &bytes, Accepts::All)?.value)
    } else {
        ReplicasValue::Patch(Patch::parse(call, &bytes)?)
    };
    let answer = update::change(call, &options, Endpoint::Main, |call, live| {
        let scale = match &given {
            ReplicasValue::Whole(scale) => scale.clone(),
            ReplicasValue::Patch(Patch::Apply(scale)) => {
                propose(call, live, &scale.value, false)?;
                return applied(call, live, &scale.value, &options);
            }
            ReplicasValue::Patch(patch) => patch.apply_to(&scale_of(&call.served, live), call)?.0,
        };
        propose(call, live, &scale, matches!(given, ReplicasValue::Whole(_)))
    })
    .await?;
    let scaled = match answer {
        VerbResult::Stored(_, entry) => call.served.live(&entry),
        VerbResult::Made(_, value) | VerbResult::Status(_, value) => value,
    };
    let scale = scale_of(&call.served, &scaled);
    Ok(VerbResult::Made(StatusCode::OK, scale).render(call))
}

enum ReplicasValue {
    Whole(Value),
    Patch(Patch),
}

/// Applying a scale is applying the one field of its object that it has.
fn applied(
    call: &Call<'_>,
    live: &Value,
    scale: &Value,
    options: &WriteOptions,
) -> ApiResult<Proposal> {
    let Some(manager) = &options.field_manager else {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid_options("PatchOptions", &[error]));
    };
    let served = &call.served;
    let mut config = json!({
        "apiVersion": served.api_version(), "kind": &*served.kind,
        "metadata": {"name": call.path.name},
    });
    set_replicas(served, &mut config, scale);
    let object = patch::merged(call, Some(live), &config, manager, options, Endpoint::Main)?;
    let mut object = object.unwrap_or_else(|| live.clone());
    object::set_meta(&mut object, "resourceVersion", None);
    Ok(Proposal { object, managers_done: true })
}

fn propose(call: &Call<'_>, live: &Value, scale: &Value, whole: bool) -> ApiResult<Proposal> {
    let name = call.path.name;
    let subject = StatusSubject { group: "autoscaling", resource: "Scale", name };
    let kind = scale["kind"].as_str().unwrap_or("");
    if !matches!(kind, "" | "Scale") {
        let version = scale["apiVersion"].as_str().unwrap_or("");
        let version = version.rsplit('/').next().unwrap_or("");
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a Scale: converting ({version}.{kind}) to (autoscaling.Scale): unknown conversion"
        )));
    }
    let given = object::name(scale);
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        Value::Number(number) => number.as_i64().unwrap_or(-1),
        other => {
            let error = FieldError::invalid("spec.replicas", other.clone(), "must be an integer");
            return Err(ApiError::invalid(subject, &[error]));
        }
    };
    if replicas < 0 && call.served.is_custom() {
        let path = format!(".{}", paths(&call.served).spec);
        let error = FieldError::invalid(path, replicas, "should be a non-negative integer");
        return Err(ApiError::invalid(call.served.kind_subject(name), &[error]));
    }
    if replicas < 0 {
        let error =
            FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(ApiError::invalid(subject, &[error]));
    }
    let mut object = live.clone();
    set_replicas(&call.served, &mut object, &json!({"spec": {"replicas": replicas}}));
    let pinned = scale["metadata"].get("resourceVersion").filter(|_| whole).cloned();
    object::set_meta(&mut object, "resourceVersion", pinned);
    Ok(Proposal { object, managers_done: false })
}
