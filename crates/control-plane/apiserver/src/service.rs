//! One request from its first to its last byte. This is the only entrance: the network server and
//! in-process clients both call [`Api::handle`], so that a controller is checked and answered like
//! any other client.
//!
//! | stage | where | why there |
//! |---|---|---|
//! | path | `http::route` | decoded once, so that the authorized path is the path that is served |
//! | extension path | `extension` | has its own rights and its own form of errors |
//! | verb and target | `service::request` | everything that follows is decided by them |
//! | user | `access::identity` | certificate or token, then impersonation, which is authorized as the user who asks for it |
//! | delegation | `aggregation`, `extension` | before the queues: it uses none of our processors and may take long |
//! | queue | `fairness` | before authorization, so that a flood of forbidden requests waits as well |
//! | authorization | `access::authorize` | before the kind is looked up: a refusal does not reveal which kinds exist |
//! | kind, form | `service::resource` | what cannot be answered is refused before a body is read |
//! | verb | `service::dispatch` | reads it from memory, or reads the body and writes |
//! | reply | [`Api::answer_request`] | warnings, indentation, flow headers and metrics are the same for all |

mod dispatch;
mod request;
mod resource;

use std::sync::Arc;
use std::time::Instant;

use auth::User;
use base::clock;
use http::header::{ACCEPT_ENCODING, HeaderValue};
use http::{Method, Request, request::Parts};

