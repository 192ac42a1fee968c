//! From a Kubernetes object to a resource of Steve, and back. Pure.
//!
//! A resource is the object with what clients would else have to find out themselves: its `id`
//! and `type`, links, actions that are possible now, a summary of its state, the cells of its
//! row in a table, and the objects it belongs to.

mod relationship;
mod state;

use client::{Catalog, CatalogKind};
use serde_json::{Map, Value, json};

use crate::action;
use crate::object_rights::ObjectRights;
use crate::type_name;

pub(crate) use state::summarize;

const HARVESTER: &str = "harvesterhci.io";
/// Fields of the envelope. A field of the object with one of these names gets an underscore.
const RESERVED: [&str; 4] = ["id", "type", "links", "actions"];
/// The fields that the envelope adds to the metadata.
const METADATA: [&str; 3] = ["state", "fields", "relationships"];

/// The facts that resources of one answer share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnvelopeContext<'a> {
    pub(crate) kind: &'a CatalogKind,
    pub(crate) catalog: &'a Catalog,
    /// Where the client reaches this server: `https://host:port`.
    pub(crate) origin: &'a str,
    /// `/v1` or `/v1/harvester`.
    pub(crate) prefix: &'a str,
    /// Pods of the namespaces concerned, for relationships of what runs in them.
    pub(crate) pods: &'a [Value],
}

/// One object and the cells of its row.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectRow {
    pub(crate) object: Value,
    pub(crate) cells: Option<Value>,
}

/// The objects of an answer: a table, a list, or one object.
pub(crate) fn rows(answer: Value) -> Vec<ObjectRow> {
    let take = |answer: Value, field: &str| match answer {
        Value::Object(mut fields) => match fields.remove(field) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let kind = answer["kind"].as_str().unwrap_or_default();
    if kind == "Table" {
        let row = |mut row: Value| ObjectRow {
            object: row["object"].take(),
            cells: Some(row["cells"].take()).filter(Value::is_array),
        };
        return take(answer, "rows").into_iter().map(row).collect();
    }
    if kind.ends_with("List") && answer.get("items").is_some() {
        let single = kind.trim_end_matches("List").to_owned();
        let version = answer["apiVersion"].clone();
        let row = |mut object: Value| {
            // Items of a list do not repeat what they are.
            if object.get("kind").is_none() {
                object["kind"] = single.clone().into();
                object["apiVersion"] = version.clone();
            }
            ObjectRow { object, cells: None }
        };
        return take(answer, "items").into_iter().map(row).collect();
    }
    vec![ObjectRow { object: answer, cells: None }]
}

/// The resource that an object is.
pub(crate) fn wrap(context: &EnvelopeContext<'_>, row: ObjectRow, rights: &ObjectRights) -> Value {
    let ObjectRow { object, cells } = row;
    let summary = summarize(&object);
    let mut actions = action::possible(context.kind, &object);
    actions.retain(|action| rights.allow(context.kind, action, &object));
    let is_complete = action::is_downloadable(context.kind, &object);
    let relationships = relationship::of(&object, context.catalog, context.pods);
    let mut fields = match object {
        Value::Object(fields) => fields,
        other => return other,
    };
    for name in RESERVED {
        if let Some(own) = fields.remove(name) {
            fields.insert(format!("_{name}"), own);
        }
    }
    let text = |name: &str| {
        fields.get("metadata").and_then(|meta| meta[name].as_str()).unwrap_or_default().to_owned()
    };
    let (namespace, name) = (text("namespace"), text("name"));
    let id = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    let mut links = links(context, &namespace, &name, &id, rights);
    let mut own = links["self"].as_str().unwrap_or_default().to_owned();
    if action::has_data(context.kind) {
        // Data is taken and served under this prefix only.
        own = format!("{}/v1/harvester/{}/{id}", context.origin, type_name::plural(context.kind));
    }
    if is_complete {
        links["download"] = format!("{own}/download").into();
    }
    let actions = actions.into_iter();
    let actions: Map<String, Value> =
        actions.map(|name| (name.to_owned(), format!("{own}?action={name}").into())).collect();
    mark_conditions(fields.get_mut("status"));
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.insert("state".into(), summary.to_value());
        metadata.insert("fields".into(), cells.unwrap_or(Value::Null));
        metadata.insert("relationships".into(), relationships);
    }
    fields.insert("id".into(), id.into());
    fields.insert("type".into(), type_name::id(context.kind).into());
    fields.insert("links".into(), links);
    fields.insert("actions".into(), actions.into());
    Value::Object(fields)
}

