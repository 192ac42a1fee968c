//! From a verb to the function that answers it.

use http::request::Parts;

use crate::access::review;
use crate::endpoints::component_status;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::negotiate;
use crate::http::options::{ListOptions, WriteOptions};
use crate::http::respond::HttpReply;
use crate::http::verb::Verb;
use crate::schemas::served::Endpoint;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::read;
use crate::verbs::selector::FieldTerm;
use crate::verbs::subresource;
use crate::verbs::watch;
use crate::verbs::write;
use crate::verbs::write::delete::DeleteOptions;

pub(super) async fn dispatch(
    call: &mut Call<'_>,
    verb: Verb,
    parts: &Parts,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if !call.path.subresource.is_empty() {
        return subresource::dispatch(call, verb, body).await;
    }
    if !verb.is_in(call.served.verbs) {
        return Err(ApiError::method_not_allowed());
    }
    if &*call.served.table == component_status::TABLE {
        return component_status::answer(call, verb);
    }
    if call.served.verbs.len() == 1 {
        return review::answer(call, body).await;
    }
    match verb {
        Verb::Get => Ok(read::get(call).await?.render(call)),
        Verb::List => {
            let options = ListOptions::parse(call.query, false)?;
            read::list(call, &options).await
        }
        Verb::Watch => {
            let options = watch_options(call)?;
            if negotiate::is_websocket(parts) {
                return crate::http::websocket::watch(call, &options, parts).await;
            }
            watch::watch(call, &options).await
        }
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            change(call, verb, body).await
        }
    }
}

/// A watch of one name is a watch of the collection that selects it.
fn watch_options(call: &Call<'_>) -> ApiResult<ListOptions> {
    let mut options = ListOptions::parse(call.query, true)?;
    if !call.path.name.is_empty() {
        options.fields.0.push(FieldTerm {
            field: "metadata.name".to_owned(),
            value: call.path.name.to_owned(),
            equal: true,
        });
    }
    Ok(options)
}

async fn change(call: &mut Call<'_>, verb: Verb, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let accepts = if call.served.is_custom() { Accepts::Text } else { Accepts::All };
    let answer = match verb {
        // As upstream, custom resources take their name from the body.
        Verb::Create if !call.path.name.is_empty() && !call.served.is_custom() => {
            return Err(ApiError::method_not_allowed());
        }
        Verb::Create => {
            let options = WriteOptions::parse(call.query, verb.options_kind())?;
            let parsed = body::parse(call.headers, &bytes, accepts)?;
            write::create::create(call, parsed, &options).await?
        }
        Verb::Update => {
            let options = WriteOptions::parse(call.query, verb.options_kind())?;
            let parsed = body::parse(call.headers, &bytes, accepts)?;
            write::update::replace(call, parsed, &options, Endpoint::Main).await?
        }
        Verb::Patch => {
            let options = WriteOptions::parse(call.query, verb.options_kind())?;
            write::patch::patch(call, &bytes, &options, Endpoint::Main).await?
        }
        Verb::Delete => {
            let options = DeleteOptions::parse(call, &bytes)?;
            write::delete::delete(call, &options).await?
        }
        Verb::DeleteCollection => {
            let options = DeleteOptions::parse(call, &bytes)?;
            let list = ListOptions::parse(call.query, false)?;
            write::collection::delete_collection(call, &list, &options).await?
        }
        Verb::Get | Verb::List | Verb::Watch => return Err(ApiError::method_not_allowed()),
    };
    crate::verbs::after::written(call).await;
    Ok(answer.render(call))
}
