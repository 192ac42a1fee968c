//! Lists of resources.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::caller::TABLE;
use crate::envelope::{self, EnvelopeContext, ObjectRow};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::query::ListQuery;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::rights::Rights;
use crate::type_name;

/// The objects of a list, and what the list itself says.
struct Listed {
    rows: Vec<ObjectRow>,
    revision: Value,
    continue_token: Value,
}

/// Answers with the resources of a namespace, or of all that the caller may list.
pub(crate) async fn answer(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    namespace: &str,
) -> SteveResult {
    let query = ListQuery::parse(asked.query())?;
    let listed = match list(call, &query, namespace).await {
        Err(error) if error.status == StatusCode::FORBIDDEN && spans(call, namespace) => {
            each_namespace(call, &query, error).await?
        }
        outcome => outcome?,
    };
    let page = query.arrange(listed.rows, |row| &row.object);
    let (origin, pods) = (asked.origin(), call.pods(namespace).await);
    let context = EnvelopeContext {
        kind: call.kind,
        catalog: call.catalog,
        origin: &origin,
        prefix: call.route.prefix,
        pods: &pods,
    };
    let mut rights: BTreeMap<String, Rights> = BTreeMap::new();
    let mut data = Vec::with_capacity(page.items.len());
    for row in page.items {
        let namespace = row.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        if !rights.contains_key(&namespace) {
            rights.insert(namespace.clone(), call.rights(&namespace).await?);
        }
        let mut resource = envelope::wrap(&context, row, &rights[&namespace]);
        query.prune(&mut resource);
        data.push(resource);
    }
    let own = format!("{origin}{}", asked.parts.uri.path());
    let mut collection = json!({
        "type": "collection", "links": {"self": own}, "createTypes": {}, "actions": {},
        "resourceType": type_name::id(call.kind), "revision": listed.revision,
        "count": page.count, "data": data,
    });
    if let Some(pages) = page.pages {
        collection["pages"] = pages.into();
    }
    if listed.continue_token.as_str().is_some_and(|token| !token.is_empty()) {
        collection["continue"] = listed.continue_token;
    }
    if reply::wants_yaml(&asked.parts.headers) {
        return reply::yaml(StatusCode::OK, &collection);
    }
    Ok(reply::json(StatusCode::OK, &collection))
}

fn spans(call: &ResourceCall<'_>, namespace: &str) -> bool {
    call.kind.namespaced && namespace.is_empty()
}

async fn list(
    call: &ResourceCall<'_>,
    query: &ListQuery,
    namespace: &str,
) -> Result<Listed, SteveError> {
    let path = format!("{}?{}", call.kind.path(namespace), query.upstream());
    let mut answer = call.session.send(Method::GET, &path, "application/json", &[], TABLE).await?;
    let revision = answer["metadata"]["resourceVersion"].take();
    let continue_token = answer["metadata"]["continue"].take();
    Ok(Listed { rows: envelope::rows(answer), revision, continue_token })
}

/// The objects of every namespace in which the caller may list them; why not, if there is none.
async fn each_namespace(
    call: &ResourceCall<'_>,
    query: &ListQuery,
    refused: SteveError,
) -> Result<Listed, SteveError> {
    let mut all: Option<Listed> = None;
    for namespace in call.steve.namespaces().await? {
        match list(call, query, &namespace).await {
            Ok(found) => match &mut all {
                Some(all) => all.rows.extend(found.rows),
                None => all = Some(Listed { continue_token: Value::Null, ..found }),
            },
            Err(error) if error.status == StatusCode::FORBIDDEN => {}
            Err(error) => return Err(error),
        }
    }
    all.ok_or(refused)
}
