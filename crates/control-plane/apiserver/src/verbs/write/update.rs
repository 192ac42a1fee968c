//! The loop of every change of an existing object: read, change, validate, compare-and-swap, and
//! again if another write was faster.

use http::StatusCode;
use schema::FieldError;
use serde_json::Value;
use store::{Expect, Write, WriteChange};

use crate::admission::{self, AdmissionOperation, Operation};
use crate::api::ObjectEntry;
use crate::http::decode::Parsed;
use crate::http::options::WriteOptions;
use crate::http::verb_result::VerbResult;
use crate::schemas::conversion;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::subresource::scale;
use crate::verbs::write::{self, PutError, intake};

/// A changed object on its way in.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) object: Value,
    /// Server-side apply keeps its own record of managers.
    pub(crate) managers_done: bool,
}

/// PUT on the object or its status.
pub(crate) async fn replace(
    call: &mut Call<'_>,
    parsed: Parsed,
    options: &WriteOptions,
    endpoint: Endpoint,
) -> ApiResult<VerbResult> {
    let mut object = intake::take(call, parsed, options.field_validation)?;
    intake::check_namespace(call, &mut object)?;
    intake::check_name(call, &object)?;
    let key = call.served.key(call.namespace(), call.path.name);
    let create = endpoint == Endpoint::Main
        && call.served.row().is_some_and(|row| row.strategy.create_on_update);
    let exists = call.api.store.get(&call.served.table, &key).is_some();
    if create && !exists {
        object::set_meta(&mut object, "resourceVersion", None);
        let manager = call.manager(options.field_manager.as_deref());
        write::track(call, None, &mut object, &manager, Endpoint::Main)?;
        return super::create::admit(call, object, options.dry_run).await;
    }
    let pinned = !object::meta(&object, "resourceVersion").is_empty();
    let unconditional = call.served.row().is_some_and(|row| row.strategy.unconditional_update);
    // An object that does not exist is reported as not found, even if the request has other
    // errors.
    if exists && !pinned && !unconditional {
        let error =
            FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(ApiError::invalid(call.served.subject(call.path.name), &[error]));
    }
    change(call, options, endpoint, |_, _| {
        Ok(Proposal { object: object.clone(), managers_done: false })
    })
    .await
}

/// Applies `propose` to the live object until it is stored or refused.
pub(crate) async fn change(
    call: &mut Call<'_>,
    options: &WriteOptions,
    endpoint: Endpoint,
    mut propose: impl FnMut(&mut Call<'_>, &Value) -> ApiResult<Proposal>,
) -> ApiResult<VerbResult> {
    let name = call.path.name.to_owned();
    let key = call.served.key(call.namespace(), &name);
    loop {
        let Some(entry) = call.api.store.get(&call.served.table, &key) else {
            return Err(ApiError::not_found(call.served.subject(&name)));
        };
        let entry = conversion::shown_one(call.api, &call.served, entry).await?;
        let live = call.served.live(&entry);
        let proposal = propose(call, &live)?;
        let pinned = check_preconditions(call, &proposal.object, &live)?;
        let new = settle(call, proposal, &live, options, endpoint).await?;
        match finish(call, new, &live, &entry, options.dry_run).await {
            Ok(answer) => return Ok(answer),
            // Another writer was faster: try again with its object.
            Err(error) if error.is_conflict() && !pinned => {}
            Err(error) => return Err(error.into_api_error(call.served.subject(&name))),
        }
    }
}

/// Whether the client named the version that it changes, and if so whether it is the live one.
fn check_preconditions(call: &Call<'_>, new: &Value, live: &Value) -> ApiResult<bool> {
    let subject = call.served.subject(call.path.name);
    let uid = object::uid(new);
    if !uid.is_empty() && uid != object::uid(live) {
        return Err(ApiError::conflict(
            subject,
            format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                call.served.table,
                call.served.key(call.namespace(), call.path.name),
                object::uid(live),
            ),
        ));
    }
    let wanted = object::meta(new, "resourceVersion");
    if wanted.is_empty() || wanted == "0" {
        return Ok(false);
    }
    if wanted.parse::<u64>().is_err() {
        let error = FieldError::invalid(
            "metadata.resourceVersion",
            wanted,
            "must be a number, as the server gave it",
        );
        return Err(ApiError::invalid(call.served.kind_subject(call.path.name), &[error]));
    }
    if wanted != object::meta(live, "resourceVersion") {
        return Err(ApiError::modified(subject));
    }
    Ok(true)
}

