//! Parses a URL: which resource, which object, which subresource.
//!
//! Groups and kinds come and go with CustomResourceDefinitions, so paths are
//! parsed, not matched against a routing table.

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Characters besides letters and digits that are not escaped in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Why a path is refused before anything is done with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path is not valid UTF-8")]
    NotUtf8,
    #[error("the path contains the segment {0:?}; use the path that it leads to")]
    DotSegment(String),
    #[error("the path contains a control character")]
    ControlCharacter,
}

/// Decodes the path of a request, once, so that the authorized path is the path that is served.
pub(crate) fn decode(raw: &str) -> Result<String, PathError> {
    let path = percent_decode_str(raw).decode_utf8().map_err(|_| PathError::NotUtf8)?;
    if path.chars().any(char::is_control) {
        return Err(PathError::ControlCharacter);
    }
    match path.split('/').find(|segment| matches!(*segment, "." | "..")) {
        Some(segment) => Err(PathError::DotSegment(segment.to_owned())),
        None => Ok(path.into_owned()),
    }
}

/// The URI with the decoded path in its one canonical spelling, for servers and extensions that
/// parse it again.
pub(crate) fn canonical(uri: &Uri, path: &str) -> Uri {
    let path = utf8_percent_encode(path, ESCAPED);
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_string(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(text).ok();
    Uri::from_parts(parts).unwrap_or_default()
}

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteTarget<'a> {
    Resource(ResourcePath<'a>),
    /// `/api`, `/apis`, `/apis/G`, `/api/v1`, `/apis/G/V`: discovery.
    Discovery(Discovery<'a>),
    /// Anything else: `/version`, `/healthz`, …
    Other(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discovery<'a> {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    Group(&'a str),
    /// The group is empty for `/api/v1`.
    Resources {
        group: &'a str,
        version: &'a str,
    },
}

/// The parts of a resource path; absent ones are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub namespace: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    /// The rest of the path, for a subresource that takes a path of its own (proxies).
    pub rest: &'a str,
    /// The deprecated `/watch/` prefix was used.
    pub watch_prefix: bool,
}

impl ResourcePath<'_> {
    /// Everything that follows the name: the subresource with its own path.
    pub(crate) fn below_name(&self) -> String {
        let rest = self.rest.trim_end_matches('/');
        if rest.is_empty() {
            return self.subresource.to_owned();
        }
        format!("{}/{rest}", self.subresource)
    }
}

/// Splits a (percent-decoded) path.
pub(crate) fn parse(path: &str) -> RouteTarget<'_> {
    let trimmed = path.trim_matches('/');
    let mut parts = trimmed.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("api"), None, _) => RouteTarget::Discovery(Discovery::CoreVersions),
        (Some("apis"), None, _) => RouteTarget::Discovery(Discovery::Groups),
        (Some("api"), Some(version), rest) => below("", version, rest),
        (Some("apis"), Some(group), None) => RouteTarget::Discovery(Discovery::Group(group)),
        (Some("apis"), Some(group), Some(rest)) => match rest.split_once('/') {
            None => below(group, rest, None),
            Some((version, rest)) => below(group, version, Some(rest)),
        },
        _ => RouteTarget::Other(path),
    }
}

fn below<'a>(group: &'a str, version: &'a str, rest: Option<&'a str>) -> RouteTarget<'a> {
    let Some(mut rest) = rest.filter(|rest| !rest.is_empty()) else {
        return RouteTarget::Discovery(Discovery::Resources { group, version });
    };
    let mut target = ResourcePath { group, version, ..ResourcePath::default() };
    if let Some(watched) = rest.strip_prefix("watch/") {
        target.watch_prefix = true;
        rest = watched;
    }
    let mut parts = rest.splitn(5, '/');
    let mut next = || parts.next().unwrap_or("");
    let first = next();
    if first != "namespaces" {
        (target.resource, target.name, target.subresource) = (first, next(), next());
        target.rest = rest_after(rest, 3);
        return RouteTarget::Resource(target);
    }
    // "namespaces" is both a scope and a kind of its own.
    let (namespace, third, fourth, fifth) = (next(), next(), next(), next());
    if third.is_empty() || matches!(third, "status" | "finalize") && fourth.is_empty() {
        target.resource = "namespaces";
        (target.namespace, target.name, target.subresource) = (namespace, namespace, third);
        return RouteTarget::Resource(target);
    }
    let (subresource, _) = fifth.split_once('/').unwrap_or((fifth, ""));
    (target.namespace, target.resource, target.name) = (namespace, third, fourth);
    target.subresource = subresource;
    target.rest = rest_after(rest, 5);
    RouteTarget::Resource(target)
}

