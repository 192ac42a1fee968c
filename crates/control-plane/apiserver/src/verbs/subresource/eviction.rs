//! `/pods/N/eviction`: a polite deletion. Webhooks and extensions are asked first, then the
//! disruption budget of the pod.

mod budget;

use http::StatusCode;
use serde_json::{Value, json};

use self::budget::StateGuard;
use crate::admission::{self, AdmissionOperation, Operation};
use crate::extension::EvictionMode;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::respond::HttpReply;
use crate::http::verb_result::VerbResult;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::delete::{self, DeleteOptions};

/// How often an eviction is tried when other writers are faster, as upstream.
const ATTEMPTS: usize = 20;

pub(super) async fn answer(call: &mut Call<'_>, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let eviction = body::parse(call.headers, &bytes, Accepts::All)?.value;
    let name = object::name(&eviction);
    if !name.is_empty() && name != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let key = call.served.key(call.namespace(), call.path.name);
    let Some(entry) = call.api.store.get(&call.served.table, &key) else {
        return Err(ApiError::not_found(call.served.subject(call.path.name)));
    };
    let wanted = &eviction["deleteOptions"];
    let dry_run = wanted["dryRun"].as_array().is_some_and(|list| !list.is_empty())
        || call.query.all("dryRun").iter().any(|value| value == "All");
    let act = AdmissionOperation::new(Operation::Create, dry_run);
    admission::outside(call, &act, &mut Some(eviction.clone()), None).await?;
    let pod = call.served.live(&entry);
    let mode = if dry_run { EvictionMode::DryRun } else { EvictionMode::Real };
    for reviewer in &call.api.extensions.evictions {
        reviewer.review(&pod, &eviction, mode).await.map_err(ApiError::denied)?;
    }
    let options = DeleteOptions {
        dry_run,
        grace_seconds: wanted["gracePeriodSeconds"].as_i64(),
        uid: wanted["preconditions"]["uid"].as_str().map(str::to_owned),
        revision: wanted["preconditions"]["resourceVersion"].as_str().map(str::to_owned),
        ..DeleteOptions::default()
    };
    evict(call, &key, &options).await?;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(VerbResult::Status(StatusCode::CREATED, status).render(call))
}

/// Deletes the pod if its disruption budget allows it. A pod that needs no permission is deleted
/// in the state that was checked only: it may become ready meanwhile.
async fn evict(call: &Call<'_>, key: &str, options: &DeleteOptions) -> ApiResult<()> {
    for _ in 0..ATTEMPTS {
        let Some(entry) = call.api.store.get(&call.served.table, key) else {
            return Err(ApiError::not_found(call.served.subject(call.path.name)));
        };
        let pod = call.served.live(&entry);
        let guard = match budget::exemption(&pod) {
            Some(guard) => guard,
            None => return evict_within_budget(call, &pod, options).await,
        };
        match delete_guarded(call, &pod, options, guard).await {
            Err(error) if error.code() == StatusCode::CONFLICT && options.revision.is_none() => {}
            deleted => return deleted,
        }
    }
    Err(ApiError::modified(call.served.subject(call.path.name)))
}

async fn evict_within_budget(
    call: &Call<'_>,
    pod: &Value,
    options: &DeleteOptions,
) -> ApiResult<()> {
    let Some(entry) = budget::of_pod(call, pod)? else {
        return delete_guarded(call, pod, options, StateGuard::AnyState).await;
    };
    let own = entry.item.to_value();
    if budget::allows_unready(&own, pod) {
        let deleted = delete_guarded(call, pod, options, StateGuard::SameRevision).await;
        return match deleted {
            Err(error) if error.code() == StatusCode::CONFLICT && options.revision.is_none() => {
                Err(budget::still_processed(object::name(&own)))
            }
            deleted => deleted,
        };
    }
    budget::take(call, entry, object::name(pod), options.dry_run).await?;
    delete_guarded(call, pod, options, StateGuard::AnyState).await
}

async fn delete_guarded(
    call: &Call<'_>,
    pod: &Value,
    options: &DeleteOptions,
    guard: StateGuard,
) -> ApiResult<()> {
    let mut options = options.clone();
    if guard == StateGuard::SameRevision && options.revision.is_none() {
        options.revision = Some(object::meta(pod, "resourceVersion").to_owned());
    }
    delete::delete(call, &options).await.map(drop)
}