fn links(
    context: &EnvelopeContext<'_>,
    namespace: &str,
    name: &str,
    id: &str,
    rights: &ObjectRights,
) -> Value {
    let (kind, origin, prefix) = (context.kind, context.origin, context.prefix);
    let own = format!("{origin}{prefix}/{}/{id}", type_name::plural(kind));
    let view = format!("{origin}{}/{name}", kind.path(namespace));
    let mut links = json!({"self": own, "view": view});
    for link in rights.links(name).filter(|link| *link != "update" || has_editor(kind)) {
        links[link] = own.clone().into();
    }
    if kind.is(HARVESTER, "virtualmachinetemplates") {
        links["versions"] = format!("{own}/versions").into();
    }
    links
}

/// Whether Harvester's dashboard offers to edit objects of a kind. Key pairs cannot be edited, and of
/// templates there are new versions.
fn has_editor(kind: &CatalogKind) -> bool {
    !["keypairs", "virtualmachinetemplates"].iter().any(|plural| kind.is(HARVESTER, plural))
}

/// Says of each condition whether it is an error, or will pass.
fn mark_conditions(status: Option<&mut Value>) {
    let conditions = status.and_then(|status| status.get_mut("conditions"));
    let Some(Value::Array(conditions)) = conditions else { return };
    for condition in conditions.iter_mut().filter(|condition| condition.is_object()) {
        let (error, transitioning) = state::judge(condition);
        condition["error"] = error.into();
        condition["transitioning"] = transitioning.into();
        let changed = condition.get("lastTransitionTime").cloned();
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition["lastUpdateTime"] = changed.unwrap_or_else(|| "".into());
        }
    }
}

