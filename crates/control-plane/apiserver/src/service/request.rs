//! The first line of a request: path, query, target, verb.

use http::{Request, request::Parts};

use crate::http::body::RequestBody;
use crate::http::options::Query;
use crate::http::route::{self, RouteTarget};
use crate::http::verb::{RequestVerb, Verb};

pub(super) struct ParsedRequest<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a Query,
    pub(super) target: RouteTarget<'a>,
    pub(super) verb: RequestVerb,
}

impl<'a> ParsedRequest<'a> {
    pub(super) fn new(parts: &Parts, path: &'a str, query: &'a Query) -> Self {
        let target = route::parse(path);
        let verb = RequestVerb::of(&parts.method, &target, query.wants_watch());
        Self { path, query, target, verb }
    }

    /// Documents are for programs, and a stream has no end.
    pub(super) fn may_be_indented(&self) -> bool {
        !self.verb.is(Verb::Watch) && !self.path.starts_with("/openapi/")
    }
}

/// The name of a request in logs: its sender may have given it one.
pub(super) fn audit_id(request: &Request<RequestBody>) -> String {
    let given = request.headers().get("audit-id").and_then(|id| id.to_str().ok());
    let given = given.filter(|id| !id.is_empty() && id.len() <= 64);
    given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}
