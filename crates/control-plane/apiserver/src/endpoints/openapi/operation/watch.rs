//! The deprecated paths below `/watch/`, which clients that are generated from version 2 documents still have.

use serde_json::{Map, Value};
use types::openapi::OpenApiVersion;

use super::{LIST, META, OK, Operation, OperationBody, insert, operations_of, scoped};
use crate::endpoints::openapi::resource::Described;

/// Watches of one object, of a collection, and of the collections of all namespaces.
pub(super) fn paths(resource: &Described<'_>, into: &mut Map<String, Value>) {
    let root = format!("{}/watch", resource.root());
    let plural = resource.plural;
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let (middle, kind) = (scoped(resource), resource.kind);
    let mut add = |path: String, action, name: String| {
        insert(into, OpenApiVersion::V2, resource, path, vec![operation(resource, action, &name)]);
    };
    add(format!("{root}{scope}/{plural}"), "watchlist", format!("{middle}{kind}List"));
    add(format!("{root}{scope}/{plural}/{{name}}"), "watch", format!("{middle}{kind}"));
    if resource.namespaced {
        let name = format!("{kind}ListForAllNamespaces");
        add(format!("{root}/{plural}"), "watchlist", name);
    }
}

fn operation(resource: &Described<'_>, action: &'static str, name: &str) -> Operation {
    let kind = resource.kind;
    let (what, instead) = match action {
        "watch" => (
            format!("watch changes to an object of kind {kind}"),
            "filtered to a single item with the 'fieldSelector' parameter",
        ),
        _ => (format!("watch individual changes to a list of {kind}"), ""),
    };
    let instead = if instead.is_empty() { String::new() } else { format!(", {instead}") };
    Operation {
        method: "get",
        action,
        id: format!("watch{}{name}", operations_of(resource)),
        description: format!(
            "{what}. deprecated: use the 'watch' parameter with a list operation instead{instead}."
        ),
        parameters: LIST.to_vec(),
        body: OperationBody::None,
        reply: format!("{META}.WatchEvent"),
        codes: OK,
        gvk: resource.gvk(),
    }
}
