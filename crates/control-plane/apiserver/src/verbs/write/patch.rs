//! PATCH: the four ways to describe a change, applied to the live object.
//!
//! A patch is tried again on the fresh object when another client was faster, unless
//! it names the version that it is meant for.

use bytes::Bytes;
use schema::FieldError;
use serde_json::Value;
use types::Filling;

use crate::http::body;
use crate::http::decode::{self, Parsed};
use crate::http::options::{FieldValidation, WriteOptions};
use crate::http::verb_result::VerbResult;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::update::{self, Proposal};
use crate::verbs::write::{create, facts, intake, request};

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A patch whose body has been read.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Parsed),
    Strategic(Parsed),
    Apply(Parsed),
}

impl Patch {
    pub(crate) fn parse(call: &Call<'_>, bytes: &Bytes) -> ApiResult<Self> {
        let custom = call.served.is_custom();
        let read = |result: Result<Parsed, decode::ParseError>| {
            result.map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
        };
        let object = |parsed: Parsed| {
            if parsed.value.is_object() {
                Ok(parsed)
            } else {
                Err(ApiError::bad_request("error decoding patch: expected an object"))
            }
        };
        match body::media_type(call.headers) {
            JSON_PATCH => Ok(Self::Json(read(decode::json(bytes))?.value)),
            MERGE => Ok(Self::Merge(object(read(decode::json(bytes))?)?)),
            STRATEGIC if !custom => Ok(Self::Strategic(object(read(decode::json(bytes))?)?)),
            APPLY => Ok(Self::Apply(object(read(decode::yaml(bytes))?)?)),
            _ if custom => Err(ApiError::unsupported_media_type(&[JSON_PATCH, MERGE, APPLY])),
            _ => Err(ApiError::unsupported_patch()),
        }
    }

    /// Applies a JSON, merge or strategic patch to `live`; duplicates are those of the patch.
    pub(crate) fn apply_to(
        &self,
        live: &Value,
        call: &Call<'_>,
    ) -> ApiResult<(Value, Vec<String>)> {
        match self {
            Self::Json(patch) => {
                let patched = merge::json_patch(live, patch).map_err(json_patch_failure)?;
                Ok((patched, Vec::new()))
            }
            Self::Merge(patch) => {
                Ok((merge::merge_patch(live, &patch.value), patch.duplicates.clone()))
            }
            Self::Strategic(patch) => {
                let schema = call.served.schema()?;
                let patched = merge::strategic_merge(live, &patch.value, &schema)
                    .map_err(strategic_failure)?;
                Ok((patched, patch.duplicates.clone()))
            }
            Self::Apply(_) => Err(ApiError::internal("apply is not a plain patch")),
        }
    }
}

fn strategic_failure(error: merge::StrategicError) -> ApiError {
    let text = base::Chain(&error).to_string();
    match error.fault() {
        merge::Fault::BadRequest => ApiError::bad_request(text),
        merge::Fault::Unprocessable => ApiError::unprocessable(text),
        merge::Fault::Internal => ApiError::unclassified(text),
    }
}

fn json_patch_failure(error: merge::PatchError) -> ApiError {
    let text = base::Chain(&error).to_string();
    match error {
        merge::PatchError::TooManyOperations { .. } => ApiError::too_large(text),
        merge::PatchError::Malformed { .. } => ApiError::bad_request(text),
        _ => ApiError::unprocessable(format!(
            "the server rejected our request due to an error in our request: {text}"
        )),
    }
}

pub(crate) async fn patch(
    call: &mut Call<'_>,
    bytes: &Bytes,
    options: &WriteOptions,
    endpoint: Endpoint,
) -> ApiResult<VerbResult> {
    match Patch::parse(call, bytes)? {
        Patch::Apply(config) => apply(call, config, options, endpoint).await,
        patch => {
            if options.force.is_some() {
                let error =
                    FieldError::forbidden("force", "may not be specified for non-apply patch");
                return Err(ApiError::invalid_options("PatchOptions", &[error]));
            }
            update::change(call, options, endpoint, |call, live| {
                let (mut object, duplicates) = patch.apply_to(live, call)?;
                intake::take_patched(call, &mut object, duplicates, options.field_validation)?;
                check_identity(call, &object)?;
                check_uid(call, &object, live)?;
                // Only a patch that says so pins the version.
                if object::meta(&object, "resourceVersion") == object::meta(live, "resourceVersion")
                {
                    object::set_meta(&mut object, "resourceVersion", None);
                }
                Ok(Proposal { object, managers_done: false })
            })
            .await
        }
    }
}

fn check_identity(call: &Call<'_>, object: &Value) -> ApiResult<()> {
    if object::name(object) != call.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object::name(object),
            call.path.name
        )));
    }
    if call.served.namespaced && object::namespace(object) != call.path.namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({}) does not match the namespace on the URL ({})",
            object::namespace(object),
            call.path.namespace
        )));
    }
    Ok(())
}

