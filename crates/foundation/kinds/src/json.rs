//! Reading and filling JSON objects whose shape the schema has already checked.
//!
//! Nothing here fails: a field of the wrong type reads as absent, because the decoder
//! is the one that complains about it. Places are JSON pointers (`/spec/type`).

use serde_json::{Map, Value};

/// The value at `pointer`; null counts as absent.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    value.pointer(pointer).filter(|value| !value.is_null())
}

/// Whether there is a value at `pointer`.
pub(crate) fn has(value: &Value, pointer: &str) -> bool {
    at(value, pointer).is_some()
}

/// The text at `pointer`, empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at `pointer` where absence and emptiness differ.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    at(value, pointer).and_then(Value::as_str)
}

/// The whole number at `pointer`.
pub(crate) fn int_at(value: &Value, pointer: &str) -> Option<i64> {
    at(value, pointer).and_then(Value::as_i64)
}

/// The whole number at `pointer`, 0 when there is none.
pub(crate) fn int(value: &Value, pointer: &str) -> i64 {
    int_at(value, pointer).unwrap_or_default()
}

/// The truth value at `pointer`, false when there is none.
pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    at(value, pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of the list at `pointer`, none when there is no list.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of the list at `pointer`.
pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(value, pointer).iter().filter_map(Value::as_str).collect()
}

/// The entries of the map at `pointer`, none when there is no map.
pub(crate) fn entries<'a>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(value, pointer).and_then(Value::as_object).into_iter().flatten()
}

/// How many entries the map or list at `pointer` has.
pub(crate) fn count(value: &Value, pointer: &str) -> usize {
    match at(value, pointer) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    }
}

/// The object under `key`, made when absent; none if another value is there.
pub(crate) fn object<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let fields = value.as_object_mut()?;
    if !fields.contains_key(key) {
        fields.insert(key.to_owned(), Value::Object(Map::new()));
    }
    let field = fields.get_mut(key)?;
    if field.is_null() {
        *field = Value::Object(Map::new());
    }
    field.is_object().then_some(field)
}

/// Sets `key` where it is absent or null.
pub(crate) fn fill(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut()
        && fields.get(key).is_none_or(Value::is_null)
    {
        fields.insert(key.to_owned(), default.into());
    }
}

/// Sets `key` where it is absent, null or the zero of its type, which is how a field
/// that is not a pointer upstream says "not given".
pub(crate) fn fill_zero(value: &mut Value, key: &str, default: impl Into<Value>) {
    let Some(fields) = value.as_object_mut() else { return };
    let unset = match fields.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    };
    if unset {
        fields.insert(key.to_owned(), default.into());
    }
}

/// The items of the list under `key`, to change.
pub(crate) fn items_mut<'a>(
    value: &'a mut Value,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes `key`, whatever it holds.
pub(crate) fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(key))
}

/// Sets `key`; on something that is not an object, does nothing.
pub(crate) fn set(value: &mut Value, key: &str, to: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(key.to_owned(), to.into());
    }
}

/// Gives `key` of `new` the value it has in `old`, absence included.
pub(crate) fn restore(new: &mut Value, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => set(new, key, value.clone()),
        None => {
            remove(new, key);
        }
    }
}
