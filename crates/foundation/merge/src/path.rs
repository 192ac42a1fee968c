//! The steps of a path through an object, their order, and their two written
//! forms: `f:spec` in `managedFields` and `.spec` in messages.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

/// One step down into a value.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// `f:name`, a field of an object.
    Field(Box<str>),
    /// `k:{…}`, the item of a list whose fields have these values; sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// `v:…`, the item of a set with this value.
    Value(Box<Value>),
    /// `i:…`, the item at this position.
    Index(i64),
}

/// Why a text is not a path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathElementError {
    #[error("key must be 2 characters long:")]
    TooShort,
    #[error("missing colon: {0}")]
    MissingColon(String),
    /// A kind of element from the future: readers skip it.
    #[error("unknown path element type")]
    UnknownType,
    #[error("{0:?} does not hold a valid value")]
    BadValue(String),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A key of several fields, in any order.
    pub fn key<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut fields: Vec<(Box<str>, Value)> =
            fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Self::Key(fields.into())
    }

    pub fn value(value: impl Into<Value>) -> Self {
        Self::Value(Box::new(value.into()))
    }

    /// Reads the form used in `managedFields`.
    pub fn parse(text: &str) -> Result<Self, PathElementError> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(PathElementError::TooShort);
        }
        if bytes[1] != b':' {
            return Err(PathElementError::MissingColon(text.to_owned()));
        }
        let bad = || PathElementError::BadValue(text.to_owned());
        let rest = &text[2..];
        match bytes[0] {
            b'f' => Ok(Self::field(rest)),
            b'v' => serde_json::from_str(rest).map(Self::Value).map_err(|_| bad()),
            b'k' => {
                let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
                Ok(Self::Key(
                    fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
                ))
            }
            b'i' => rest.parse().map(Self::Index).map_err(|_| bad()),
            _ => Err(PathElementError::UnknownType),
        }
    }

    /// Writes the form used in `managedFields`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut text = String::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            Self::Key(fields) => {
                let mut text = String::from("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    let name = Value::String(name.to_string());
                    let _ = write!(text, "{comma}{name}:{value}");
                }
                text.push('}');
                text
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Fields come before keys, keys before values, values before positions.
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => compare_keys(left, right),
            (Self::Value(left), Self::Value(right)) => compare_values(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

fn compare_keys(left: &[(Box<str>, Value)], right: &[(Box<str>, Value)]) -> Ordering {
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
        let order = left_name.cmp(right_name).then_with(|| compare_values(left_value, right_value));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// A total order over JSON values; numbers compare by what they are worth.
pub(crate) fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            for (left, right) in left.iter().zip(right) {
                let order = compare_values(left, right);
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Value::Object(left), Value::Object(right)) => {
            for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
                let order =
                    left_name.cmp(right_name).then_with(|| compare_values(left_value, right_value));
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        _ => value_rank(left).cmp(&value_rank(right)),
    }
}

/// Whether two values are the same, where `1` and `1.0` are.
pub(crate) fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| same_value(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((left_name, left), (right_name, right))| {
                    left_name == right_name && same_value(left, right)
                })
        }
        _ => left == right,
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or(0.0);
            float(left).total_cmp(&float(right))
        }
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

impl fmt::Display for PathElement {
    /// The form in messages: `.spec`, `[name="x"]`, `[="x"]`, `[0]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Key(fields) => {
                out.write_char('[')?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(out, "{comma}{name}={}", DisplayedValue(value))?;
                }
                out.write_char(']')
            }
            Self::Value(value) => write!(out, "[={}]", DisplayedValue(value)),
            Self::Index(index) => write!(out, "[{index}]"),
        }
    }
}

/// A value as it is printed within a path.
struct DisplayedValue<'a>(&'a Value);

impl fmt::Display for DisplayedValue<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => out.write_str("null"),
            Value::Bool(value) => write!(out, "{value}"),
            Value::Number(value) => write!(out, "{value}"),
            Value::String(value) => write!(out, "{}", GoQuoted(value)),
            Value::Array(values) => {
                out.write_char('[')?;
                for (at, value) in values.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(out, "{comma}{}", DisplayedValue(value))?;
                }
                out.write_char(']')
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    write!(out, "{name}={}", DisplayedValue(value))?;
                }
                Ok(())
            }
        }
    }
}

/// A text between double quotes, escaped as Go's `%q` does.
pub(crate) struct GoQuoted<'a>(pub(crate) &'a str);

impl fmt::Display for GoQuoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => out.write_str("\\\"")?,
                '\\' => out.write_str("\\\\")?,
                '\n' => out.write_str("\\n")?,
                '\r' => out.write_str("\\r")?,
                '\t' => out.write_str("\\t")?,
                '\u{7}' => out.write_str("\\a")?,
                '\u{8}' => out.write_str("\\b")?,
                '\u{b}' => out.write_str("\\v")?,
                '\u{c}' => out.write_str("\\f")?,
                letter if letter.is_ascii_control() => write!(out, "\\x{:02x}", letter as u32)?,
                letter if letter.is_control() => write!(out, "\\u{:04x}", letter as u32)?,
                letter => out.write_char(letter)?,
            }
        }
        out.write_char('"')
    }
}

/// A path from the root of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Path(pub Vec<PathElement>);

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(out, "{element}"))
    }
}

#[cfg(test)]
mod tests;
