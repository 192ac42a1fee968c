//! `/status`, `/scale`, `/finalize` and the others that hang below an object.

mod approval;
mod binding;
mod eviction;
mod finalize;
pub(crate) mod scale;
mod token;

use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::WriteOptions;
use crate::http::respond::HttpReply;
use crate::http::verb::Verb;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::read;
use crate::verbs::write::{patch, update};

pub(crate) async fn dispatch(
    call: &mut Call<'_>,
    verb: Verb,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    let Some(sub) = call.served.subresource(call.path.subresource).cloned() else {
        if call.served.is_custom() {
            return Err(ApiError::not_found(call.served.subject(call.path.name)));
        }
        return Err(ApiError::unknown_resource());
    };
    if !verb.is_in(sub.verbs) {
        return Err(ApiError::method_not_allowed());
    }
    let reply = match sub.name {
        "status" => status(call, verb, body).await,
        "scale" => scale::answer(call, verb, body).await,
        "finalize" => finalize::answer(call, body).await,
        "token" => token::answer(call, body).await,
        "approval" => approval::answer(call, verb, body).await,
        "eviction" => eviction::answer(call, body).await,
        "binding" => binding::answer(call, body).await,
        "ephemeralcontainers" | "resize" if verb == Verb::Get => {
            Ok(read::get(call).await?.render(call))
        }
        other => Err(unreachable_pod(call, other)),
    };
    crate::verbs::after::written(call).await;
    reply
}

/// Subresources of a running pod are not available: this server has no pod runtime.
fn unreachable_pod(call: &Call<'_>, subresource: &str) -> ApiError {
    let key = call.served.key(call.namespace(), call.path.name);
    let Some(entry) = call.api.store.get(&call.served.table, &key) else {
        return ApiError::not_found(call.served.subject(call.path.name));
    };
    let pod = call.served.live(&entry);
    let rules = &call.api.extensions.rules;
    if let Some(reason) = rules.iter().find_map(|own| own.explain_pod(&pod, subresource)) {
        return ApiError::unsupported(reason);
    }
    ApiError::unsupported(format!(
        "the subresource {subresource:?} of {} needs a pod runtime, which this server does not have",
        call.served.qualified()
    ))
}

/// The options kind that errors name, by verb.
fn options(call: &Call<'_>, verb: Verb) -> ApiResult<WriteOptions> {
    WriteOptions::parse(call.query, verb.options_kind())
}

fn accepts(call: &Call<'_>) -> Accepts {
    if call.served.is_custom() { Accepts::Text } else { Accepts::All }
}

async fn status(call: &mut Call<'_>, verb: Verb, body: RequestBody) -> ApiResult<HttpReply> {
    if verb == Verb::Get {
        return Ok(read::get(call).await?.render(call));
    }
    let bytes = body::read(body).await?;
    let options = options(call, verb)?;
    let answer = if verb == Verb::Update {
        let parsed = body::parse(call.headers, &bytes, accepts(call))?;
        update::replace(call, parsed, &options, Endpoint::Status).await?
    } else {
        patch::patch(call, &bytes, &options, Endpoint::Status).await?
    };
    Ok(answer.render(call))
}
