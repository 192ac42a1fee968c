//! JSON patch (RFC 6902) and JSON merge patch (RFC 7396).
//!
//! JSON patch is written out here because API servers do not follow the RFC to
//! the letter and clients have come to rely on it: `replace` may create a field,
//! `test` against null passes for an absent one, negative positions count from
//! the end, and the texts of failures are part of the answer.

mod error;

use serde_json::{Map, Value};

pub use self::error::{OperationError, StepError};

/// More operations than this are refused.
pub const MOST_OPERATIONS: usize = 10_000;
/// How many bytes the `copy` operations of one patch may add in all: a few that copy what
/// the last one made would fill any memory.
const MOST_COPIED: usize = 3 << 20;

/// Why a JSON patch cannot be read or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a list of operations; a bad request.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// Too large a request.
    #[error("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// An operation that does not fit the document; the request is not processable.
    #[error(transparent)]
    DoesNotApply(OperationError),
}

/// Applies a JSON patch.
pub fn json_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let malformed = |text: &str| PatchError::Malformed(text.to_owned());
    let operations = patch.as_array().ok_or_else(|| malformed("expected a list of operations"))?;
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let operations: Vec<&Map<String, Value>> = operations
        .iter()
        .map(|operation| operation.as_object().ok_or_else(|| malformed("expected an operation")))
        .collect::<Result<_, _>>()?;
    let mut document = target.clone();
    let mut copied = 0;
    for operation in operations {
        apply(&mut document, operation, &mut copied).map_err(PatchError::DoesNotApply)?;
    }
    Ok(document)
}

/// Lays `patch` over `target`: objects merge, null deletes, anything else replaces. Beyond the
/// RFC, and as API servers do, nulls are also dropped from the objects of a list, unless the
/// list replaces an object.
pub fn merge_patch(target: &Value, patch: &Value) -> Value {
    let mut document = target.clone();
    merge_into(&mut document, patch);
    document
}

fn merge_into(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    fields.remove(name);
                } else {
                    merge_into(fields.entry(name.as_str()).or_insert(Value::Null), value);
                }
            }
        }
        (target @ Value::Object(_), patch) => *target = patch.clone(),
        (target, patch) => *target = without_nulls(patch),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.as_str(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

fn apply(
    document: &mut Value,
    operation: &Map<String, Value>,
    copied: &mut usize,
) -> Result<(), OperationError> {
    let kind = text(operation, "op").unwrap_or("unknown");
    let decode = |member: &'static str| {
        text(operation, member).ok_or_else(|| {
            let detail = match (kind, member) {
                ("add" | "remove" | "copy", "path") => "",
                (_, "path") => "operation missing path field: ",
                _ => "operation, missing from field: ",
            };
            OperationError::Undecodable { operation: kind.to_owned(), member, detail }
        })
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => add(document, decode("path")?, value()),
        "remove" => remove(document, decode("path")?),
        "replace" => replace(document, decode("path")?, value()),
        "test" => test(document, decode("path")?, &value()),
        "move" => relocate(document, decode("from")?, decode("path")?),
        "copy" => copy(document, decode("from")?, decode("path")?, copied),
        other => Err(OperationError::Unknown(other.to_owned())),
    }
}

fn text<'a>(operation: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    operation.get(member).and_then(Value::as_str)
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), OperationError> {
    let (holder, key) = find(document, path).ok_or_else(|| no_path("add", path))?;
    insert(holder, &key, value).map_err(|cause| failed("add", path, cause))
}

fn remove(document: &mut Value, path: &str) -> Result<(), OperationError> {
    let (holder, key) = find(document, path).ok_or_else(|| no_path("remove", path))?;
    take(holder, &key).map_err(|cause| failed("remove", path, cause))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), OperationError> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(OperationError::ScalarDocument);
        }
        *document = value;
        return Ok(());
    }
    let missing = |what| OperationError::NothingToReplace { what, path: path.to_owned() };
    let (holder, key) = find(document, path).ok_or_else(|| missing("path"))?;
    match holder {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let at = position(&key, items.len()).map_err(|_| missing("key"))?;
            items[at] = value;
        }
        _ => return Err(missing("path")),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), OperationError> {
    let failed_test = || Err(OperationError::TestFailed(path.to_owned()));
    if path.is_empty() {
        return if *document == *expected { Ok(()) } else { failed_test() };
    }
    let (holder, key) =
        find(document, path).ok_or_else(|| OperationError::NothingToTest(path.to_owned()))?;
    let actual = get(holder, &key).map_err(|cause| failed("test", path, cause))?;
    if actual == *expected { Ok(()) } else { failed_test() }
}

