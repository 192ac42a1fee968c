//! Field errors: an error of one field of an object, in the words that Kubernetes clients know
//! (`spec.replicas: Invalid value: -1: must be …`).

use std::fmt;

use serde_json::Value;

/// The kind of a field error; its two texts are part of the wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    TypeInvalid,
    Internal,
}

impl Reason {
    /// The machine-readable cause in a `Status`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the offending value is part of the text.
    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub reason: Reason,
    /// Dotted path, `spec.ports[0].name`; empty for the whole object.
    pub field: String,
    /// The offending value, where it helps the reader.
    pub value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    pub fn new(reason: Reason, field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self { reason, field: field.to_string(), value: None, detail: detail.into() }
    }

    fn with(reason: Reason, field: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self { reason, field: field.to_string(), value: Some(value.into()), detail: String::new() }
    }

    pub fn required(field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(Reason::Required, field, detail)
    }

    pub fn forbidden(field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(Reason::Forbidden, field, detail)
    }

    pub fn invalid(
        field: impl fmt::Display,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { detail: detail.into(), ..Self::with(Reason::Invalid, field, value) }
    }

    pub fn duplicate(field: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::with(Reason::Duplicate, field, value)
    }

    pub fn not_found(field: impl fmt::Display, value: impl Into<Value>) -> Self {
        Self::with(Reason::NotFound, field, value)
    }

    /// An enumerated field with a value that is not one of `valid` (listed in the given order).
    pub fn not_supported(
        field: impl fmt::Display,
        value: impl Into<Value>,
        valid: &[&str],
    ) -> Self {
        let quoted: Vec<String> = valid.iter().map(|value| format!("{value:?}")).collect();
        let detail = match quoted.as_slice() {
            [] => String::new(),
            _ => format!("supported values: {}", quoted.join(", ")),
        };
        Self { detail, ..Self::with(Reason::NotSupported, field, value) }
    }

    pub fn too_long(field: impl fmt::Display, most: usize) -> Self {
        Self::new(Reason::TooLong, field, format!("may not be more than {most} bytes"))
    }

    pub fn too_many(field: impl fmt::Display, actual: usize, most: usize) -> Self {
        let noun = if most == 1 { "item" } else { "items" };
        Self {
            detail: format!("must have at most {most} {noun}"),
            ..Self::with(Reason::TooMany, field, actual)
        }
    }

    /// The text without the field's name, as written in a `Status` cause.
    pub fn body(&self) -> String {
        let mut text = self.reason.text().to_owned();
        if let Some(value) = self.value.as_ref().filter(|_| self.reason.shows_value()) {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.body())
    }
}

/// A position in an object, extended while walking down; printed as `a.b[0][key]`.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// `.name`
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    /// `[index]`
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// `[key]`, for an entry of a free-form map.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => out.write_str(name),
            Self::Field(parent, name) => write!(out, "{parent}.{name}"),
            Self::Index(parent, index) => write!(out, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(out, "{parent}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_upstream() {
        let root = Path::Root;
        let spec = root.field("spec");
        let ports = spec.field("ports");
        let port = ports.index(2);
        let check = |error: FieldError, text: &str| assert_eq!(error.to_string(), text);
        check(
            FieldError::invalid(port.field("port"), 0, "must be positive"),
            "spec.ports[2].port: Invalid value: 0: must be positive",
        );
        check(FieldError::required(spec, ""), "spec: Required value");
        check(
            FieldError::not_supported(spec, "x", &["a", "b"]),
            r#"spec: Unsupported value: "x": supported values: "a", "b""#,
        );
        check(FieldError::duplicate(spec.key("k"), "v"), r#"spec[k]: Duplicate value: "v""#);
        check(FieldError::too_long(spec, 5), "spec: Too long: may not be more than 5 bytes");
        check(FieldError::too_many(spec, 3, 1), "spec: Too many: 3: must have at most 1 item");
    }
}
