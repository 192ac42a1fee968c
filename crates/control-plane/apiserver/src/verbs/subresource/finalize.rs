//! `/namespaces/N/finalize`: the one way to change a namespace's `spec.finalizers`.

use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::WriteOptions;
use crate::http::respond::HttpReply;
use crate::schemas::served::Endpoint;
use crate::status::ApiResult;
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::write::intake;
use crate::verbs::write::update::{self, Proposal};

pub(super) async fn answer(call: &mut Call<'_>, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let options = WriteOptions::parse(call.query, "UpdateOptions")?;
    let parsed = body::parse(call.headers, &bytes, Accepts::All)?;
    let wanted = intake::take(call, parsed, options.field_validation)?;
    intake::check_name(call, &wanted)?;
    let finalizers = wanted["spec"]["finalizers"].clone();
    let pinned = wanted["metadata"].get("resourceVersion").cloned();
    let answer = update::change(call, &options, Endpoint::Finalize, |_, live| {
        let mut object = live.clone();
        object::set_meta(&mut object, "resourceVersion", pinned.clone());
        match finalizers.as_array().filter(|list| !list.is_empty()) {
            Some(list) => object["spec"]["finalizers"] = list.clone().into(),
            None => {
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove("finalizers");
                }
            }
        }
        Ok(Proposal { object, managers_done: false })
    })
    .await?;
    Ok(answer.render(call))
}