/// The object in a resource that a client sends: clients read, change and send it back whole.
pub(crate) fn unwrap(kind: &CatalogKind, resource: Map<String, Value>) -> Value {
    let mut fields = resource;
    for name in RESERVED {
        let own = fields.remove(&format!("_{name}"));
        let sent = fields.remove(name);
        // The author of a Kubernetes manifest does not know of the underscores.
        let is_manifest = name == "type"
            && sent.as_ref().is_some_and(|sent| {
                let names = [type_name::id(kind), type_name::plural(kind)];
                sent.as_str().is_some_and(|sent| !names.iter().any(|own| own == sent))
            });
        if let Some(own) = own.or(sent.filter(|_| is_manifest)) {
            fields.insert(name.to_owned(), own);
        }
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        METADATA.iter().for_each(|name| {
            metadata.remove(*name);
        });
    }
    let status = fields.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in status.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("error");
            condition.remove("transitioning");
        }
    }
    fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
    fields.entry("kind").or_insert_with(|| (&*kind.kind).into());
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Rights;
    use crate::type_name::{find, tests::catalog};

    fn everything() -> Rights {
        Rights::read(&json!({"status": {"resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        ]}}))
    }

    fn wrapped(type_name: &str, object: Value, rights: &Rights) -> Value {
        let catalog = catalog();
        let kind = find(&catalog, type_name).unwrap();
        let context = EnvelopeContext {
            kind,
            catalog: &catalog,
            origin: "https://h",
            prefix: "/v1/harvester",
            pods: &[],
        };
        let rights = ObjectRights::of(kind, rights);
        wrap(&context, ObjectRow { object, cells: Some(json!(["a", 1])) }, &rights)
    }

    #[test]
    fn an_object_becomes_a_resource() {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"namespace": "n", "name": "a"},
        });
        let secret = wrapped("secrets", object, &everything());
        assert_eq!(secret["id"], "n/a");
        assert_eq!(secret["type"], "secret");
        assert_eq!(secret["_type"], "Opaque");
        assert_eq!(secret["actions"], json!({}));
        assert_eq!(secret["metadata"]["fields"], json!(["a", 1]));
        assert_eq!(secret["metadata"]["state"]["name"], "active");
        let own = "https://h/v1/harvester/secrets/n/a";
        let view = "https://h/api/v1/namespaces/n/secrets/a";
        let links = json!({"self": own, "update": own, "remove": own, "patch": own, "view": view});
        assert_eq!(secret["links"], links);
    }

    #[test]
    fn links_show_what_the_caller_may_do() {
        let object = json!({"metadata": {"name": "one"}});
        let node = wrapped("nodes", object, &Rights::default());
        assert_eq!(node["id"], "one");
        let links = node["links"].as_object().unwrap();
        assert_eq!(links.keys().collect::<Vec<_>>(), ["self", "view"]);
    }

    #[test]
    fn objects_that_are_not_edited_have_no_link_for_it() {
        let object = json!({"metadata": {"namespace": "n", "name": "a"}});
        let links = |name: &str| {
            let shown = wrapped(name, object.clone(), &everything());
            let links = shown["links"].as_object().unwrap();
            links.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(links("harvesterhci.io.keypairs"), "patch remove self view");
        let template = "harvesterhci.io.virtualmachinetemplates";
        assert_eq!(links(template), "patch remove self versions view");
    }

    #[test]
    fn a_complete_image_has_a_link_to_its_data() {
        let image = |imported: &str, operation: &str| {
            json!({
                "metadata": {"namespace": "n", "name": "a"},
                "spec": {"sourceType": "upload", "securityParameters": {"cryptoOperation": operation}},
                "status": {"conditions": [{"type": "Imported", "status": imported}]},
            })
        };
        let base = "https://h/v1/harvester/harvesterhci.io.virtualmachineimages/n/a";
        let upload = json!({"upload": format!("{base}?action=upload")});
        let download = json!(format!("{base}/download"));
        for (image, actions, link) in [
            (image("Unknown", ""), upload, Value::Null),
            (image("True", ""), json!({}), download),
            (image("True", "encrypt"), json!({}), Value::Null),
        ] {
            let shown = wrapped("harvesterhci.io.virtualmachineimages", image, &everything());
            assert_eq!((&shown["actions"], &shown["links"]["download"]), (&actions, &link));
        }
    }

    #[test]
    fn a_resource_that_comes_back_is_the_object_again() {
        let catalog = catalog();
        for (name, object) in [
            (
                "secrets",
                json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "id": 7,
                    "metadata": {"namespace": "n", "name": "a"},
                }),
            ),
            (
                "nodes",
                json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
                    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
                }),
            ),
        ] {
            let kind = find(&catalog, name).unwrap();
            let Value::Object(resource) = wrapped(name, object.clone(), &everything()) else {
                panic!("{name} is no object")
            };
            let mut back = unwrap(kind, resource);
            if let Some(condition) = back.pointer_mut("/status/conditions/0") {
                condition.as_object_mut().unwrap().remove("lastUpdateTime");
            }
            assert_eq!(back, object);
        }
    }

    #[test]
    fn the_type_of_the_envelope_is_not_that_of_the_object() {
        let catalog = catalog();
        let kind = find(&catalog, "secrets").unwrap();
        let object = |sent: Value| match sent {
            Value::Object(fields) => unwrap(kind, fields),
            other => other,
        };
        assert_eq!(object(json!({"type": "secret"})).get("type"), None);
        assert_eq!(object(json!({"type": "kubernetes.io/tls"}))["type"], "kubernetes.io/tls");
        assert_eq!(object(json!({"type": "secret", "_type": "Opaque"}))["type"], "Opaque");
        assert_eq!(object(json!({}))["kind"], "Secret");
    }

    #[test]
    fn tables_lists_and_objects_are_read() {
        let table = json!({"kind": "Table", "rows": [{"cells": ["a"], "object": {"kind": "Pod"}}]});
        assert_eq!(rows(table)[0].cells, Some(json!(["a"])));
        let list = json!({"kind": "NodeMetricsList", "apiVersion": "m/v1", "items": [{"a": 1}]});
        assert_eq!(
            rows(list)[0].object,
            json!({"kind": "NodeMetrics", "apiVersion": "m/v1", "a": 1})
        );
        assert_eq!(rows(json!({"kind": "Pod"}))[0].object, json!({"kind": "Pod"}));
    }
}
