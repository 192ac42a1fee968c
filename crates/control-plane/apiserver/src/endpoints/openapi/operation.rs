//! Operations: what can be done to a kind, under which path, with which parameters. They
//! are described once and written for either version of OpenAPI.

mod watch;
mod write;

use serde_json::{Map, Value, json};
use types::openapi::OpenApiVersion;

use self::write::OperationWriter;
use super::resource::{Described, OpenApiSubresource, camel, operation_group, tag};

pub(super) const NAMESPACE_DESCRIPTION: &str =
    "object name and auth scope, such as for teams and projects";
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// One operation on one path.
struct Operation {
    /// The HTTP method, in lower case.
    method: &'static str,
    /// `x-kubernetes-action`.
    action: &'static str,
    id: String,
    description: String,
    parameters: Vec<Parameter>,
    body: OperationBody,
    /// The schema of successful replies and their codes.
    reply: String,
    codes: &'static [(&'static str, &'static str)],
    gvk: Value,
}

enum OperationBody {
    None,
    /// A schema's name.
    Object(String),
    DeleteOptions,
    Patch,
}

/// A parameter: name, type, description.
type Parameter = (&'static str, &'static str, &'static str);

const OK: &[(&str, &str)] = &[("200", "OK")];
const REPLACED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
const CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];
const DELETED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];

const DRY_RUN: Parameter =
    ("dryRun", "string", "All: go through every stage of the request without storing its result.");
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "string",
    "The name of the actor that makes this change, at most 128 characters.",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What to do with unknown or duplicate fields: Ignore, Warn (the default) or Strict.",
);
const FORCE: Parameter = (
    "force",
    "boolean",
    "For apply requests: take over fields that other managers own. Must be unset otherwise.",
);
const PRETTY: Parameter = ("pretty", "string", "If 'true', then the output is pretty printed.");

const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean", "Asks for BOOKMARK events in a watch."),
    ("continue", "string", "The token of the previous page of a list."),
    ("fieldSelector", "string", "Restricts the objects by their fields; all by default."),
    ("labelSelector", "string", "Restricts the objects by their labels; all by default."),
    ("limit", "integer", "The largest number of objects to return at once."),
    ("resourceVersion", "string", "Which state of the collection to serve."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Begins a watch with synthetic events of the current state."),
    ("timeoutSeconds", "integer", "How long a list or watch may last."),
    ("watch", "boolean", "Watches for changes instead of listing."),
];
const DELETE: &[Parameter] = &[
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted; zero: at once."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    (
        "propagationPolicy",
        "string",
        "What becomes of dependents: Orphan, Background or Foreground.",
    ),
];
const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];

/// All paths of a kind, ready for a document.
pub(super) fn paths(resource: &Described<'_>, form: OpenApiVersion, into: &mut Map<String, Value>) {
    let root = resource.root();
    let plural = resource.plural;
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    if resource.namespaced && resource.has("list") {
        let everywhere = vec![list(resource, "ForAllNamespaces")];
        insert(into, form, resource, format!("{root}/{plural}"), everywhere);
    }
    let mut collection = Vec::new();
    if resource.has("list") {
        collection.push(list(resource, ""));
    }
    if resource.has("create") {
        collection.push(create(resource));
    }
    if resource.has("deletecollection") {
        collection.push(delete_collection(resource));
    }
    insert(into, form, resource, format!("{root}{scope}/{plural}"), collection);
    // Only the old document lists what `?watch` has replaced, and only for built-in kinds.
    if form == OpenApiVersion::V2 && resource.has("watch") && !resource.is_custom() {
        watch::paths(resource, into);
    }
    let item = on_item(resource, resource.verbs, "", &resource.schema(), &resource.gvk());
    insert(into, form, resource, format!("{root}{scope}/{plural}/{{name}}"), item);
    for sub in &resource.subresources {
        let path = format!("{root}{scope}/{plural}/{{name}}/{}", sub.name);
        insert(into, form, resource, path, on_subresource(resource, sub));
    }
}

/// The path of a group's own list of resources.
pub(super) fn discovery(group: &str, version: &str, form: OpenApiVersion) -> Value {
    let id = format!("get{}APIResources", operation_group(group, version));
    let reply = format!("{META}.APIResourceList");
    document("get available resources", &id, &reply, &tag(group, version), form)
}

/// Parameters in a path, each with its description.
pub(super) fn in_path(names: &[(&str, &str)], form: OpenApiVersion) -> Vec<Value> {
    let writer = OperationWriter { form, custom: true };
    names.iter().map(|(name, description)| writer.in_path(name, description)).collect()
}

/// A path at which one document can be read.
pub(super) fn document(
    description: &str,
    id: &str,
    reply: &str,
    tag: &str,
    form: OpenApiVersion,
) -> Value {
    let writer = OperationWriter { form, custom: false };
    let mut operation = json!({
        "description": description,
        "operationId": id,
        "responses": writer.responses(reply, OK),
        "tags": [tag],
    });
    if form == OpenApiVersion::V2 {
        operation["produces"] = json!(["application/json"]);
        operation["consumes"] = json!(["application/json"]);
        operation["schemes"] = json!(["https"]);
    }
    json!({"get": operation})
}

fn list(resource: &Described<'_>, suffix: &str) -> Operation {
    let kind = resource.kind;
    let middle = if suffix.is_empty() { scoped(resource) } else { "" };
    Operation {
        method: "get",
        action: "list",
        id: format!("list{}{middle}{kind}{suffix}", operations_of(resource)),
        description: format!("list or watch objects of kind {kind}"),
        parameters: LIST.to_vec(),
        body: OperationBody::None,
        reply: resource.list_schema(),
        codes: OK,
        gvk: resource.gvk(),
    }
}

