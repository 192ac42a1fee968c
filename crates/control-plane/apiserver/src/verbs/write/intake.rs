//! From a decoded body to an object of the right kind, with unknown fields dealt with.

use schema::FieldError;
use serde_json::Value;
use types::Filling;

use crate::http::decode::{self, Parsed};
use crate::http::options::FieldValidation;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;

/// Checks and cleans a body that was sent whole (POST, PUT).
pub(crate) fn take(
    call: &mut Call<'_>,
    parsed: Parsed,
    validation: FieldValidation,
) -> ApiResult<Value> {
    let Parsed { mut value, duplicates, source } = parsed;
    check_kind(&call.served, &mut value)?;
    let mut problems = clean(call, &mut value, duplicates)?;
    if !call.served.is_custom() {
        decode::in_order(&source, &mut problems);
    }
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
    let shown = value.to_string();
    // A patched object that is not valid is an error of the patch, not of a body.
    let refuse = |detail: String| {
        let error = FieldError::invalid("patch", shown.as_str(), detail);
        ApiError::invalid(StatusSubject { group: "", resource: "", name: "" }, &[error])
    };
    check_kind(&call.served, value).map_err(|error| refuse(error.message().to_owned()))?;
    let problems = clean(call, value, duplicates).map_err(|error| match error.reason() {
        "BadRequest" => refuse(unprefixed(error.message())),
        _ => error,
    })?;
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            problems.into_iter().for_each(|problem| call.warn(problem));
            Ok(())
        }
        FieldValidation::Strict if problems.is_empty() => Ok(()),
        FieldValidation::Strict => {
            Err(refuse(format!("strict decoding error: {}", problems.join(", "))))
        }
    }
}

/// Without the words about bodies that precede the error.
fn unprefixed(message: &str) -> String {
    let rest =
        message.split_once(" cannot be handled as a ").and_then(|(_, it)| it.split_once(": "));
    rest.map_or(message, |(_, rest)| rest).to_owned()
}

fn clean(call: &Call<'_>, value: &mut Value, duplicates: Vec<String>) -> ApiResult<Vec<String>> {
    drop_null_metadata(value);
    let unknown = call.served.clean(value, Filling::Whole)?;
    call.served.default(value);
    // Upstream reads the metadata of custom resources before it checks the rest.
    let first = |path: &String| call.served.is_custom() && path.starts_with("metadata.");
    let (metadata, rest): (Vec<String>, Vec<String>) = unknown.into_iter().partition(first);
    let unknown = metadata.into_iter().chain(rest);
    let unknown_field = |path: String| format!("unknown field \"{path}\"");
    Ok(duplicates.into_iter().chain(unknown.map(unknown_field)).collect())
}

/// Go clients send `creationTimestamp: null`; it means "not set".
fn drop_null_metadata(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !value.is_null());
    }
}

/// The body must be of the kind that the path names; an absent kind is filled in.
fn check_kind(served: &ServedKind, value: &mut Value) -> ApiResult<()> {
    let (expected_version, expected_kind) = (served.api_version(), &*served.kind);
    let (version, kind) = (text(value, "apiVersion")?, text(value, "kind")?);
    if !version.is_empty() && version != expected_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected_version})"
        )));
    }
    if !kind.is_empty() && kind != expected_kind && served.is_custom() {
        let subject =
            StatusSubject { group: &served.group, resource: &kind, name: object::name(value) };
        let detail = format!("must be {expected_kind}");
        let error = FieldError::invalid("kind", kind.as_str(), detail);
        return Err(ApiError::invalid(subject, &[error]));
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
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::set_meta(value, "namespace", Some(wanted.into()));
    Ok(())
}

/// The name of the body must be that of the path.
pub(crate) fn check_name(call: &Call<'_>, value: &Value) -> ApiResult<()> {
    let (given, wanted) = (object::name(value), call.path.name);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != wanted {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}
