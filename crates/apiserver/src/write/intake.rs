//! From a decoded body to an object of the right kind, with unknown fields dealt with.

use schema::FieldError;
use serde_json::Value;
use types::Filling;

use crate::call::Call;
use crate::decode::Parsed;
use crate::object;
use crate::options::FieldValidation;
use crate::served::Served;
use crate::status::{ApiError, ApiResult, Subject};

/// Checks and cleans a body that was sent whole (POST, PUT).
pub(crate) fn take(
    call: &mut Call<'_>,
    parsed: Parsed,
    validation: FieldValidation,
) -> ApiResult<Value> {
    let Parsed { mut value, duplicates } = parsed;
    check_kind(&call.served, &mut value)?;
    let problems = clean(call, &mut value, duplicates)?;
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => problems.into_iter().for_each(|problem| call.warn(problem)),
        FieldValidation::Strict if problems.is_empty() => {}
        FieldValidation::Strict => {
            let served = &call.served;
            return Err(ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {list}",
                kind = served.kind,
                version = served.version,
                list = problems.join(", "),
            )));
        }
    }
    Ok(value)
}

/// Checks and cleans the result of a patch; `patch` is what errors call it.
pub(crate) fn take_patched(
    call: &mut Call<'_>,
    value: &mut Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
) -> ApiResult<()> {
    check_kind(&call.served, value)?;
    let problems = clean(call, value, duplicates)?;
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            problems.into_iter().for_each(|problem| call.warn(problem));
            Ok(())
        }
        FieldValidation::Strict if problems.is_empty() => Ok(()),
        FieldValidation::Strict => {
            let detail = format!("strict decoding error: {}", problems.join(", "));
            let error = FieldError::invalid("patch", value.to_string(), detail);
            Err(ApiError::invalid(Subject { group: "", resource: "", name: "" }, &[error]))
        }
    }
}

fn clean(call: &Call<'_>, value: &mut Value, duplicates: Vec<String>) -> ApiResult<Vec<String>> {
    drop_null_metadata(value);
    let unknown = call.served.clean(value, Filling::Whole)?;
    call.served.default(value);
    let mut problems: Vec<String> =
        unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    problems.extend(duplicates);
    Ok(problems)
}

/// Go clients send `creationTimestamp: null`; it means "not set".
fn drop_null_metadata(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !value.is_null());
    }
}

/// The body must be of the kind that the path names; an absent kind is filled in.
fn check_kind(served: &Served, value: &mut Value) -> ApiResult<()> {
    let (expected_version, expected_kind) = (served.api_version(), &*served.kind);
    let (version, kind) = (text(value, "apiVersion")?, text(value, "kind")?);
    if !version.is_empty() && version != expected_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected_version})"
        )));
    }
    if !kind.is_empty() && kind != expected_kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {expected_kind}: the kind in the data ({kind}) does not match the expected kind ({expected_kind})",
            served.version,
        )));
    }
    if served.is_custom() && (version.is_empty() || kind.is_empty()) {
        let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(ApiError::bad_request(format!(
            "Object '{missing}' is missing in '{}'",
            truncated(&value.to_string())
        )));
    }
    value["apiVersion"] = expected_version.into();
    value["kind"] = expected_kind.into();
    if value.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(ApiError::bad_request("metadata: must be an object"));
    }
    object::metadata_mut(value);
    Ok(())
}

fn text(value: &Value, field: &str) -> ApiResult<String> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(ApiError::bad_request(format!("{field}: must be a string"))),
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(256).collect()
}

/// The namespace of the body must be that of the path; an absent one is filled in.
pub(crate) fn check_namespace(call: &Call<'_>, value: &mut Value) -> ApiResult<()> {
    let wanted = call.namespace();
    if !call.served.namespaced {
        object::set_meta(value, "namespace", None);
        return Ok(());
    }
    let given = object::namespace(value);
    if !given.is_empty() && given != wanted {
        return Err(ApiError::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request: {given:?} is not {wanted:?}"
        )));
    }
    object::set_meta(value, "namespace", Some(wanted.into()));
    Ok(())
}

/// The name of the body must be that of the path; an absent one is filled in.
pub(crate) fn check_name(call: &Call<'_>, value: &mut Value) -> ApiResult<()> {
    let (given, wanted) = (object::name(value), call.path.name);
    if !given.is_empty() && given != wanted {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    object::set_meta(value, "name", Some(wanted.into()));
    Ok(())
}
