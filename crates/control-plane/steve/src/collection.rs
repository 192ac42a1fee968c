//! Lists of resources.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::bundle;
use crate::caller::TABLE;
use crate::envelope::{self, EnvelopeContext, ObjectRow};
use crate::error::SteveError;
use crate::object_rights::{self, RightsByNamespace};
use crate::objects::ResourceCall;
use crate::query::ListQuery;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::type_name;

const VERSIONS: &str = "harvesterhci.io.virtualmachinetemplateversions";
const TEMPLATE_LABEL: &str = "template.harvesterhci.io/templateID";

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
    if call.kind.is("", "namespaces") && asked.parameter("link").as_deref() == Some("supportbundle")
    {
        return selected(call, asked, namespace, ListQuery::parse(&named(&bundle::NAMESPACES))?)
            .await;
    }
    selected(call, asked, namespace, ListQuery::parse(asked.query())?).await
}

/// The query for objects with one of these names.
fn named(names: &[&str]) -> String {
    let filters: Vec<String> = names.iter().map(|name| format!("metadata.name='{name}'")).collect();
    form_urlencoded::Serializer::new(String::new())
        .append_pair("filter", &filters.join(","))
        .finish()
}

/// The versions of a template, which are another kind than the template itself.
pub(crate) async fn template_versions(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    namespace: &str,
    template: &str,
) -> SteveResult {
    if !asked.is_read() {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    let (catalog, kind) = call.steve.kinds.find(&call.steve.client, VERSIONS).await?;
    let versions = ResourceCall { catalog: &catalog, kind: &kind, ..*call };
    let text = format!("{TEMPLATE_LABEL}={template}");
    let query: String = form_urlencoded::Serializer::new(String::new())
        .append_pair("labelSelector", &text)
        .finish();
    selected(&versions, asked, namespace, ListQuery::parse(&query)?).await
}

async fn selected(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    namespace: &str,
    query: ListQuery,
) -> SteveResult {
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
    let mut rights = RightsByNamespace::new(call.session, call.kind);
    let mut data = Vec::with_capacity(page.items.len());
    for row in page.items {
        let namespace = object_rights::namespace_of(call.kind, &row.object).to_owned();
        let mut resource = envelope::wrap(&context, row, rights.of(&namespace).await?);
        query.prune(&mut resource);
        data.push(resource);
    }
    let own = format!("{origin}{}", asked.parts.uri.path());
    let actions = rights.of_collection(namespace).await?.iter();
    let actions: Map<String, Value> =
        actions.map(|name| ((*name).to_owned(), format!("{own}?action={name}").into())).collect();
    let mut collection = json!({
        "type": "collection", "links": {"self": own}, "createTypes": {}, "actions": actions,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_selected_by_name() {
        let query = ListQuery::parse(&named(&["local", "fleet-local"])).unwrap();
        let items = ["local", "fleet-local", "fleet-local-2", "default"];
        let items = items.map(|name| json!({"metadata": {"name": name}})).to_vec();
        let page = query.arrange(items, |item| item);
        let names: Vec<&Value> = page.items.iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, ["local", "fleet-local"]);
    }
}
