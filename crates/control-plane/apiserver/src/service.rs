//! One request from its first to its last byte: who, what, may they, do it, answer.
//!
//! This is the only entrance. The network server and in-process clients both call
//! [`Api::handle`], so that a controller is checked and answered like anybody else.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::User;
use http::header::{ACCEPT_ENCODING, HeaderValue};
use http::{Method, Request, request};

use crate::access::authorize;
use crate::access::identity::{self, Transport};
use crate::access::review;
use crate::aggregation;
use crate::api::Api;
use crate::endpoints::component_status;
use crate::endpoints::discovery;
use crate::endpoints::health;
use crate::extension::{self, AuthorizedRequest};
use crate::fairness::{self, RequestTicket};
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::negotiate::{self, Encoding, OfferedForms};
use crate::http::options::{self, ListOptions, Query, WriteOptions};
use crate::http::pretty;
use crate::http::respond::{self, HttpReply};
use crate::http::route::{self, Discovery, ResourcePath, RouteTarget};
use crate::http::warnings::Warnings;
use crate::schemas::served::{Endpoint, ServedKind};
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::read;
use crate::verbs::subresource;
use crate::verbs::watch;
use crate::verbs::write;
use crate::verbs::write::delete::DeleteOptions;

impl Api {
    /// Answers one request.
    pub async fn handle(&self, request: Request<RequestBody>, transport: &Transport) -> HttpReply {
        let id = audit_id(&request);
        let head = request.method() == Method::HEAD;
        let mut reply = match &self.audit {
            None => self.answer_request(request, transport).await,
            Some(audit) => Box::pin(self.answer_audited(audit, request, transport, &id)).await,
        };
        if let Ok(id) = HeaderValue::from_str(&id) {
            reply.headers_mut().insert("audit-id", id);
        }
        if head { respond::without_body(reply) } else { reply }
    }

