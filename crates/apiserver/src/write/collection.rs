//! DELETE of a collection: each matching object in turn, then a list of what was deleted.

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::options::ListOptions;
use crate::read::{self, Selection};
use crate::status::ApiResult;
use crate::write::delete::{DeleteOptions, delete_key};

pub(crate) async fn delete_collection(
    call: &mut Call<'_>,
    list: &ListOptions,
    options: &DeleteOptions,
) -> ApiResult<Answer> {
    let page = read::page(call, list).await?;
    let selection = Selection::new(&call.served, list)?;
    let mut items = Vec::new();
    for entry in page.entries {
        let object = call.served.live(&entry);
        debug_assert!(selection.matches(&call.served, &entry));
        match delete_key(call, &entry.name, options).await {
            Ok(_) => items.push(object),
            // Gone already: that is what was asked for.
            Err(error) if error.reason() == "NotFound" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer::Status(StatusCode::OK, list_of(call, items, page.revision)))
}

fn list_of(call: &Call<'_>, items: Vec<Value>, revision: u64) -> Value {
    json!({
        "kind": &*call.served.list_kind,
        "apiVersion": call.served.api_version(),
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    })
}
