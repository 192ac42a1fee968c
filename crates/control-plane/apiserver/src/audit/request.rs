//! A request in the terms of an audit event.

use auth::User;
use base::clock;
use http::header::USER_AGENT;
use http::{HeaderMap, Uri, request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::policy::{AuditTarget, AuditVerdict};
use crate::extension::SourceAddress;
use crate::http::options::Query;
use crate::http::route::{self, ResourcePath, RouteTarget};
use crate::http::verb::RequestVerb;

/// The subject of a request, in the terms of an audit event.
pub(super) struct AuditedRequest<'a> {
    path: &'a str,
    pub(super) verb: RequestVerb,
    pub(super) resource: Option<ResourcePath<'a>>,
    pub(super) received: Timestamp,
}

impl<'a> AuditedRequest<'a> {
    pub(super) fn new(parts: &request::Parts, path: &'a str) -> Self {
        let target = route::parse(path);
        let query = parts.uri.query().map(Query::parse);
        let watches = query.is_some_and(|query| query.wants_watch());
        let verb = RequestVerb::of(&parts.method, &target, watches);
        let resource = match target {
            RouteTarget::Resource(resource) => Some(resource),
            RouteTarget::Discovery(_) | RouteTarget::Other(_) => None,
        };
        Self { path, verb, resource, received: clock::now() }
    }

    pub(super) fn target(&self) -> AuditTarget<'a> {
        match &self.resource {
            Some(path) => AuditTarget::Resource {
                group: path.group,
                resource: path.resource,
                subresource: path.subresource,
                namespace: path.namespace,
                name: path.name,
            },
            None => AuditTarget::Path(self.path),
        }
    }

    pub(super) fn event(
        &self,
        parts: &request::Parts,
        user: &User,
        id: &str,
        verdict: &AuditVerdict,
    ) -> Value {
        let uri = without_tokens(&parts.uri);
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": verdict.level.name(),
            "auditID": id, "stage": "", "requestURI": uri, "verb": self.verb.as_str(),
            "user": user.to_user_info(),
            "sourceIPs": source_addresses(parts),
            "requestReceivedTimestamp": clock::rfc3339_micro(self.received),
            "stageTimestamp": "",
        });
        if let Some(agent) = text(&parts.headers, USER_AGENT.as_str()) {
            event["userAgent"] = agent.into();
        }
        if let Some(path) = &self.resource {
            let mut object = json!({"resource": path.resource, "apiVersion": path.version});
            for (field, value) in [
                ("namespace", path.namespace),
                ("name", path.name),
                ("apiGroup", path.group),
                ("subresource", path.subresource),
            ] {
                if !value.is_empty() {
                    object[field] = value.into();
                }
            }
            event["objectRef"] = object;
        }
        event
    }
}

/// Path and query without the values of tokens, such as that of an export: who reads the audit log
/// must not get what they open.
fn without_tokens(uri: &Uri) -> String {
    let Some(query) = uri.query() else { return uri.path().to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if key.to_ascii_lowercase().ends_with("token") => format!("{key}=redacted"),
        _ => pair.to_owned(),
    });
    format!("{}?{}", uri.path(), pairs.collect::<Vec<_>>().join("&"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// From the one that began the request to the one that connected to us.
fn source_addresses(parts: &request::Parts) -> Vec<String> {
    let forwarded = text(&parts.headers, "x-forwarded-for").unwrap_or("").split(',');
    let mut found: Vec<String> = forwarded
        .filter_map(|address| address.trim().parse::<std::net::IpAddr>().ok())
        .map(|address| address.to_string())
        .collect();
    if found.is_empty() {
        found.extend(text(&parts.headers, "x-real-ip").map(str::to_owned));
    }
    let direct = parts.extensions.get::<SourceAddress>().map(|remote| remote.0.ip().to_string());
    found.extend(direct.filter(|direct| found.last() != Some(direct)));
    found
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn tokens_in_a_query_are_not_logged() {
        let export = "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e/volumes/c";
        for (given, logged) in [
            ("/api/v1/pods?watch=true&limit=5", "/api/v1/pods?watch=true&limit=5"),
            ("/version", "/version"),
            (
                &format!("{export}/disk.img?x-kubevirt-export-token=hush"),
                &format!("{export}/disk.img?x-kubevirt-export-token=redacted"),
            ),
            ("/v3?a=b&Token=hush&c", "/v3?a=b&Token=redacted&c"),
        ] {
            assert_eq!(without_tokens(&given.parse().unwrap()), logged);
        }
    }

    #[test]
    fn the_source_addresses_of_a_request_begin_with_the_client() {
        let request = |headers: &[(&str, &str)]| {
            let mut request =
                Request::get("/api").extension(SourceAddress(([192, 0, 2, 9], 1).into()));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            source_addresses(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(request(&[]), ["192.0.2.9"]);
        assert_eq!(
            request(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2")]),
            ["10.0.0.1", "10.0.0.2", "192.0.2.9"]
        );
        assert_eq!(request(&[("x-real-ip", "10.0.0.3")]), ["10.0.0.3", "192.0.2.9"]);
        assert_eq!(request(&[("x-forwarded-for", "192.0.2.9")]), ["192.0.2.9"]);
    }
}
