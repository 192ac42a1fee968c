//! `/scale`: the number of replicas as an object of its own, `autoscaling/v1` Scale.

use http::StatusCode;
use schema::FieldError;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::body::{self, Accepts, RequestBody};
use crate::call::Call;
use crate::crd;
use crate::object;
use crate::read;
use crate::respond::Reply;
use crate::selector::LabelSelector;
use crate::served::{Endpoint, Origin, Served};
use crate::status::{ApiError, ApiResult, Subject};
use crate::write::patch::Patch;
use crate::write::update::{self, Proposal};

/// Where a kind keeps its numbers, as dotted paths.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn paths(served: &Served) -> Paths {
    let dotted = |path: &str| path.trim_start_matches('.').to_owned();
    match &served.origin {
        Origin::Custom(custom) => {
            let scale: crd::Scale = custom.version.subresources.scale.clone().unwrap_or_default();
            Paths {
                spec: dotted(&scale.spec_replicas_path),
                status: dotted(&scale.status_replicas_path),
                selector: scale.label_selector_path.as_deref().map(dotted),
            }
        }
        Origin::BuiltIn(_) => Paths {
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
pub(crate) fn scale_of(served: &Served, live: &Value) -> Value {
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
pub(crate) fn set_replicas(served: &Served, object: &mut Value, scale: &Value) {
    let mut slot = object;
    for field in paths(served).spec.split('.') {
        if slot.is_null() {
            *slot = json!({});
        }
        slot = &mut slot[field];
    }
    *slot = scale["spec"]["replicas"].as_i64().unwrap_or(0).into();
}

pub(super) async fn answer(call: &mut Call<'_>, verb: &str, body: RequestBody) -> ApiResult<Reply> {
    if verb == "get" {
        let Answer::Stored(_, entry) = read::get(call).await? else {
            return Err(ApiError::internal("a read gives a stored object"));
        };
        let scale = scale_of(&call.served, &call.served.live(&entry));
        return Ok(Answer::Made(StatusCode::OK, scale).render(call));
    }
    let bytes = body::read(body).await?;
    let options = super::options(call, verb)?;
    let given = if verb == "update" {
        Given::Whole(body::parse(call.headers, &bytes, Accepts::All)?.value)
    } else {
        Given::Patch(match Patch::parse(call, &bytes)? {
            // Applying a scale is merging it: it has one field that anybody could own.
            Patch::Apply(parsed) => Patch::Merge(parsed),
            other => other,
        })
    };
    let answer = update::change(call, &options, Endpoint::Main, |call, live| {
        let scale = match &given {
            Given::Whole(scale) => scale.clone(),
            Given::Patch(patch) => patch.apply_to(&scale_of(&call.served, live), call)?.0,
        };
        propose(call, live, &scale, matches!(given, Given::Whole(_)))
    })
    .await?;
    let scaled = match answer {
        Answer::Stored(_, entry) => call.served.live(&entry),
        Answer::Made(_, value) | Answer::Status(_, value) => value,
    };
    let scale = scale_of(&call.served, &scaled);
    Ok(Answer::Made(StatusCode::OK, scale).render(call))
}

enum Given {
    Whole(Value),
    Patch(Patch),
}

fn propose(call: &Call<'_>, live: &Value, scale: &Value, whole: bool) -> ApiResult<Proposal> {
    let name = call.path.name;
    let subject = Subject { group: "autoscaling", resource: "Scale", name };
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
