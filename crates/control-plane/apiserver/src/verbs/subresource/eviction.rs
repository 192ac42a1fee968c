//! `/pods/N/eviction`: a polite deletion. Webhooks and extensions are asked first; then
//! disruption budgets are honoured where they carry a status.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::{self, AdmissionOperation, Operation};
use crate::extension::EvictionMode;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::respond::HttpReply;
use crate::http::verb_result::VerbResult;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::selector::LabelSelector;
use crate::verbs::write::delete::{self, DeleteOptions};

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
    check_budgets(call, &pod)?;
    let options = DeleteOptions {
        dry_run,
        grace_seconds: wanted["gracePeriodSeconds"].as_i64(),
        uid: wanted["preconditions"]["uid"].as_str().map(str::to_owned),
        ..DeleteOptions::default()
    };
    delete::delete(call, &options).await?;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(VerbResult::Status(StatusCode::CREATED, status).render(call))
}

fn check_budgets(call: &Call<'_>, pod: &Value) -> ApiResult<()> {
    let range = store::Range { prefix: &format!("{}/", call.namespace()), ..Default::default() };
    let Ok(page) = call.api.store.list("poddisruptionbudgets", range) else { return Ok(()) };
    for entry in page.entries {
        let budget = entry.item.to_value();
        let selector = LabelSelector::of(&budget["spec"]["selector"]);
        let labels = &pod["metadata"]["labels"];
        let covers =
            !selector.is_empty() && selector.matches(|key| labels.get(key).and_then(Value::as_str));
        if !covers {
            continue;
        }
        let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let name = object::name(&budget);
        // Nobody has counted yet what this budget is about.
        if number("/status/observedGeneration") < number("/metadata/generation") {
            let why =
                format!("The disruption budget {name} is still being processed by the server.");
            return Err(ApiError::disruption(why).retry_after(10));
        }
        if number("/status/disruptionsAllowed") <= 0 {
            let why = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("/status/desiredHealthy"),
                number("/status/currentHealthy"),
            );
            return Err(ApiError::disruption(why));
        }
    }
    Ok(())
}
