//! `FieldsV1`, the form of a set on the wire: `{"f:spec":{".":{},"f:replicas":{}}}`.
//! An empty object marks a member without children, `"."` a member with children.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Set, SetNode};
use crate::path::{PathElement, PathElementError};

/// Why a value is not a set of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("expected an object of fields")]
    NotAnObject,
    #[error("parsing key as path element: {0}")]
    Element(PathElementError),
    #[error("{0}")]
    Syntax(String),
}

impl Set {
    /// Reads `FieldsV1`. Elements of unknown kinds are skipped.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, SetError> {
        match fields {
            Value::Null => Ok(Self::new()),
            Value::Object(fields) => Ok(read(fields)?.1),
            _ => Err(SetError::NotAnObject),
        }
    }

    /// Reads the text of a `FieldsV1`.
    pub fn from_json(text: &str) -> Result<Self, SetError> {
        let fields: Value =
            serde_json::from_str(text).map_err(|error| SetError::Syntax(error.to_string()))?;
        Self::from_fields_v1(&fields)
    }

    /// Writes `FieldsV1` as a value (whose object sorts its keys in its own way).
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.object(false))
    }

    fn object(&self, member: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if member && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            fields.insert(node.element.encode(), Value::Object(node.below.object(node.member)));
        }
        fields
    }

    /// Writes the text of a `FieldsV1` in upstream's order of elements.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        self.write(false, &mut text);
        text
    }

    fn write(&self, member: bool, text: &mut String) {
        text.push('{');
        let mut comma = "";
        if member && !self.is_empty() {
            text.push_str("\".\":{}");
            comma = ",";
        }
        for node in &self.nodes {
            let _ = write!(text, "{comma}{}:", Value::String(node.element.encode()));
            node.below.write(node.member, text);
            comma = ",";
        }
        text.push('}');
    }
}

/// Reads one level; the flag says whether the node itself is a member.
fn read(fields: &Map<String, Value>) -> Result<(bool, Set), SetError> {
    let mut set = Set { nodes: Vec::with_capacity(fields.len()) };
    let mut member = false;
    for (key, value) in fields {
        if key == "." {
            member = true;
            continue;
        }
        let element = match PathElement::parse(key) {
            Ok(element) => element,
            Err(PathElementError::UnknownType) => continue,
            Err(error) => return Err(SetError::Element(error)),
        };
        let (member, below) = match value {
            Value::Object(fields) => read(fields)?,
            Value::Null => (true, Set::new()),
            _ => return Err(SetError::NotAnObject),
        };
        // The keys arrive sorted as texts, which is nearly the order of elements.
        if set.nodes.last().is_none_or(|last| last.element < element) {
            set.nodes.push(SetNode { element, member, below });
        } else {
            set.graft(element, member, below);
        }
    }
    Ok((member || set.is_empty(), set))
}
