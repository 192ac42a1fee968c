//! An operation, written for one version of OpenAPI.

use serde_json::{Map, Value, json};
use types::openapi::OpenApiVersion;

use super::{Operation, OperationBody, Parameter};

/// Writes operations for one version of OpenAPI.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationWriter {
    pub(super) form: OpenApiVersion,
    pub(super) custom: bool,
}

impl OperationWriter {
    pub(super) fn operation(self, operation: Operation, tag: &str) -> Value {
        let mut parameters: Vec<Value> =
            operation.parameters.iter().map(|parameter| self.in_query(*parameter)).collect();
        let mut written = json!({
            "description": operation.description,
            "operationId": operation.id,
            "responses": self.responses(&operation.reply, operation.codes),
            "tags": [tag],
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": operation.gvk,
        });
        if let Some((schema, required)) = operation.body.schema() {
            match self.form {
                OpenApiVersion::V3 => written["requestBody"] = self.request_body(&operation.body, &schema, required),
                OpenApiVersion::V2 => parameters.push(json!({
                    "in": "body", "name": "body", "required": required, "schema": self.reference(&schema),
                })),
            }
        }
        if self.form == OpenApiVersion::V2 {
            written["consumes"] = match operation.body {
                OperationBody::Patch => self.patch_types().into(),
                _ => json!(["*/*"]),
            };
            written["produces"] = self.reply_types(false).into();
            written["schemes"] = json!(["https"]);
        }
        if !parameters.is_empty() {
            written["parameters"] = Value::Array(parameters);
        }
        written
    }

    fn request_body(self, body: &OperationBody, schema: &str, required: bool) -> Value {
        let types = match body {
            OperationBody::Patch => self.patch_types(),
            _ => vec!["*/*"],
        };
        let mut written = json!({"content": self.content(&types, schema)});
        if required {
            written["required"] = true.into();
        }
        written
    }

    pub(super) fn responses(self, schema: &str, codes: &[(&str, &str)]) -> Value {
        let types = self.reply_types(schema.ends_with("List"));
        let mut written = Map::new();
        for (code, text) in codes {
            let mut response = json!({"description": text});
            match self.form {
                OpenApiVersion::V3 => response["content"] = self.content(&types, schema),
                OpenApiVersion::V2 => response["schema"] = self.reference(schema),
            }
            written.insert((*code).to_owned(), response);
        }
        written.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(written)
    }

    fn content(self, types: &[&str], schema: &str) -> Value {
        let reference = json!({"schema": self.reference(schema)});
        let content = types.iter().map(|ty| ((*ty).to_owned(), reference.clone()));
        Value::Object(content.collect())
    }

    fn reference(self, schema: &str) -> Value {
        match self.form {
            OpenApiVersion::V3 => json!({"$ref": format!("#/components/schemas/{schema}")}),
            OpenApiVersion::V2 => json!({"$ref": format!("#/definitions/{schema}")}),
        }
    }

    /// kubectl applies with strategic merges where it finds them among these.
    fn patch_types(self) -> Vec<&'static str> {
        let mut types = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if !self.custom {
            types.push("application/strategic-merge-patch+json");
        }
        types
    }

    fn reply_types(self, list: bool) -> Vec<&'static str> {
        let mut types = vec!["application/json", "application/yaml"];
        if !self.custom {
            types.push("application/vnd.kubernetes.protobuf");
        }
        if list {
            types.push("application/json;stream=watch");
            if !self.custom {
                types.push("application/vnd.kubernetes.protobuf;stream=watch");
            }
        }
        types
    }

    pub(super) fn in_query(self, (name, ty, description): Parameter) -> Value {
        self.parameter("query", name, ty, description)
    }

    pub(super) fn in_path(self, name: &str, description: &str) -> Value {
        let mut written = self.parameter("path", name, "string", description);
        written["required"] = true.into();
        written
    }

    fn parameter(self, place: &str, name: &str, ty: &str, description: &str) -> Value {
        let mut written = json!({"name": name, "in": place, "description": description});
        match self.form {
            OpenApiVersion::V3 => written["schema"] = json!({"type": ty, "uniqueItems": true}),
            OpenApiVersion::V2 => {
                written["type"] = ty.into();
                written["uniqueItems"] = true.into();
            }
        }
        written
    }
}