/// The path after the first `count` segments.
fn rest_after(path: &str, count: usize) -> &str {
    let mut rest = path;
    for _ in 0..count {
        match rest.split_once('/') {
            Some((_, after)) => rest = after,
            None => return "",
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: (&str, &str, &str, &str, &str, &str)) {
        let RouteTarget::Resource(got) = parse(path) else { panic!("{path} is not a resource") };
        let got = (got.group, got.version, got.namespace, got.resource, got.name, got.subresource);
        assert_eq!(got, expected, "{path}");
    }

    #[test]
    fn resource_paths_are_taken_apart() {
        check("/api/v1/pods", ("", "v1", "", "pods", "", ""));
        check("/api/v1/namespaces", ("", "v1", "", "namespaces", "", ""));
        check("/api/v1/namespaces/a", ("", "v1", "a", "namespaces", "a", ""));
        check("/api/v1/namespaces/a/finalize", ("", "v1", "a", "namespaces", "a", "finalize"));
        check("/api/v1/namespaces/a/status", ("", "v1", "a", "namespaces", "a", "status"));
        check("/api/v1/namespaces/a/pods/", ("", "v1", "a", "pods", "", ""));
        check("/api/v1/namespaces/a/pods/b/log", ("", "v1", "a", "pods", "b", "log"));
        check("/apis/g.io/v2/things/x/status", ("g.io", "v2", "", "things", "x", "status"));
        check("/apis/g.io/v2/namespaces/n/things/x", ("g.io", "v2", "n", "things", "x", ""));
        check("/api/v1/watch/namespaces/n/pods", ("", "v1", "n", "pods", "", ""));
    }

    #[test]
    fn discovery_and_the_rest_are_distinguished() {
        assert_eq!(parse("/api"), RouteTarget::Discovery(Discovery::CoreVersions));
        assert_eq!(parse("/apis/"), RouteTarget::Discovery(Discovery::Groups));
        assert_eq!(parse("/apis/apps"), RouteTarget::Discovery(Discovery::Group("apps")));
        let resources =
            |group, version| RouteTarget::Discovery(Discovery::Resources { group, version });
        assert_eq!(parse("/apis/apps/v1"), resources("apps", "v1"));
        assert_eq!(parse("/api/v1/"), resources("", "v1"));
        assert_eq!(parse("/version"), RouteTarget::Other("/version"));
        assert_eq!(parse("/"), RouteTarget::Other("/"));
    }

    /// Authorization and handlers see the same path, however the client encodes it.
    #[test]
    fn spellings_of_a_path_do_not_change_what_is_authorized() {
        let root = "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances";
        for (tail, name, below) in [
            ("/vm/vnc", "vm", "vnc"),
            ("/vm/vnc/", "vm", "vnc"),
            ("/v%6D/vnc", "vm", "vnc"),
            ("/v%6d/vnc/screenshot", "vm", "vnc/screenshot"),
            ("/v%6D/portforward/22/tcp", "vm", "portforward/22/tcp"),
            ("/vm/portforwar%64/22", "vm", "portforward/22"),
            ("/vm%2Fportforward/22", "vm", "portforward/22"),
            ("/vm/portforward/vm/22", "vm", "portforward/vm/22"),
            ("/vm/vnc/screenshot/", "vm", "vnc/screenshot"),
            ("/vm/vnc//screenshot", "vm", "vnc//screenshot"),
            ("/vm;a=b/vnc", "vm;a=b", "vnc"),
            ("/vm%3Fwatch=1/vnc", "vm?watch=1", "vnc"),
            ("/vm%23/vnc", "vm#", "vnc"),
            ("/v%256D/vnc", "v%6D", "vnc"),
            ("//vnc", "", "vnc"),
        ] {
            let raw: Uri = format!("{root}{tail}?stdin=true").parse().unwrap();
            let path = decode(raw.path()).unwrap();
            let RouteTarget::Resource(target) = parse(&path) else { panic!("{tail}") };
            assert_eq!((target.name, &*target.below_name()), (name, below), "{tail}");
            let handed_on = canonical(&raw, &path);
            assert_eq!(handed_on.query(), Some("stdin=true"));
            let again = decode(handed_on.path()).unwrap();
            assert_eq!(parse(&again), RouteTarget::Resource(target), "{tail} {handed_on}");
            assert_eq!(canonical(&handed_on, &again), handed_on, "one spelling");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        let dots = |segment: &str| Err(PathError::DotSegment(segment.to_owned()));
        for (raw, expected) in [
            ("/api/v1/namespaces/a/../b/pods", dots("..")),
            ("/api/v1/namespaces/a/%2e%2E/b/pods", dots("..")),
            ("/api/v1/namespaces/a%2F..%2Fb/pods", dots("..")),
            ("/api/v1/./pods", dots(".")),
            ("/api/v1/pods/%00", Err(PathError::ControlCharacter)),
            ("/api/v1/pods/a%0d%0ab", Err(PathError::ControlCharacter)),
            ("/api/v1/pods/%ff", Err(PathError::NotUtf8)),
            ("/api/v1/pods/a..b", Ok("/api/v1/pods/a..b".to_owned())),
        ] {
            assert_eq!(decode(raw), expected, "{raw}");
        }
    }

    #[test]
    fn a_proxy_keeps_its_path() {
        let RouteTarget::Resource(got) = parse("/api/v1/namespaces/n/services/s/proxy/a/b") else {
            panic!()
        };
        assert_eq!((got.subresource, got.rest), ("proxy", "a/b"));
    }
}
