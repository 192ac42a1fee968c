//! Operations of JSON patches (RFC 6902), each in a text of its own, as KubeVirt's objects carry
//! them. Pure.
//!
//! More lenient than the standard in two points, since who wrote them saw another state of the
//! object: to remove what is not there is no fault, and to replace it adds it.

use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("patch {index} is not an operation: {text}")]
    Syntax { index: usize, text: String },
    #[error("patch {index} names {path}, which does not exist")]
    Path { index: usize, path: String },
    #[error("patch {index} expects another value at {path}")]
    Test { index: usize, path: String },
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: String, value: Value },
    Replace { path: String, value: Value },
    Remove { path: String },
    Test { path: String, value: Value },
    Copy { from: String, path: String },
    Move { from: String, path: String },
}

/// Changes nothing if one of them fails.
pub(crate) fn apply(target: &mut Value, patches: &[&str]) -> Result<(), PatchError> {
    let mut changed = target.clone();
    for (index, text) in patches.iter().enumerate() {
        let operation = serde_json::from_str(text)
            .map_err(|_| PatchError::Syntax { index, text: (*text).to_owned() })?;
        step(&mut changed, index, operation)?;
    }
    *target = changed;
    Ok(())
}

fn step(target: &mut Value, index: usize, operation: Operation) -> Result<(), PatchError> {
    let missing = |path: String| PatchError::Path { index, path };
    let found = |target: &Value, path: &str| target.pointer(path).cloned();
    match operation {
        Operation::Add { path, value } => {
            put(target, &path, value, ListPosition::New).ok_or_else(|| missing(path))
        }
        Operation::Replace { path, value } => {
            put(target, &path, value, ListPosition::Old).ok_or_else(|| missing(path))
        }
        Operation::Remove { path } => {
            take(target, &path);
            Ok(())
        }
        Operation::Test { path, value } => match found(target, &path) {
            Some(own) if own == value => Ok(()),
            _ => Err(PatchError::Test { index, path }),
        },
        Operation::Copy { from, path } => {
            let value = found(target, &from).ok_or_else(|| missing(from))?;
            put(target, &path, value, ListPosition::New).ok_or_else(|| missing(path))
        }
        Operation::Move { from, path } => {
            let value = take(target, &from).ok_or_else(|| missing(from))?;
            put(target, &path, value, ListPosition::New).ok_or_else(|| missing(path))
        }
    }
}

/// Whether an entry of a list is put between others or in the place of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListPosition {
    New,
    Old,
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

/// A map that holds labels or annotations may be missing as long as there are none.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if target.pointer(path).is_none_or(Value::is_null) && is_map_of_texts(path) {
        put(target, path, Value::Object(Map::new()), ListPosition::New)?;
    }
    target.pointer_mut(path)
}

fn is_map_of_texts(path: &str) -> bool {
    path.ends_with("/metadata/labels") || path.ends_with("/metadata/annotations")
}

fn put(target: &mut Value, path: &str, value: Value, place: ListPosition) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (above, key) = split(path)?;
    match parent(target, above)? {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let at: usize = key.parse().ok()?;
            match place {
                ListPosition::New if at <= list.len() => list.insert(at, value),
                ListPosition::Old => *list.get_mut(at)? = value,
                ListPosition::New => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    let (above, key) = split(path)?;
    match target.pointer_mut(above)? {
        Value::Object(map) => map.remove(&key),
        Value::Array(list) => {
            let at: usize = key.parse().ok()?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_change_what_they_name() {
        for (patch, expected) in [
            (r#"{"op":"add","path":"/a/b","value":1}"#, json!({"a": {"b": 1}, "l": [1, 2]})),
            (r#"{"op":"replace","path":"/l/0","value":7}"#, json!({"a": {}, "l": [7, 2]})),
            (r#"{"op":"add","path":"/l/1","value":7}"#, json!({"a": {}, "l": [1, 7, 2]})),
            (r#"{"op":"add","path":"/l/-","value":7}"#, json!({"a": {}, "l": [1, 2, 7]})),
            (r#"{"op":"remove","path":"/l/0"}"#, json!({"a": {}, "l": [2]})),
            (r#"{"op":"remove","path":"/none"}"#, json!({"a": {}, "l": [1, 2]})),
            (r#"{"op":"test","path":"/l/0","value":1}"#, json!({"a": {}, "l": [1, 2]})),
            (
                r#"{"op":"copy","from":"/l","path":"/a/c"}"#,
                json!({"a": {"c": [1, 2]}, "l": [1, 2]}),
            ),
            (r#"{"op":"move","from":"/l","path":"/a/c"}"#, json!({"a": {"c": [1, 2]}})),
            (
                r#"{"op":"add","path":"/metadata/labels/x~1y","value":"z"}"#,
                json!({"a": {}, "l": [1, 2], "metadata": {"labels": {"x/y": "z"}}}),
            ),
        ] {
            let mut own = json!({"a": {}, "l": [1, 2]});
            if patch.contains("metadata") {
                own["metadata"] = json!({});
            }
            apply(&mut own, &[patch]).unwrap();
            assert_eq!(own, expected, "{patch}");
        }
    }

    #[test]
    fn a_failing_patch_changes_nothing_and_is_named() {
        for (patch, expected) in [
            (r#"{"op":"add","path":"/x/y","value":1}"#, "patch 1 names /x/y, which does not exist"),
            (r#"{"op":"test","path":"/a","value":1}"#, "patch 1 expects another value at /a"),
            ("[]", "patch 1 is not an operation: []"),
        ] {
            let mut own = json!({"a": 0});
            let first = r#"{"op":"add","path":"/b","value":1}"#;
            let failed = apply(&mut own, &[first, patch]).unwrap_err();
            assert_eq!(failed.to_string(), expected);
            assert_eq!(own, json!({"a": 0}));
        }
    }
}
