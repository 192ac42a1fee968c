//! Requests for objects, after the queue: authorization, kind, form, and the time limit of the verb.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use auth::User;
use http::request::Parts;

use super::dispatch::dispatch;
use super::error_encoding;
use super::request::ParsedRequest;
use crate::access::authorize;
use crate::api::Api;
use crate::http::body::RequestBody;
use crate::http::negotiate;
use crate::http::options::Query;
use crate::http::respond::{self, HttpReply};
use crate::http::route::ResourcePath;
use crate::http::verb::{RequestVerb, Verb};
use crate::http::warnings::Warnings;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::selector::FieldSelector;

impl Api {
    pub(super) async fn resource(
        &self,
        parts: &Parts,
        body: RequestBody,
        asked: &ParsedRequest<'_>,
        target: ResourcePath<'_>,
        user: &User,
        limit: Duration,
    ) -> ApiResult<HttpReply> {
        let RequestVerb::Resource(verb) = asked.verb else {
            return Err(ApiError::method_not_allowed());
        };
        allow(self, user, verb.as_str(), &target, &authorized_name(verb, &target, asked.query))?;
        let catalog = self.catalog.load();
        let Some(served) = catalog.find(target.group, target.version, target.resource) else {
            return catalog.nothing(target.group, target.version);
        };
        if served.is_custom()
            && served.namespaced
            && verb == Verb::Create
            && target.namespace.is_empty()
        {
            return Ok(respond::nowhere());
        }
        let served = served.clone();
        drop(catalog);
        check_shape(&served, &target)?;
        let mut call = self.call(parts, verb, asked.query, target, user, served)?;
        let work = dispatch(&mut call, verb, parts, body);
        // A watch only has to begin in time; its stream lives as long as it wants.
        let mut reply = match tokio::time::timeout(limit, work).await {
            // Refused requests get the collected warnings as well.
            Ok(result) => {
                result.unwrap_or_else(|error| respond::failure(&error, error_encoding(parts)))
            }
            Err(_) => {
                return Err(ApiError::timeout(format!(
                    "Timeout: request did not complete within the allotted {}s",
                    limit.as_secs()
                )));
            }
        };
        call.notes.warnings().into_iter().for_each(|warning| call.warn(warning));
        respond::warn(&mut reply, &call.warnings);
        Ok(reply)
    }

    /// The request with its kind and the form of its answer.
    fn call<'a>(
        &'a self,
        parts: &'a Parts,
        verb: Verb,
        query: &'a Query,
        path: ResourcePath<'a>,
        user: &'a User,
        served: Arc<ServedKind>,
    ) -> ApiResult<Call<'a>> {
        let wanted = negotiate::of_request(parts, &served, verb)?;
        if matches!(wanted.form, negotiate::ResponseForm::Table(_)) {
            crate::verbs::table::check(query)?;
        }
        let mut warnings = Vec::new();
        // Writes warn of it together with what their object brings up.
        if !verb.takes_object() {
            warnings.extend(served.custom().and_then(|custom| custom.deprecation(&served)));
        }
        warnings.extend(served.row().and_then(kinds::Resource::deprecation));
        let (headers, notes) = (&parts.headers, Warnings::default());
        Ok(Call { api: self, user, wanted, served, path, query, headers, warnings, notes })
    }
}

/// The name that the right has to cover: one that a field selector pins counts as that of the path.
fn authorized_name<'a>(verb: Verb, target: &ResourcePath<'a>, query: &Query) -> Cow<'a, str> {
    if !verb.is_collective() || !target.name.is_empty() {
        return Cow::Borrowed(target.name);
    }
    let selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""));
    let pinned = selector.ok().and_then(|selector| selector.name().map(str::to_owned));
    pinned.map_or(Cow::Borrowed(""), Cow::Owned)
}

pub(super) fn allow(
    api: &Api,
    user: &User,
    verb: &str,
    target: &ResourcePath<'_>,
    name: &str,
) -> ApiResult<()> {
    let attributes = auth::Attributes {
        verb,
        target: auth::AccessTarget::Resource(auth::ResourceRequest {
            group: target.group,
            version: target.version,
            resource: target.resource,
            subresource: target.subresource,
            namespace: target.namespace,
            name,
        }),
    };
    let subject =
        StatusSubject { group: target.group, resource: target.resource, name: target.name };
    authorize::check(api, user, &attributes, subject)
}

/// Namespaced kinds need a namespace where one object is meant, and others must have none. The path
/// of a Namespace has its name in both places: rights in one namespace are no rights to another.
fn check_shape(served: &ServedKind, target: &ResourcePath<'_>) -> ApiResult<()> {
    let is_own_namespace = &*served.plural == "namespaces"
        && served.group.is_empty()
        && target.namespace == target.name;
    let is_misplaced = !served.namespaced && !target.namespace.is_empty() && !is_own_namespace;
    let lacks_namespace =
        served.namespaced && target.namespace.is_empty() && !target.name.is_empty();
    if is_misplaced || lacks_namespace {
        return Err(ApiError::unknown_resource());
    }
    Ok(())
}