    pub(crate) async fn answer_request(
        &self,
        request: Request<RequestBody>,
        transport: &Transport,
    ) -> HttpReply {
        let (mut parts, body) = request.into_parts();
        let began = Instant::now();
        let uri = parts.uri.clone();
        let path = match route::decode(uri.path()) {
            Ok(path) => path,
            Err(error) => {
                let error = ApiError::bad_request(error.to_string());
                let paths = extension::open(self, uri.path(), uri.query().unwrap_or(""));
                let shaped = paths.and_then(|paths| paths.refuse(&error.to_value()));
                return shaped.unwrap_or_else(|| respond::failure(&error, error_encoding(&parts)));
            }
        };
        // Extensions and aggregated servers parse the path again.
        parts.uri = route::canonical(&uri, &path);
        if let Some(paths) = extension::open(self, &path, uri.query().unwrap_or("")) {
            return match extension::enter(self, paths, &parts, &path, transport).await {
                Ok(user) => paths.answer(AuthorizedRequest { user, parts, body }).await,
                Err(error) => paths
                    .refuse(&error.to_value())
                    .unwrap_or_else(|| respond::failure(&error, error_encoding(&parts))),
            };
        }
        let query = Query::parse(uri.query().unwrap_or(""));
        let asked = ParsedRequest::new(&parts, &path, &query);
        // Documents are for programs, and a stream has no end.
        let pretty = asked.verb != "watch"
            && !path.starts_with("/openapi/")
            && pretty::is_wanted(&parts, &query);
        if pretty {
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let mut visit = RequestTicket::default();
        let answer = self.answer(&parts, body, transport, &asked, &mut visit).await;
        let mut reply =
            answer.unwrap_or_else(|error| respond::failure(&error, error_encoding(&parts)));
        if pretty {
            reply = pretty::indented(reply).await;
        }
        if let Some(place) = visit.place {
            place.mark(&mut reply);
        }
        let times = (began.elapsed(), visit.waited);
        self.traffic.note(&asked.verb, &asked.target, reply.status().as_u16(), times);
        reply
    }

    async fn answer(
        &self,
        parts: &request::Parts,
        body: RequestBody,
        transport: &Transport,
        asked: &ParsedRequest<'_>,
        visit: &mut RequestTicket,
    ) -> ApiResult<HttpReply> {
        if let Some(oidc) = &self.oidc {
            oidc.prepare(&parts.headers).await;
        }
        let user = identity::authenticate(self, transport, parts)?;
        let user = identity::impersonate(self, user, &parts.headers)?;
        let limit = options::timeout(asked.query)?;
        // Our own work must not wait behind what it may have to finish; work for others waits as
        // theirs.
        let outside = matches!(transport, Transport::Network(_))
            || parts.headers.contains_key("impersonate-user");
        match &asked.target {
            RouteTarget::Resource(target) => {
                // Requests to an aggregated server take no seat: they use none of our processors
                // and may take long.
                if let Some(remote) = aggregation::find(self, target.group, target.version) {
                    allow(self, &user, &asked.verb, target, target.name)?;
                    return aggregation::pass(self, &remote, &user, parts, body).await;
                }
                if let Some(group) = self.extensions.group(target.group) {
                    return extension::call(self, group, target, user, parts, body).await;
                }
                let seat = if outside {
                    visit.place = self.fairness.place(&user, &asked.verb, target);
                    let writes = !matches!(&*asked.verb, "get" | "list" | "watch");
                    visit.enter(self, writes, self.width(asked, target)).await?
                } else {
                    None
                };
                let work =
                    std::pin::pin!(self.resource(parts, body, asked.query, *target, &user, limit));
                let (reply, seat) = fairness::with_seat(seat, work).await;
                let reply = reply?;
                // The stream of a watch costs little, and lasts.
                let seat = seat.filter(|_| asked.verb != "watch");
                Ok(fairness::seated(reply, seat))
            }
            RouteTarget::Discovery(_) | RouteTarget::Other(_) => {
                let seat = if outside {
                    visit.place = self.fairness.place_path(&user, &asked.verb, asked.path);
                    visit.enter(self, false, 1).await?
                } else {
                    None
                };
                authorize::check_path(self, &user, parts.method.as_str(), asked.path)?;
                let reply = self.described(parts, body, asked, &user).await?;
                Ok(fairness::seated(reply, seat))
            }
        }
    }

    /// Discovery, OpenAPI documents, health: all requests that are not for objects.
    async fn described(
        &self,
        parts: &request::Parts,
        body: RequestBody,
        asked: &ParsedRequest<'_>,
        user: &User,
    ) -> ApiResult<HttpReply> {
        let elsewhere = match &asked.target {
            RouteTarget::Discovery(Discovery::Resources { group, version }) => {
                aggregation::find(self, group, version)
            }
            _ => documented_elsewhere(self, asked.path),
        };
        if let Some(remote) = elsewhere {
            only_reads(parts)?;
            return aggregation::pass(self, &remote, user, parts, body).await;
        }
        match &asked.target {
            RouteTarget::Discovery(wanted) => {
                only_reads(parts)?;
                discovery::answer(self, *wanted, &parts.headers)
            }
            _ => health::answer(self, asked.path, parts, asked.query).await,
        }
    }

    /// How many seats a request takes; only lists are large.
    fn width(&self, asked: &ParsedRequest<'_>, target: &ResourcePath<'_>) -> u32 {
        if asked.verb != "list" {
            return 1;
        }
        let catalog = self.catalog.load();
        let served = catalog.find(target.group, target.version, target.resource);
        served.map_or(1, |served| fairness::width(self.store.count(&served.table)))
    }

    async fn resource(
        &self,
        parts: &request::Parts,
        body: RequestBody,
        query: &Query,
        target: ResourcePath<'_>,
        user: &User,
        limit: Duration,
    ) -> ApiResult<HttpReply> {
        let Some(verb) = route::verb(&parts.method, &target, query.wants_watch()) else {
            return Err(ApiError::method_not_allowed());
        };
        // The name that a field selector pins counts as the name that is asked for.
        let selector =
            crate::verbs::selector::FieldSelector::parse(query.get("fieldSelector").unwrap_or(""));
        let pinned = match verb {
            "list" | "watch" | "deletecollection" if target.name.is_empty() => {
                selector.as_ref().ok().and_then(|selector| selector.name()).unwrap_or("")
            }
            _ => target.name,
        };
        allow(self, user, verb, &target, pinned)?;
        let catalog = self.catalog.load();
        let Some(served) = catalog.find(target.group, target.version, target.resource) else {
            return catalog.nothing(target.group, target.version);
        };
        if served.is_custom()
            && served.namespaced
            && verb == "create"
            && target.namespace.is_empty()
        {
            return Ok(respond::nowhere());
        }
        let served = served.clone();
        drop(catalog);
        check_shape(&served, &target)?;
        let mut call = Call {
            api: self,
            user,
            wanted: negotiate::of_request(parts, &served, verb)?,
            served,
            path: target,
            query,
            headers: &parts.headers,
            warnings: Vec::new(),
            notes: Warnings::default(),
        };
        if matches!(call.wanted.form, negotiate::ResponseForm::Table(_)) {
            crate::verbs::table::check(query)?;
        }
        // Writes warn of it together with what their object brings up.
        if !matches!(verb, "create" | "update" | "patch") {
            let custom = call.served.custom();
            call.warnings.extend(custom.and_then(|custom| custom.deprecation(&call.served)));
        }
        call.warnings.extend(call.served.row().and_then(kinds::Resource::deprecation));
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
}

/// A request as far as its first line tells.
struct ParsedRequest<'a> {
    path: &'a str,
    query: &'a Query,
    target: RouteTarget<'a>,
    verb: Cow<'static, str>,
}

impl<'a> ParsedRequest<'a> {
    fn new(parts: &request::Parts, path: &'a str, query: &'a Query) -> Self {
        let target = route::parse(path);
        let verb = match &target {
            RouteTarget::Resource(target) => {
                route::verb(&parts.method, target, query.wants_watch())
            }
            RouteTarget::Discovery(_) | RouteTarget::Other(_) => None,
        };
        let method = || parts.method.as_str().to_ascii_lowercase();
        let verb = verb.map_or_else(|| Cow::Owned(method()), Cow::Borrowed);
        Self { path, query, target, verb }
    }
}

/// The name of a request in logs: its sender may have given it one.
fn audit_id(request: &Request<RequestBody>) -> String {
    let given = request.headers().get("audit-id").and_then(|id| id.to_str().ok());
    let given = given.filter(|id| !id.is_empty() && id.len() <= 64);
    given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// Errors are sent in the client's encoding, where it has one that we speak.
fn error_encoding(parts: &request::Parts) -> Encoding {
    let offer = OfferedForms { protobuf: true, transforms: true };
    negotiate::negotiate(&parts.headers, offer).map_or(Encoding::Json, |wanted| wanted.encoding)
}

/// The aggregated server that has the document of its group: `/openapi/v3/apis/G/V`.
fn documented_elsewhere(api: &Api, path: &str) -> Option<Arc<aggregation::RemoteGroup>> {
    let (group, version) = path.strip_prefix("/openapi/v3/apis/")?.split_once('/')?;
    aggregation::find(api, group, version)
}

fn only_reads(parts: &request::Parts) -> ApiResult<()> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(ApiError::method_not_allowed())
}

fn allow(
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

/// Namespaced kinds need a namespace where one object is meant, and others must have none.
fn check_shape(served: &ServedKind, target: &ResourcePath<'_>) -> ApiResult<()> {
    let is_own_namespace = &*served.plural == "namespaces" && served.group.is_empty();
    let misplaced = !served.namespaced && !target.namespace.is_empty() && !is_own_namespace;
    let homeless = served.namespaced && target.namespace.is_empty() && !target.name.is_empty();
    if misplaced || homeless {
        return Err(ApiError::unknown_resource());
    }
    Ok(())
}

async fn dispatch(
    call: &mut Call<'_>,
    verb: &str,
    parts: &request::Parts,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if !call.path.subresource.is_empty() {
        return subresource::dispatch(call, verb, body).await;
    }
    if !call.served.verbs.contains(&verb) {
        return Err(ApiError::method_not_allowed());
    }
    if &*call.served.table == component_status::TABLE {
        return component_status::answer(call, verb);
    }
    if call.served.verbs.len() == 1 {
        return review::answer(call, body).await;
    }
    match verb {
        "get" => Ok(read::get(call).await?.render(call)),
        "list" => {
            let options = ListOptions::parse(call.query, false)?;
            read::list(call, &options).await
        }
        "watch" => {
            let options = watch_options(call)?;
            if negotiate::is_websocket(parts) {
                return crate::http::websocket::watch(call, &options, parts).await;
            }
            watch::watch(call, &options).await
        }
        _ => change(call, verb, body).await,
    }
}

/// A watch of one name is a watch of the collection that selects it.
fn watch_options(call: &Call<'_>) -> ApiResult<ListOptions> {
    let mut options = ListOptions::parse(call.query, true)?;
    if !call.path.name.is_empty() {
        options.fields.0.push(crate::verbs::selector::FieldTerm {
            field: "metadata.name".to_owned(),
            value: call.path.name.to_owned(),
            equal: true,
        });
    }
    Ok(options)
}

async fn change(call: &mut Call<'_>, verb: &str, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let accepts = if call.served.is_custom() { Accepts::Text } else { Accepts::All };
    let answer = match verb {
        // As upstream, custom resources take their name from the body.
        "create" if !call.path.name.is_empty() && !call.served.is_custom() => {
            return Err(ApiError::method_not_allowed());
        }
        "create" => {
            let options = WriteOptions::parse(call.query, "CreateOptions")?;
            let parsed = body::parse(call.headers, &bytes, accepts)?;
            write::create::create(call, parsed, &options).await?
        }
        "update" => {
            let options = WriteOptions::parse(call.query, "UpdateOptions")?;
            let parsed = body::parse(call.headers, &bytes, accepts)?;
            write::update::replace(call, parsed, &options, Endpoint::Main).await?
        }
        "patch" => {
            let options = WriteOptions::parse(call.query, "PatchOptions")?;
            write::patch::patch(call, &bytes, &options, Endpoint::Main).await?
        }
        "delete" => {
            let options = DeleteOptions::parse(call, &bytes)?;
            write::delete::delete(call, &options).await?
        }
        _ => {
            let options = DeleteOptions::parse(call, &bytes)?;
            let list = ListOptions::parse(call.query, false)?;
            write::collection::delete_collection(call, &list, &options).await?
        }
    };
    crate::verbs::after::written(call).await;
    Ok(answer.render(call))
}