fn relocate(document: &mut Value, from: &str, path: &str) -> Result<(), OperationError> {
    let (holder, key) = find(document, from).ok_or_else(|| lacks("move", "from", from))?;
    let value = get(holder, &key).and_then(|value| take(holder, &key).map(|()| value));
    let value = value.map_err(|cause| failed("move", &key, cause))?;
    let (holder, key) = find(document, path).ok_or_else(|| lacks("move", "destination", path))?;
    insert(holder, &key, value).map_err(|cause| failed("move", path, cause))
}

fn copy(
    document: &mut Value,
    from: &str,
    path: &str,
    copied: &mut usize,
) -> Result<(), OperationError> {
    let (holder, key) = find(document, from).ok_or_else(|| lacks("copy", "from", from))?;
    let value = get(holder, &key)
        .map_err(|cause| OperationError::CopySource { from: from.to_owned(), cause })?;
    let (holder, key) = find(document, path).ok_or_else(|| lacks("copy", "destination", path))?;
    *copied += value.to_string().len();
    if *copied > MOST_COPIED {
        return Err(OperationError::TooMuchCopied { copied: *copied, most: MOST_COPIED });
    }
    insert(holder, &key, value).map_err(OperationError::CopyDestination)
}

fn no_path(operation: &'static str, path: &str) -> OperationError {
    OperationError::NoPath { operation, path: path.to_owned() }
}

fn failed(operation: &'static str, path: &str, cause: StepError) -> OperationError {
    OperationError::Step { operation, path: path.to_owned(), cause }
}

fn lacks(operation: &'static str, end: &'static str, path: &str) -> OperationError {
    OperationError::NoEnd { operation, end, path: path.to_owned() }
}

/// The container that holds the last step of a path, and that step.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps = path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
    // The part before the first slash has no meaning.
    steps.next()?;
    let mut key = steps.next()?;
    let mut holder = document;
    for next in steps {
        holder = match holder {
            Value::Object(fields) => fields.get_mut(&key)?,
            Value::Array(items) => {
                let at = position(&key, items.len()).ok()?;
                &mut items[at]
            }
            _ => return None,
        };
        key = next;
    }
    (holder.is_object() || holder.is_array()).then_some((holder, key))
}

/// The place of an existing item.
fn position(key: &str, len: usize) -> Result<usize, StepError> {
    let not_a_number = || StepError::NotANumber(key.to_owned());
    let at: i64 = key.parse().map_err(|_| not_a_number())?;
    let size = i64::try_from(len).unwrap_or(i64::MAX);
    let place = if at < 0 { at + size } else { at };
    if place < 0 || place >= size {
        return Err(StepError::NoSuchIndex(at));
    }
    usize::try_from(place).map_err(|_| not_a_number())
}

/// A field that is absent reads as null.
fn get(holder: &Value, key: &str) -> Result<Value, StepError> {
    match holder {
        Value::Array(items) => Ok(items[position(key, items.len())?].clone()),
        _ => Ok(holder.get(key).cloned().unwrap_or(Value::Null)),
    }
}

fn insert(holder: &mut Value, key: &str, value: Value) -> Result<(), StepError> {
    match holder {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = position(key, items.len() + 1).map_err(|error| match error {
                StepError::NotANumber(key) => StepError::NotAnIndex(key),
                other => other,
            })?;
            items.insert(at, value);
        }
        _ => {}
    }
    Ok(())
}

fn take(holder: &mut Value, key: &str) -> Result<(), StepError> {
    match holder {
        Value::Object(fields) => match fields.remove(key) {
            Some(_) => Ok(()),
            None => Err(StepError::NoSuchKey(key.to_owned())),
        },
        Value::Array(items) => {
            let at = position(key, items.len())?;
            items.remove(at);
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