use crate::access::authorize;
use crate::access::identity::{self, Transport};
use crate::aggregation;
use crate::api::Api;
use crate::endpoints::discovery;
use crate::endpoints::health;
use crate::extension::{self, AuthorizedRequest, Paths};
use crate::fairness::{self, RequestTicket};
use crate::http::body::RequestBody;
use crate::http::negotiate::{self, Encoding, OfferedForms};
use crate::http::options::{self, Query};
use crate::http::pretty;
use crate::http::respond::{self, HttpReply};
use crate::http::route::{self, Discovery, ResourcePath, RouteTarget};
use crate::http::verb::Verb;
use crate::status::{ApiError, ApiResult};
use request::{ParsedRequest, audit_id};

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
            Err(error) => return self.refuse_path(&parts, &error),
        };
        // Extensions and aggregated servers parse the path again.
        parts.uri = route::canonical(&uri, &path);
        if let Some(paths) = extension::open(self, &path, uri.query().unwrap_or("")) {
            return self.extension_path(paths, parts, body, &path, transport).await;
        }
        let query = Query::parse(uri.query().unwrap_or(""));
        let asked = ParsedRequest::new(&parts, &path, &query);
        let is_indented = asked.may_be_indented() && pretty::is_wanted(&parts, &query);
        if is_indented {
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let mut ticket = RequestTicket::default();
        let answer = self.answer(&parts, body, transport, &asked, &mut ticket).await;
        let mut reply =
            answer.unwrap_or_else(|error| respond::failure(&error, error_encoding(&parts)));
        if is_indented {
            reply = pretty::indented(reply).await;
        }
        if let Some(flow) = ticket.flow {
            flow.mark(&mut reply);
        }
        if let Transport::Network(Some(peer)) = transport
            && peer.certificate.ends_soon(clock::now())
        {
            respond::warn(&mut reply, &[peer.certificate.warning()]);
        }
        let times = (began.elapsed(), ticket.waited);
        self.traffic.note(asked.verb.as_str(), &asked.target, reply.status().as_u16(), times);
        reply
    }

    /// A path that cannot be decoded, in the form of the extension that it would have belonged to.
    fn refuse_path(&self, parts: &Parts, error: &route::PathError) -> HttpReply {
        let error = ApiError::bad_request(error.to_string());
        let paths = extension::open(self, parts.uri.path(), parts.uri.query().unwrap_or(""));
        refusal(paths, &error, parts)
    }

    async fn extension_path(
        &self,
        paths: &Arc<dyn Paths>,
        parts: Parts,
        body: RequestBody,
        path: &str,
        transport: &Transport,
    ) -> HttpReply {
        match extension::enter(self, paths, &parts, path, transport).await {
            Ok(user) => paths.answer(AuthorizedRequest { user, parts, body }).await,
            Err(error) => refusal(Some(paths), &error, &parts),
        }
    }

    async fn answer(
        &self,
        parts: &Parts,
        body: RequestBody,
        transport: &Transport,
        asked: &ParsedRequest<'_>,
        ticket: &mut RequestTicket,
    ) -> ApiResult<HttpReply> {
        if let Some(oidc) = &self.oidc {
            oidc.prepare(&parts.headers).await;
        }
        let user = identity::authenticate(self, transport, parts)?;
        let user = identity::impersonate(self, user, &parts.headers)?;
        let limit = options::timeout(asked.query)?;
        // Our own work must not wait behind what it may have to finish; work for others waits as
        // theirs.
        let is_queued = matches!(transport, Transport::Network(_))
            || parts.headers.contains_key("impersonate-user");
        let target = match &asked.target {
            RouteTarget::Resource(target) => target,
            RouteTarget::Discovery(_) | RouteTarget::Other(_) => {
                let seat = match is_queued {
                    true => ticket.enter_path(self, &user, asked.verb.as_str(), asked.path).await?,
                    false => None,
                };
                authorize::check_path(self, &user, parts.method.as_str(), asked.path)?;
                let reply = self.described(parts, body, asked, &user).await?;
                return Ok(fairness::seated(reply, seat));
            }
        };
        if let Some(remote) = aggregation::find(self, target.group, target.version) {
            resource::allow(self, &user, asked.verb.as_str(), target, target.name)?;
            return aggregation::pass(self, &remote, &user, parts, body).await;
        }
        if let Some(group) = self.extensions.group(target.group) {
            return extension::call(self, group, target, user, parts, body).await;
        }
        let seat = match is_queued {
            true => ticket.enter(self, &user, &asked.verb, target, self.width(asked)).await?,
            false => None,
        };
        let work = std::pin::pin!(self.resource(parts, body, asked, *target, &user, limit));
        let (reply, seat) = fairness::with_seat(seat, work).await;
        let reply = reply?;
        // The stream of a watch costs little, and lasts.
        let seat = seat.filter(|_| !asked.verb.is(Verb::Watch));
        Ok(fairness::seated(reply, seat))
    }

    /// How many seats a request takes; only lists are large.
    fn width(&self, asked: &ParsedRequest<'_>) -> u32 {
        let RouteTarget::Resource(ResourcePath { group, version, resource, .. }) = asked.target
        else {
            return 1;
        };
        if !asked.verb.is(Verb::List) {
            return 1;
        }
        let catalog = self.catalog.load();
        let served = catalog.find(group, version, resource);
        served.map_or(1, |served| fairness::width(self.store.count(&served.table)))
    }

    /// Discovery, OpenAPI documents, health: all requests that are not for objects.
    async fn described(
        &self,
        parts: &Parts,
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
}

/// An error in the form of the extension's own clients, or as a Status.
fn refusal(paths: Option<&Arc<dyn Paths>>, error: &ApiError, parts: &Parts) -> HttpReply {
    let shaped = paths.and_then(|paths| paths.refuse(&error.to_value()));
    shaped.unwrap_or_else(|| respond::failure(error, error_encoding(parts)))
}

/// Errors are sent in the client's encoding, where it has one that we speak.
fn error_encoding(parts: &Parts) -> Encoding {
    let offer = OfferedForms { protobuf: true, transforms: true };
    negotiate::negotiate(&parts.headers, offer).map_or(Encoding::Json, |wanted| wanted.encoding)
}

/// The aggregated server that has the document of its group: `/openapi/v3/apis/G/V`.
fn documented_elsewhere(api: &Api, path: &str) -> Option<Arc<aggregation::RemoteGroup>> {
    let (group, version) = path.strip_prefix("/openapi/v3/apis/")?.split_once('/')?;
    aggregation::find(api, group, version)
}

fn only_reads(parts: &Parts) -> ApiResult<()> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(ApiError::method_not_allowed())
}
