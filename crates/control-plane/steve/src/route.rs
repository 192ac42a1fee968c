//! From a path to the type, namespace, name and link that it names. Pure.
//!
//! Steve's paths do not distinguish a namespace from a name: `nodes/one` names a node, and
//! `pods/one` the pods of a namespace. That needs the scope of the type, so it is decided in
//! two steps.

use percent_encoding::percent_decode_str;

/// Where clients find the API: Harvester's own prefix, and that of Steve itself.
const ROOT: &str = "/v1";
const HARVESTER: &str = "harvester";

/// Whether a path belongs to this API.
pub fn owns(path: &str) -> bool {
    let rest = path.strip_prefix(ROOT);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path, before its type is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SteveRoute {
    /// `/v1/harvester` or `/v1`: links in the answer begin as the request did.
    pub(crate) prefix: &'static str,
    /// Empty for the root of the API.
    pub(crate) type_name: String,
    /// The path after the type: at most namespace, name and link.
    pub(crate) rest: Vec<String>,
}

/// The target of a path, once the scope of its type is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// All objects of a namespace, or of all if it is empty.
    Collection {
        namespace: String,
    },
    Object {
        namespace: String,
        name: String,
        link: Option<String>,
    },
}

/// Splits a path; nothing if it cannot name anything.
pub(crate) fn parse(path: &str) -> Option<SteveRoute> {
    let rest = path.strip_prefix(ROOT)?;
    let mut words = Vec::new();
    for word in rest.split('/').filter(|word| !word.is_empty()) {
        words.push(percent_decode_str(word).decode_utf8().ok()?.into_owned());
    }
    let prefix = if words.first().is_some_and(|word| word == HARVESTER) {
        words.remove(0);
        "/v1/harvester"
    } else {
        ROOT
    };
    let is_name = |word: &String| !word.contains('/') && word != "." && word != "..";
    if words.len() > 4 || !words.iter().all(is_name) {
        return None;
    }
    let type_name = if words.is_empty() { String::new() } else { words.remove(0) };
    Some(SteveRoute { prefix, type_name, rest: words })
}

impl SteveRoute {
    /// The target of the path in a type of this scope; `None` if the path is too long for it.
    pub(crate) fn target(&self, namespaced: bool) -> Option<Target> {
        let object = |namespace: &str, name: &String, link: Option<&String>| Target::Object {
            namespace: namespace.to_owned(),
            name: name.clone(),
            link: link.cloned(),
        };
        Some(match (namespaced, self.rest.as_slice()) {
            (_, []) => Target::Collection { namespace: String::new() },
            (true, [namespace]) => Target::Collection { namespace: namespace.clone() },
            (true, [namespace, name]) => object(namespace, name, None),
            (true, [namespace, name, link]) => object(namespace, name, Some(link)),
            (false, [name]) => object("", name, None),
            (false, [name, link]) => object("", name, Some(link)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_types_and_objects() {
        let cases: &[(&str, bool, &str, &str)] = &[
            ("/v1/harvester/nodes", false, "nodes", "all of \"\""),
            ("/v1/harvester/nodes/", false, "nodes", "all of \"\""),
            ("/v1/harvester/nodes/one", false, "nodes", "/one None"),
            ("/v1/harvester/nodes/one/view", false, "nodes", "/one Some(\"view\")"),
            ("/v1/pods/default/", true, "pods", "all of \"default\""),
            ("/v1/pods//default//web", true, "pods", "default/web None"),
            ("/v1/pods/default/web/log", true, "pods", "default/web Some(\"log\")"),
            ("/v1/harvester/a.b.things/n/%6dy", true, "a.b.things", "n/my None"),
        ];
        for (path, namespaced, type_name, expected) in cases {
            let route = parse(path).unwrap();
            assert_eq!(route.type_name, *type_name, "{path}");
            let target = match route.target(*namespaced).unwrap() {
                Target::Collection { namespace } => format!("all of {namespace:?}"),
                Target::Object { namespace, name, link } => format!("{namespace}/{name} {link:?}"),
            };
            assert_eq!(target, *expected, "{path}");
        }
    }

    #[test]
    fn links_begin_as_the_request_did() {
        assert_eq!(parse("/v1/harvester/nodes").unwrap().prefix, "/v1/harvester");
        assert_eq!(parse("/v1/nodes").unwrap().prefix, "/v1");
        assert_eq!(parse("/v1").unwrap().type_name, "");
        assert_eq!(parse("/v1/harvester/").unwrap().type_name, "");
    }

    #[test]
    fn paths_that_name_nothing_are_refused() {
        for path in ["/v2/nodes", "/v1/a/b/c/d/e", "/v1/pods/n/a%2fb", "/v1/pods/../x", "/v1/%ff"] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(parse("/v1/nodes/one/link/more").unwrap().target(false), None);
        assert!(owns("/v1") && owns("/v1/nodes") && !owns("/v1beta1/upload"));
    }
}
