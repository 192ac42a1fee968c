//! The properties of a served kind that the documents need, and the names that follow.

use serde_json::{Value, json};

/// One served kind, as the documents describe it.
#[derive(Debug)]
pub(crate) struct Described<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) list_kind: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'a [&'a str],
    pub(crate) subresources: Vec<OpenApiSubresource<'a>>,
    pub(crate) source: SchemaSource,
}

/// A subresource of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenApiSubresource<'a> {
    pub(crate) name: &'a str,
    /// Group, version and kind of its bodies, where they are not the parent's.
    pub(crate) kind: Option<(&'a str, &'a str, &'a str)>,
    pub(crate) verbs: &'a [&'a str],
}

/// Where a kind's schema comes from.
#[derive(Debug)]
pub(crate) enum SchemaSource {
    BuiltIn(types::Kind),
    /// The `openAPIV3Schema` of a CustomResourceDefinition's version, as its author wrote it.
    Custom(Option<Value>),
}

impl Described<'_> {
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.source, SchemaSource::Custom(_))
    }

    /// `/api/v1` or `/apis/apps/v1`.
    pub(crate) fn root(&self) -> String {
        root(self.group, self.version)
    }

    /// The name of the object's schema.
    pub(crate) fn schema(&self) -> String {
        match &self.source {
            SchemaSource::BuiltIn(kind) => kind.openapi_name(),
            SchemaSource::Custom(_) => custom_name(self.group, self.version, self.kind),
        }
    }

    /// The name of the list's schema.
    pub(crate) fn list_schema(&self) -> String {
        match types::Kind::find(self.group, self.version, self.list_kind) {
            Some(list) if !self.is_custom() => list.openapi_name(),
            _ => custom_name(self.group, self.version, self.list_kind),
        }
    }

    pub(crate) fn has(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// For `x-kubernetes-group-version-kind` of operations.
    pub(crate) fn gvk(&self) -> Value {
        gvk(self.group, self.version, self.kind)
    }
}

impl OpenApiSubresource<'_> {
    /// The name of the schema of its bodies.
    pub(crate) fn schema(&self, parent: &Described<'_>) -> String {
        let known =
            self.kind.and_then(|(group, version, kind)| types::Kind::find(group, version, kind));
        known.map_or_else(|| parent.schema(), types::Kind::openapi_name)
    }

    pub(crate) fn gvk(&self, parent: &Described<'_>) -> Value {
        match self.kind {
            Some((group, version, kind)) => gvk(group, version, kind),
            None => parent.gvk(),
        }
    }
}

pub(crate) fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

pub(crate) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `core_v1`, `apps_v1`.
pub(crate) fn tag(group: &str, version: &str) -> String {
    let first = group.strip_suffix(".k8s.io").unwrap_or(group);
    let first = if first.is_empty() { "core" } else { first };
    format!("{}_{version}", camel(first, false))
}

/// The middle of an operation's name: `CoreV1`, `RbacAuthorizationV1`, `StableExampleComV1`.
pub(crate) fn operation_group(group: &str, version: &str) -> String {
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let group = if group.is_empty() { "core" } else { group };
    format!("{}{}", camel(group, true), camel(version, true))
}

/// Upstream's way to name schemas of custom kinds: the group reversed.
pub(crate) fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// Joins the words of a name, each with a capital letter; `first`: the first one too.
pub(crate) fn camel(text: &str, first: bool) -> String {
    let mut upper = first;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '.' | '-' | '_' | '/' => upper = true,
            _ if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_upstream() {
        assert_eq!(operation_group("", "v1"), "CoreV1");
        assert_eq!(operation_group("rbac.authorization.k8s.io", "v1"), "RbacAuthorizationV1");
        assert_eq!(operation_group("stable.example.com", "v1"), "StableExampleComV1");
        assert_eq!(operation_group("apps", "v1beta1"), "AppsV1beta1");
        assert_eq!(tag("", "v1"), "core_v1");
        assert_eq!(tag("rbac.authorization.k8s.io", "v1"), "rbacAuthorization_v1");
        assert_eq!(
            custom_name("stable.example.com", "v1", "CronTab"),
            "com.example.stable.v1.CronTab"
        );
    }
}