fn create(resource: &Described<'_>) -> Operation {
    let kind = resource.kind;
    Operation {
        method: "post",
        action: "post",
        id: format!("create{}{}{kind}", operations_of(resource), scoped(resource)),
        description: format!("create a {kind}"),
        parameters: WRITE.to_vec(),
        body: OperationBody::Object(resource.schema()),
        reply: resource.schema(),
        codes: CREATED,
        gvk: resource.gvk(),
    }
}

fn delete_collection(resource: &Described<'_>) -> Operation {
    let kind = resource.kind;
    let selectors =
        LIST.iter().filter(|(name, ..)| !matches!(*name, "watch" | "allowWatchBookmarks"));
    Operation {
        method: "delete",
        action: "deletecollection",
        id: format!("delete{}Collection{}{kind}", operations_of(resource), scoped(resource)),
        description: format!("delete collection of {kind}"),
        parameters: DELETE.iter().chain(selectors).copied().collect(),
        body: OperationBody::DeleteOptions,
        reply: format!("{META}.Status"),
        codes: OK,
        gvk: resource.gvk(),
    }
}

fn on_subresource(resource: &Described<'_>, sub: &OpenApiSubresource<'_>) -> Vec<Operation> {
    let suffix = camel(sub.name, true);
    let (schema, gvk) = (sub.schema(resource), sub.gvk(resource));
    let mut operations = on_item(resource, sub.verbs, &suffix, &schema, &gvk);
    if sub.verbs.contains(&"create") {
        operations.push(Operation {
            method: "post",
            action: "post",
            id: format!(
                "create{}{}{}{suffix}",
                operations_of(resource),
                scoped(resource),
                resource.kind
            ),
            description: format!("create {} of a {}", sub.name, resource.kind),
            parameters: WRITE.to_vec(),
            body: OperationBody::Object(schema.clone()),
            reply: schema,
            codes: CREATED,
            gvk,
        });
    }
    operations
}

/// The operations on one named object, or on a subresource of it.
fn on_item(
    resource: &Described<'_>,
    verbs: &[&str],
    suffix: &str,
    schema: &str,
    gvk: &Value,
) -> Vec<Operation> {
    let kind = resource.kind;
    let what =
        if suffix.is_empty() { String::new() } else { format!("{} of ", suffix.to_lowercase()) };
    let operation =
        |method, action, verb: &str, text: String, parameters: &[Parameter], body, codes| {
            Operation {
                method,
                action,
                id: format!("{verb}{}{}{kind}{suffix}", operations_of(resource), scoped(resource)),
                description: text,
                parameters: parameters.to_vec(),
                body,
                reply: schema.to_owned(),
                codes,
                gvk: gvk.clone(),
            }
        };
    let mut operations = Vec::new();
    for verb in verbs {
        operations.push(match *verb {
            "get" => {
                let text = format!("read {what}the specified {kind}");
                operation("get", "get", "read", text, &[], OperationBody::None, OK)
            }
            "update" => {
                let text = format!("replace {what}the specified {kind}");
                let body = OperationBody::Object(schema.to_owned());
                operation("put", "put", "replace", text, WRITE, body, REPLACED)
            }
            "patch" => {
                let text = format!("partially update {what}the specified {kind}");
                operation("patch", "patch", "patch", text, PATCH, OperationBody::Patch, REPLACED)
            }
            "delete" => {
                let text = format!("delete {what}a {kind}");
                let mut delete = operation(
                    "delete",
                    "delete",
                    "delete",
                    text,
                    DELETE,
                    OperationBody::DeleteOptions,
                    DELETED,
                );
                delete.reply = format!("{META}.Status");
                delete
            }
            _ => continue,
        });
    }
    operations
}

fn operations_of(resource: &Described<'_>) -> String {
    operation_group(resource.group, resource.version)
}

fn scoped(resource: &Described<'_>) -> &'static str {
    if resource.namespaced { "Namespaced" } else { "" }
}

/// Writes the operations of one path.
fn insert(
    into: &mut Map<String, Value>,
    form: OpenApiVersion,
    resource: &Described<'_>,
    path: String,
    operations: Vec<Operation>,
) {
    if operations.is_empty() {
        return;
    }
    let writer = OperationWriter { form, custom: resource.is_custom() };
    let tag = tag(resource.group, resource.version);
    let mut item = Map::new();
    for operation in operations {
        item.insert(operation.method.to_owned(), writer.operation(operation, &tag));
    }
    let mut shared = Vec::new();
    if path.contains("{name}") {
        shared.push(writer.in_path("name", &format!("name of the {}", resource.kind)));
    }
    if path.contains("{namespace}") {
        shared.push(writer.in_path("namespace", NAMESPACE_DESCRIPTION));
    }
    shared.push(writer.in_query(PRETTY));
    item.insert("parameters".to_owned(), Value::Array(shared));
    into.insert(path, Value::Object(item));
}

impl OperationBody {
    /// The name of its schema, and whether it must be there.
    fn schema(&self) -> Option<(String, bool)> {
        match self {
            Self::None => None,
            Self::Object(schema) => Some((schema.clone(), true)),
            Self::DeleteOptions => Some((format!("{META}.DeleteOptions"), false)),
            Self::Patch => Some((format!("{META}.Patch"), true)),
        }
    }
}
