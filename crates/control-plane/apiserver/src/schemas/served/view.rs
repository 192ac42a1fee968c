//! The view of an object in lists: the fields that selectors read, and the cells of its table.

use jiff::Timestamp;
use serde_json::Value;

use super::{KindOrigin, ServedKind};
use crate::verbs::object;

impl ServedKind {
    /// How a field selector reads a field; `None` if the field is not selectable.
    pub(crate) fn selects(&self, field: &str) -> bool {
        matches!(field, "metadata.name" | "metadata.namespace")
            || match &self.origin {
                KindOrigin::BuiltIn(row) => row.fields.iter().any(|(known, _)| *known == field),
                KindOrigin::Custom(custom) => custom.selects(field),
            }
    }

    pub(crate) fn field(&self, object: &Value, field: &str) -> String {
        match (field, &self.origin) {
            ("metadata.name", _) => object::name(object).to_owned(),
            ("metadata.namespace", _) => object::namespace(object).to_owned(),
            (_, KindOrigin::BuiltIn(row)) => row
                .fields
                .iter()
                .find(|(known, _)| *known == field)
                .map(|(_, read)| read(object))
                .unwrap_or_default(),
            (_, KindOrigin::Custom(custom)) => custom.field(object, field),
        }
    }

    /// The columns of its table, as JSON `columnDefinitions`.
    pub(crate) fn columns(&self) -> Vec<Value> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => row
                .printer
                .columns
                .iter()
                .map(|column| {
                    serde_json::json!({
                        "name": column.name, "type": column.ty, "format": column.format,
                        "priority": column.priority, "description": column.description,
                    })
                })
                .collect(),
            KindOrigin::Custom(custom) => custom.columns(),
        }
    }

    /// The cells of one row.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => (row.printer.cells)(object, now),
            KindOrigin::Custom(custom) => custom.cells(object, now),
        }
    }
}
