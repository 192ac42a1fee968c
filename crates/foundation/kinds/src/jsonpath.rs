//! The part of kubectl's JSONPath that printer columns use.
//!
//! Not RFC 9535: this is upstream's own dialect, with its own quirks. `range` and `end`
//! are not here, because a column is one path.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path, such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    nodes: Vec<JsonPathNode>,
}

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("unrecognized character in action: {0:?}")]
    Unexpected(char),
    #[error("unrecognized identifier {name}")]
    Identifier { name: String },
    #[error("invalid array index {text}")]
    Index { text: String },
    #[error("cannot parse number {text}")]
    Number { text: String },
    #[error("unrecognized filter operator {text}")]
    Operator { text: String },
    #[error("invalid multiple recursive descent")]
    Recursive,
    #[error("filters are nested too deeply")]
    Depth,
}

/// Why a path cannot be followed in an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("not an array")]
    NotArray,
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds { index: i64, length: i64 },
    #[error("step must be > 0")]
    Step,
    #[error("can only compare one element at a time")]
    ManyOperands,
    #[error("incompatible types for comparison")]
    Incomparable,
}

impl JsonPath {
    /// Reads a path; the braces of a template are not part of it.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self { nodes: parse::nodes(text, 0)? })
    }

    /// The values at the path; a missing key gives none and is no error.
    pub fn eval<'a>(&'a self, object: &'a Value) -> Result<Vec<Cow<'a, Value>>, EvalError> {
        walk(&self.nodes, vec![Cow::Borrowed(object)])
    }
}

#[derive(Debug, Clone, PartialEq)]
enum JsonPathNode {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<JsonPathNode>>),
    Filter { left: Vec<JsonPathNode>, test: Option<(Operator, Vec<JsonPathNode>)> },
    Literal(Value),
}

/// `[from:to:step]`; a single index is a slice of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    /// Whether `to` was not written but follows from a single index.
    single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

type JsonPathMatches<'a> = Vec<Cow<'a, Value>>;

fn walk<'a>(
    nodes: &'a [JsonPathNode],
    mut found: JsonPathMatches<'a>,
) -> Result<JsonPathMatches<'a>, EvalError> {
    for node in nodes {
        found = step(node, found)?;
    }
    Ok(found)
}

fn step<'a>(
    node: &'a JsonPathNode,
    found: JsonPathMatches<'a>,
) -> Result<JsonPathMatches<'a>, EvalError> {
    match node {
        JsonPathNode::Literal(value) => Ok(found.iter().map(|_| Cow::Borrowed(value)).collect()),
        JsonPathNode::Field(name) => {
            Ok(found.into_iter().filter_map(|value| field(value, name)).collect())
        }
        JsonPathNode::Wildcard => Ok(found.into_iter().flat_map(children).collect()),
        JsonPathNode::Recursive => Ok(found.into_iter().flat_map(descendants).collect()),
        JsonPathNode::Union(paths) => {
            let mut all = Vec::new();
            for path in paths {
                all.extend(walk(path, found.clone())?);
            }
            Ok(all)
        }
        JsonPathNode::Slice(slice) => {
            let mut all = Vec::new();
            for value in found.into_iter().filter(|value| !value.is_null()) {
                all.extend(slice.of(value)?);
            }
            Ok(all)
        }
        JsonPathNode::Filter { left, test } => {
            let mut all = Vec::new();
            for value in found {
                if !value.is_array() {
                    return Err(EvalError::NotArray);
                }
                for item in children(value) {
                    if passes(&item, left, test.as_ref())? {
                        all.push(item);
                    }
                }
            }
            Ok(all)
        }
    }
}

fn field<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    if name.is_empty() {
        return Some(value);
    }
    match value {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> JsonPathMatches<'_> {
    match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(fields)) => {
            fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect()
        }
        _ => Vec::new(),
    }
}

/// The value and everything below it, as far as it has anything below.
fn descendants(value: Cow<'_, Value>) -> JsonPathMatches<'_> {
    let below = children(value.clone());
    if below.is_empty() {
        return Vec::new();
    }
    let mut all = vec![value];
    all.extend(below.into_iter().flat_map(descendants));
    all
}

impl Slice {
    fn of(self, value: Cow<'_, Value>) -> Result<JsonPathMatches<'_>, EvalError> {
        if !value.is_array() {
            return Err(EvalError::NotArray);
        }
        let items = children(value);
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let mut from = self.from.unwrap_or_default();
        if from < 0 {
            from += length;
        }
        let mut to = self.to.unwrap_or(length);
        if to < 0 || to == 0 && self.single {
            to += length;
        }
        if from == to {
            return Ok(Vec::new());
        }
        if !(0..length).contains(&from) {
            return Err(EvalError::OutOfBounds { index: from, length });
        }
        if !(from..=length).contains(&to) {
            return Err(EvalError::OutOfBounds { index: to - 1, length });
        }
        let step = usize::try_from(self.step.unwrap_or(1)).unwrap_or_default();
        if step == 0 {
            return Err(EvalError::Step);
        }
        let (from, to) = (usize::try_from(from), usize::try_from(to));
        let (Ok(from), Ok(to)) = (from, to) else { return Err(EvalError::Step) };
        Ok(items.into_iter().take(to).skip(from).step_by(step).collect())
    }
}

fn passes(
    item: &Value,
    left: &[JsonPathNode],
    test: Option<&(Operator, Vec<JsonPathNode>)>,
) -> Result<bool, EvalError> {
    let found = walk(left, vec![Cow::Borrowed(item)]);
    let Some((operator, right)) = test else {
        return Ok(found.is_ok_and(|found| !found.is_empty()));
    };
    let (found, wanted) = (found?, walk(right, vec![Cow::Borrowed(item)])?);
    match (found.as_slice(), wanted.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => operator.holds(left, right),
        _ => Err(EvalError::ManyOperands),
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) => match self {
                Self::Equal | Self::NotEqual => left.cmp(right),
                _ => return Err(EvalError::Incomparable),
            },
            (Value::Number(left), Value::Number(right)) => compare(left, right)?,
            _ => return Err(EvalError::Incomparable),
        };
        Ok(match self {
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::GreaterOrEqual => order != Ordering::Less,
            Self::Greater => order == Ordering::Greater,
        })
    }
}

/// Whole numbers compare with whole numbers, fractions with fractions; upstream refuses
/// to mix them, and so do we.
fn compare(left: &serde_json::Number, right: &serde_json::Number) -> Result<Ordering, EvalError> {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => Ok(left.cmp(&right)),
        (None, None) => match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left.partial_cmp(&right).ok_or(EvalError::Incomparable),
            _ => Err(EvalError::Incomparable),
        },
        _ => Err(EvalError::Incomparable),
    }
}

#[cfg(test)]
mod tests;