/// A patch is of what is there; one that makes it another object is refused.
fn check_uid(call: &Call<'_>, object: &Value, live: &Value) -> ApiResult<()> {
    let uid = object::uid(object);
    if uid.is_empty() || uid == object::uid(live) {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    Err(ApiError::invalid(call.served.kind_subject(call.path.name), &[error.clone(), error]))
}

/// Server-side apply.
async fn apply(
    call: &mut Call<'_>,
    config: Parsed,
    options: &WriteOptions,
    endpoint: Endpoint,
) -> ApiResult<VerbResult> {
    let Some(manager) = options.field_manager.clone() else {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid_options("PatchOptions", &[error]));
    };
    let config = prepare(call, config, options.field_validation)?;
    let key = call.served.key(call.namespace(), call.path.name);
    if call.api.store.get(&call.served.table, &key).is_none() {
        if endpoint == Endpoint::Status {
            return Err(ApiError::not_found(call.served.subject(call.path.name)));
        }
        if !object::meta(&config, "resourceVersion").is_empty() || !object::uid(&config).is_empty()
        {
            return Err(ApiError::conflict(
                call.served.subject(call.path.name),
                match object::uid(&config) {
                    "" => "resourceVersion precondition given, but the object does not exist"
                        .to_owned(),
                    uid => format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    ),
                },
            ));
        }
        call.require("create")?;
        let mut object = merged(call, None, &config, &manager, options, endpoint)?
            .unwrap_or_else(|| config.clone());
        intake::check_namespace(call, &mut object)?;
        call.served.clean(&mut object, Filling::Whole)?;
        call.served.default(&mut object);
        match create::admit(call, object, options.dry_run).await {
            // Created by another client in between: apply to that.
            Err(error) if error.reason() == "AlreadyExists" => {}
            other => return other,
        }
    }
    update::change(call, options, endpoint, |call, live| {
        let mut object = merged(call, Some(live), &config, &manager, options, endpoint)?
            .unwrap_or_else(|| live.clone());
        call.served.clean(&mut object, Filling::Whole)?;
        call.served.default(&mut object);
        let pinned = object::meta(&config, "resourceVersion");
        object::set_meta(
            &mut object,
            "resourceVersion",
            (!pinned.is_empty()).then(|| pinned.into()),
        );
        Ok(Proposal { object, managers_done: true })
    })
    .await
}

/// Cleans the applied configuration without filling defaults: it owns what it says.
fn prepare(call: &mut Call<'_>, config: Parsed, validation: FieldValidation) -> ApiResult<Value> {
    let Parsed { mut value, duplicates, .. } = config;
    let version = value["apiVersion"].as_str().unwrap_or("").to_owned();
    let kind = value["kind"].as_str().unwrap_or("").to_owned();
    if version != call.served.api_version() || kind != *call.served.kind {
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    if value["metadata"].get("managedFields").is_some_and(|managed| !managed.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let name = object::name(&value);
    if !name.is_empty() && name != call.path.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.path.name
        )));
    }
    object::set_meta(&mut value, "name", Some(call.path.name.into()));
    let unplaced = object::namespace(&value).is_empty();
    intake::check_namespace(call, &mut value)?;
    if unplaced {
        // It owns what it says, and is called by it if it is refused.
        object::set_meta(&mut value, "namespace", None);
    }
    let given = value.clone();
    if !call.served.clean(&mut value, Filling::Sparse).is_ok_and(|unknown| unknown.is_empty()) {
        // The merge refuses what does not fit, and names it by its own kind of path.
        value = given;
    }
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => duplicates.into_iter().for_each(|problem| call.warn(problem)),
        FieldValidation::Strict if duplicates.is_empty() => {}
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "error strict decoding patch: {}",
                duplicates.join(", ")
            )));
        }
    }
    Ok(value)
}

pub(crate) fn merged(
    call: &Call<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    options: &WriteOptions,
    endpoint: Endpoint,
) -> ApiResult<Option<Value>> {
    let facts = facts(call, endpoint)?;
    let request = request(call, manager, &facts);
    merge::apply(live, config, &request, options.force.unwrap_or(false)).map_err(apply_failure)
}

fn apply_failure(error: merge::ApplyError) -> ApiError {
    match error {
        merge::ApplyError::Conflict(conflicts) => {
            let causes =
                conflicts.0.iter().map(|conflict| (conflict.message(), conflict.field())).collect();
            ApiError::apply_conflict(conflicts.to_string(), causes)
        }
        other @ (merge::ApplyError::WrongKind(_) | merge::ApplyError::ManagedFields) => {
            ApiError::bad_request(base::Chain(&other).to_string())
        }
        other => ApiError::unclassified(base::Chain(&other).to_string()),
    }
}
