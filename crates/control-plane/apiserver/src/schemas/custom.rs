//! A kind that is made from one version of a CustomResourceDefinition.
//!
//! The definition's bytes are kept as the store holds them; the schema is parsed
//! and its rules compiled on first use, so that sixty large definitions that no client
//! uses cost next to nothing.

mod envelope;

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use kinds::{CustomColumn, JsonPath};
use schema::{FieldError, Malformed, ObjectLevel, Schema, SchemaNode};
use serde_json::{Value, json};
use store::{Revision, StoredVersion};

use crate::schemas::catalog;
use crate::schemas::conversion;
use crate::schemas::crd::{CrdVersion, Document};
use crate::schemas::served::{Endpoint, ServedKind};
use crate::status::{ApiError, ApiResult};
use crate::verbs::item::Item;
use crate::verbs::object;

/// One version of a custom kind.
#[derive(Debug)]
pub(crate) struct Custom {
    /// The definition this was made from.
    pub(crate) definition: Arc<StoredVersion<Item>>,
    pub(crate) storage_version: Box<str>,
    pub(crate) version: CrdVersion,
    /// How its versions become each other, if not by changing their name.
    pub(crate) conversion: Option<conversion::Webhook>,
    /// The definition is being deleted: nothing new may be made.
    pub(crate) is_terminating: bool,
    /// The newest version that should be used in place of this one.
    successor: Option<String>,
    columns: Vec<CustomColumn>,
    fields: Vec<(String, JsonPath)>,
    rules: OnceLock<schema::Compiled>,
    managed: OnceLock<Schema>,
}

impl Custom {
    pub(crate) fn new(
        definition: Arc<StoredVersion<Item>>,
        document: &Document,
        version: CrdVersion,
    ) -> Self {
        let rank = |version: &CrdVersion| catalog::priority(&version.name);
        let newer = document
            .spec
            .versions
            .iter()
            .filter(|other| other.served && !other.deprecated && rank(other) > rank(&version));
        let successor = newer.max_by_key(|other| rank(other)).map(|other| other.name.clone());
        let columns =
            version.additional_printer_columns.iter().filter_map(CustomColumn::new).collect();
        let fields = version
            .selectable_fields
            .iter()
            .filter_map(|field| {
                let path = JsonPath::parse(&field.json_path).ok()?;
                Some((field.json_path.trim_start_matches('.').to_owned(), path))
            })
            .collect();
        Self {
            definition,
            storage_version: document.storage_version().into(),
            version,
            conversion: conversion::Webhook::of(&document.spec.conversion),
            is_terminating: document.metadata.deletion_timestamp.is_some(),
            successor,
            columns,
            fields,
            rules: OnceLock::new(),
            managed: OnceLock::new(),
        }
    }

    fn rules(&self) -> &schema::Compiled {
        self.rules.get_or_init(|| {
            let schema = Document::schema(&self.definition.item, &self.version.name)
                .and_then(|raw| schema::parse(&raw).ok())
                .unwrap_or_else(SchemaNode::anything);
            schema::Compiled::new(schema)
        })
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.rules().schema()
    }

    /// The schema that field managers go by.
    pub(crate) fn managed_schema(&self) -> &Schema {
        self.managed.get_or_init(|| envelope::declare(self.schema()))
    }

    /// The schema as its author wrote it, for publication.
    pub(crate) fn raw_schema(&self) -> Option<Value> {
        Document::schema(&self.definition.item, &self.version.name)
    }

    pub(crate) fn clean(&self, object: &mut Value, malformed: Malformed) -> ApiResult<Vec<String>> {
        let mut unknown = schema::prune(object, self.schema(), ObjectLevel::Root);
        let coerced = schema::coerce_metadata(object, self.schema(), ObjectLevel::Root, malformed);
        unknown.extend(coerced.map_err(|error| ApiError::bad_request(error.to_string()))?);
        schema::drop_nulls(object, self.schema());
        Ok(unknown)
    }

    pub(crate) fn default(&self, object: &mut Value) {
        schema::default(object, self.schema());
    }

    /// A status of its own door is not for the creator to set.
    pub(crate) fn prepare_create(&self, object: &mut Value) {
        if self.has_status()
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
    }

    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value, endpoint: Endpoint) {
        match endpoint {
            Endpoint::Status => only_status(new, old),
            Endpoint::Main if self.has_status() => object::copy_top(new, old, "status"),
            Endpoint::Main | Endpoint::Finalize | Endpoint::Approval | Endpoint::Binding => {}
        }
    }

    fn has_status(&self) -> bool {
        self.version.subresources.status.is_some()
    }

    /// Brings what was stored under an earlier definition in line with this one.
    pub(crate) fn refresh(&self, object: &mut Value) {
        // With `Drop` there is nothing that could be refused.
        let _ = self.clean(object, Malformed::Drop);
        self.default(object);
    }

    /// On `/status` only what lies below the status is judged.
    pub(crate) fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        endpoint: Endpoint,
    ) -> Vec<FieldError> {
        let errors = self.rules().validate(new, old);
        match endpoint {
            Endpoint::Main | Endpoint::Finalize | Endpoint::Approval | Endpoint::Binding => errors,
            Endpoint::Status => {
                errors.into_iter().filter(|error| error.field.starts_with("status")).collect()
            }
        }
    }

    /// Stored before the definition last changed, or in another version: must be read anew.
    pub(crate) fn reads_verbatim(&self, revision: Revision) -> bool {
        *self.version.name == *self.storage_version && revision > self.definition.revision
    }

    pub(crate) fn deprecation(&self, served: &ServedKind) -> Option<String> {
        self.version.deprecated.then(|| {
            self.version.deprecation_warning.clone().unwrap_or_else(|| {
                let (group, kind) = (&served.group, &served.kind);
                let instead =
                    self.successor.iter().map(|name| format!("; use {group}/{name} {kind}"));
                let instead: String = instead.collect();
                format!("{} {kind} is deprecated{instead}", served.api_version())
            })
        })
    }

    pub(crate) fn selects(&self, field: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == field)
    }

    pub(crate) fn field(&self, object: &Value, field: &str) -> String {
        let Some((_, path)) = self.fields.iter().find(|(known, _)| known == field) else {
            return String::new();
        };
        let found = path.eval(object).unwrap_or_default();
        match found.first().map(AsRef::as_ref) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    pub(crate) fn columns(&self) -> Vec<Value> {
        let mut columns = vec![json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name of the object",
        })];
        if self.columns.is_empty() {
            columns.push(json!({
                "name": "Age", "type": "date", "format": "", "priority": 0,
                "description": "Time since the object was created",
            }));
        }
        columns.extend(self.columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.ty, "format": column.format,
                "priority": column.priority, "description": column.description,
            })
        }));
        columns
    }

    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = vec![object::name(object).into()];
        if self.columns.is_empty() {
            cells.push(kinds::age(object::meta(object, "creationTimestamp"), now).into());
        }
        cells.extend(self.columns.iter().map(|column| column.cell(object, now)));
        cells
    }
}

/// `/status` of a custom resource changes the status and nothing else.
fn only_status(new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let managed = new["metadata"].get("managedFields").cloned();
    *new = old.clone();
    if let Some(map) = new.as_object_mut() {
        match status {
            Some(status) => map.insert("status".to_owned(), status),
            None => map.remove("status"),
        };
    }
    object::set_meta(new, "managedFields", managed);
}
