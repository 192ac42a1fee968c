//! The verb of a request, as the authorizer, discovery, audit events and metrics name it.

use std::borrow::Cow;

use http::Method;

use super::route::{ResourcePath, RouteTarget};

/// The verb of a request for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb of a method on a path; none if the path does not take the method.
    pub(crate) fn of(method: &Method, target: &ResourcePath<'_>, watch: bool) -> Option<Self> {
        let is_named = !target.name.is_empty();
        Some(match *method {
            Method::GET | Method::HEAD if target.watch_prefix || (!is_named && watch) => {
                Self::Watch
            }
            // Upstream also honours ?watch=true on a single name.
            Method::GET | Method::HEAD if is_named && watch && target.subresource.is_empty() => {
                Self::Watch
            }
            Method::GET | Method::HEAD if is_named => Self::Get,
            Method::GET | Method::HEAD => Self::List,
            Method::POST => Self::Create,
            Method::PUT if is_named => Self::Update,
            Method::PATCH if is_named => Self::Patch,
            Method::DELETE if is_named => Self::Delete,
            Method::DELETE => Self::DeleteCollection,
            _ => return None,
        })
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether a kind or subresource with these verbs has this one.
    pub(crate) fn is_in(self, verbs: &[&str]) -> bool {
        verbs.contains(&self.as_str())
    }

    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Whether a request may be for several objects, which a field selector restricts.
    pub(crate) const fn is_collective(self) -> bool {
        matches!(self, Self::List | Self::Watch | Self::DeleteCollection)
    }

    /// Whether the object in the body is written.
    pub(crate) const fn takes_object(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch)
    }

    /// The kind of the options of a write, as errors name it.
    pub(crate) const fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            _ => "PatchOptions",
        }
    }
}

/// The verb of any request: the method in lower case where a path has no verbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestVerb {
    Resource(Verb),
    Method(Cow<'static, str>),
}

impl RequestVerb {
    pub(crate) fn of(method: &Method, target: &RouteTarget<'_>, watch: bool) -> Self {
        let verb = match target {
            RouteTarget::Resource(path) => Verb::of(method, path, watch),
            RouteTarget::Discovery(_) | RouteTarget::Other(_) => None,
        };
        verb.map_or_else(|| Self::Method(word(method)), Self::Resource)
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Resource(verb) => verb.as_str(),
            Self::Method(word) => word,
        }
    }

    /// Whether the request changes nothing. A method that a path does not take counts as a write.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Resource(verb) if verb.is_read())
    }

    pub(crate) fn is(&self, verb: Verb) -> bool {
        *self == Self::Resource(verb)
    }
}

fn word(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET => Cow::Borrowed("get"),
        Method::HEAD => Cow::Borrowed("head"),
        Method::POST => Cow::Borrowed("post"),
        Method::PUT => Cow::Borrowed("put"),
        Method::PATCH => Cow::Borrowed("patch"),
        Method::DELETE => Cow::Borrowed("delete"),
        Method::OPTIONS => Cow::Borrowed("options"),
        _ => Cow::Owned(method.as_str().to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::route;
    use super::*;

    #[test]
    fn method_path_and_query_give_the_verb() {
        for (method, path, watch, expected) in [
            (Method::GET, "/api/v1/pods", false, "list"),
            (Method::HEAD, "/api/v1/pods", false, "list"),
            (Method::GET, "/api/v1/pods", true, "watch"),
            (Method::GET, "/api/v1/watch/pods", false, "watch"),
            (Method::GET, "/api/v1/namespaces/n/pods/p", false, "get"),
            (Method::GET, "/api/v1/namespaces/n/pods/p", true, "watch"),
            (Method::GET, "/api/v1/namespaces/n/pods/p/status", true, "get"),
            (Method::POST, "/api/v1/namespaces/n/pods", false, "create"),
            (Method::POST, "/api/v1/namespaces/n/pods/p/eviction", false, "create"),
            (Method::PUT, "/api/v1/namespaces/n/pods/p", false, "update"),
            (Method::PATCH, "/api/v1/namespaces/n/pods/p", false, "patch"),
            (Method::DELETE, "/api/v1/namespaces/n/pods/p", false, "delete"),
            (Method::DELETE, "/api/v1/namespaces/n/pods", false, "deletecollection"),
            // Methods that the path does not take, and paths without verbs.
            (Method::PUT, "/api/v1/namespaces/n/pods", false, "put"),
            (Method::OPTIONS, "/api/v1/pods", false, "options"),
            (Method::GET, "/version", true, "get"),
            (Method::POST, "/apis", false, "post"),
            (Method::from_bytes(b"BREW").unwrap(), "/pot", false, "brew"),
        ] {
            let verb = RequestVerb::of(&method, &route::parse(path), watch);
            assert_eq!(verb.as_str(), expected, "{method} {path} {watch}");
            let is_resource = matches!(route::parse(path), RouteTarget::Resource(_));
            let reads = ["get", "list", "watch"].contains(&expected) && is_resource;
            assert_eq!(verb.is_read(), reads, "{method} {path}");
        }
    }
}
