//! The variables of expressions in policies and match conditions.

use std::sync::LazyLock;

use schema::cel::{Declarations, ExpectedType, Expression};
use schema::{FieldError, Path, Schema, SchemaNode};
use serde_json::{Value, json};

use crate::json;

/// `request`, as expressions see it. Options differ by operation and have no type.
static REQUEST: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let fields = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), text.clone()));
        json!({"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()})
    };
    let (kind, resource) =
        (fields(&["group", "version", "kind"]), fields(&["group", "version", "resource"]));
    let texts = json!({"type": "array", "items": text});
    let mut user = fields(&["username", "uid"]);
    user["properties"]["groups"] = texts.clone();
    user["properties"]["extra"] = json!({"type": "object", "additionalProperties": texts});
    let mut request =
        fields(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    request["properties"]["kind"] = kind.clone();
    request["properties"]["requestKind"] = kind;
    request["properties"]["resource"] = resource.clone();
    request["properties"]["requestResource"] = resource;
    request["properties"]["userInfo"] = user;
    request["properties"]["dryRun"] = json!({"type": "boolean"});
    request["properties"]["options"] = json!({"x-kubernetes-int-or-string": true});
    schema::parse(&request).unwrap_or_else(|_| SchemaNode::anything())
});

/// `namespaceObject`: metadata without what is the server's own business.
static NAMESPACE: LazyLock<Schema> = LazyLock::new(|| {
    let (text, time) =
        (json!({"type": "string"}), json!({"type": "string", "format": "date-time"}));
    let texts = json!({"type": "array", "items": text});
    let labels = json!({"type": "object", "additionalProperties": text});
    let number = json!({"type": "integer"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let condition = object(json!({
        "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": time,
    }));
    let namespace = object(json!({
        "metadata": object(json!({
            "name": text, "generateName": text, "namespace": text, "UID": text,
            "labels": labels, "annotations": labels, "resourceVersion": text,
            "creationTimestamp": time, "deletionTimestamp": time,
            "deletionGracePeriodSeconds": number, "generation": number, "finalizers": texts,
        })),
        "spec": object(json!({"finalizers": texts})),
        "status": object(json!({
            "phase": text, "conditions": {"type": "array", "items": condition},
        })),
    }));
    schema::parse(&namespace).unwrap_or_else(|_| SchemaNode::anything())
});

/// Whether a policy takes parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Params {
    Taken,
    None,
}

/// The names that every policy and every condition knows. Objects have no type: a policy
/// may be meant for many kinds.
pub fn admission_names(params: Params) -> Declarations<'static> {
    let names = Declarations::default().dynamic("object").dynamic("oldObject");
    surroundings(match params {
        Params::Taken => names.dynamic("params"),
        Params::None => names,
    })
}

/// The same for objects of one kind, and parameters of one kind if there are any.
pub fn typed_admission_names<'n>(
    object: &'n SchemaNode,
    params: Option<Option<&'n SchemaNode>>,
) -> Declarations<'n> {
    let names = Declarations::default().typed("object", object).typed("oldObject", object);
    surroundings(match params {
        Some(Some(params)) => names.typed("params", params),
        Some(None) => names.dynamic("params"),
        None => names,
    })
}

fn surroundings(names: Declarations<'_>) -> Declarations<'_> {
    names.typed("request", &REQUEST).typed("namespaceObject", &NAMESPACE).authorizer()
}

/// Whether a policy has a kind of parameters.
pub fn params_of(policy: &Value) -> Params {
    if json::has(policy, "/spec/paramKind") { Params::Taken } else { Params::None }
}

/// Compiles an expression only to see whether it can be.
pub(super) fn check(
    source: &str,
    names: &Declarations<'_>,
    wanted: ExpectedType,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if source.trim().is_empty() {
        return;
    }
    if let Err(error) = Expression::compile(source, names, wanted) {
        errors.push(FieldError::invalid(path, source, error.to_string()));
    }
}