/// From a proposal to an object that may be stored.
async fn settle(
    call: &mut Call<'_>,
    proposal: Proposal,
    live: &Value,
    options: &WriteOptions,
    endpoint: Endpoint,
) -> ApiResult<Value> {
    let mut new = proposal.object;
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
        "generateName",
    ] {
        // generateName may be sent, but the prefix that a name was generated from does not change.
        if field != "generateName" || new["metadata"].get(field).is_none() {
            object::copy_meta(&mut new, live, field);
        }
    }
    if !proposal.managers_done {
        let manager = call.manager(options.field_manager.as_deref());
        write::track(call, Some(live), &mut new, &manager, endpoint)?;
    }
    let act = AdmissionOperation::new(Operation::Update, options.dry_run);
    mutate(call, &act, &mut new, live).await?;
    call.served.prepare_update(&mut new, live, endpoint);
    object::copy_meta(&mut new, live, "resourceVersion");
    // Times of managers move only when something else does.
    let unchanged = merge::equal_ignoring_timestamps(&new, live);
    if unchanged {
        if admission::is_watched(call) {
            admission::validate(call, &act, Some(live), Some(live)).await?;
        }
        return Ok(live.clone());
    }
    let errors = call.served.validate_update(&new, live, endpoint);
    if !errors.is_empty() {
        return Err(ApiError::invalid(call.served.kind_subject(call.path.name), &errors));
    }
    call.warn_of(&new);
    if endpoint == Endpoint::Main {
        let dry_run = options.dry_run;
        admission::complete::complete(call, Operation::Update, &mut new, Some(live), dry_run)
            .await?;
    }
    let warnings = admission::validate(call, &act, Some(&new), Some(live)).await?;
    warnings.into_iter().for_each(|warning| call.warn(warning));
    Ok(new)
}

/// Lets others change the object; below `/scale` they are shown nothing else.
async fn mutate(
    call: &Call<'_>,
    act: &AdmissionOperation<'_>,
    new: &mut Value,
    live: &Value,
) -> ApiResult<()> {
    if call.path.subresource != "scale" {
        return admission::mutate(call, act, new, Some(live)).await;
    }
    if !admission::is_watched(call) {
        return Ok(());
    }
    let mut scale = Some(scale::scale_of(&call.served, new));
    let old = scale::scale_of(&call.served, live);
    admission::outside(call, act, &mut scale, Some(&old)).await?;
    if let Some(scale) = scale {
        scale::set_replicas(&call.served, new, &scale);
    }
    Ok(())
}

async fn finish(
    call: &Call<'_>,
    new: Value,
    live: &Value,
    entry: &ObjectEntry,
    dry_run: bool,
) -> Result<VerbResult, PutError> {
    // Nothing changes: no new revision, and no watcher is woken.
    if new == *live {
        return Ok(VerbResult::ok(entry.clone()));
    }
    if dry_run {
        return Ok(VerbResult::Made(StatusCode::OK, new));
    }
    let expect = Expect::At(entry.revision);
    // The last finalizer is gone: this update completes the deletion.
    if object::is_deleting(&new) && is_finalized(&new) {
        let mut gone = new;
        let removal = Write {
            table: call.served.table.clone(),
            name: entry.name.clone(),
            expect,
            change: WriteChange::Delete,
        };
        let written = write::store(call, removal).await?;
        crate::verbs::after::removed(call, &gone).await;
        object::set_meta(&mut gone, "resourceVersion", Some(written.revision.to_string().into()));
        return Ok(VerbResult::Made(StatusCode::OK, gone));
    }
    write::put(call, new, expect).await.map(|written| VerbResult::ok(written.entry))
}

/// No finalizer holds the object, and its grace period (pods only) is over.
fn is_finalized(object: &Value) -> bool {
    object::finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && object["spec"]["finalizers"]
            .as_array()
            .is_none_or(|list| object["kind"] != "Namespace" || list.is_empty())
}
