//! DELETE of a collection: each matching object, several at a time, then a list of what was
//! deleted.

use futures_util::StreamExt as _;
use futures_util::stream;
use http::StatusCode;
use serde_json::{Value, json};

use crate::api::ObjectEntry;
use crate::http::options::ListOptions;
use crate::http::verb_result::VerbResult;
use crate::schemas::conversion;
use crate::status::ApiResult;
use crate::verbs::call::Call;
use crate::verbs::read;
use crate::verbs::write::delete::{DeleteOptions, delete_key};

/// Deletions under way at once: enough to share a sync, few enough to leave room for others.
const AT_ONCE: usize = 32;

pub(crate) async fn delete_collection(
    call: &mut Call<'_>,
    list: &ListOptions,
    options: &DeleteOptions,
) -> ApiResult<VerbResult> {
    let mut page = read::page(call, list).await?;
    page.entries = conversion::shown(call.api, &call.served, page.entries).await?;
    let revision = page.revision;
    let call = &*call;
    let outcomes: Vec<ApiResult<Option<Value>>> = stream::iter(page.entries)
        .map(|entry| delete_one(call, entry, options))
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut items = Vec::new();
    for outcome in outcomes {
        items.extend(outcome?);
    }
    Ok(VerbResult::Status(StatusCode::OK, list_of(call, items, revision)))
}

/// The object as it was, or nothing if it was gone already, which is what was asked for.
async fn delete_one(
    call: &Call<'_>,
    entry: ObjectEntry,
    options: &DeleteOptions,
) -> ApiResult<Option<Value>> {
    match delete_key(call, &entry.name, options).await {
        Ok(_) => Ok(Some(call.served.live(&entry))),
        Err(error) if error.reason() == "NotFound" => Ok(None),
        Err(error) => Err(error),
    }
}

fn list_of(call: &Call<'_>, mut items: Vec<Value>, revision: u64) -> Value {
    // Items of typed lists carry neither apiVersion nor kind.
    for item in
        items.iter_mut().filter_map(Value::as_object_mut).filter(|_| !call.served.is_custom())
    {
        item.remove("apiVersion");
        item.remove("kind");
    }
    json!({
        "kind": &*call.served.list_kind,
        "apiVersion": call.served.api_version(),
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    })
}
