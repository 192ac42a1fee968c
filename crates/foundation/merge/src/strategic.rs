//! Strategic merge patch: a merge patch that knows which lists merge by key,
//! and carries directives (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/x`,
//! `$setElementOrder/x`) where a plain merge cannot say what is meant.

use schema::{Additional, PatchStrategy, Schema, SchemaNode};
use serde_json::{Map, Value};

use crate::go::go_print;

mod lists;
mod order;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// The class of an error, which determines the status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 400
    BadRequest,
    /// 422
    Unprocessable,
    /// 500, as upstream answers for patches that do not fit the object.
    Internal,
}

/// Why a strategic merge patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    #[error("invalid JSON document")]
    NotAnObject,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("invalid patch format of primitive list")]
    BadDeleteList,
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    BadElementOrder,
    #[error("map: {} does not contain declared merge key: {key}", go_print(map))]
    NoMergeKey { map: Value, key: String },
    #[error("unknown patch type: {} in map: {}", go_print(directive), go_print(map))]
    UnknownDirective { directive: Value, map: Value },
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    #[error("cannot merge lists without merge key for {0}")]
    KeylessList(String),
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    #[error("expected a {expected}, but received a {actual}")]
    WrongType { expected: &'static str, actual: &'static str },
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: Value, order: Value },
}

impl StrategicError {
    /// Which answer the error deserves.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotAnObject
            | Self::BadDeleteList
            | Self::BadRetainKeys
            | Self::BadElementOrder => Fault::BadRequest,
            Self::ListOfLists => Fault::Unprocessable,
            _ => Fault::Internal,
        }
    }
}

/// Applies a strategic merge patch.
pub fn strategic_merge(
    target: &Value,
    patch: &Value,
    schema: &Schema,
) -> Result<Value, StrategicError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(StrategicError::NotAnObject);
    };
    let place = SchemaPosition { node: Some(schema) };
    Ok(Value::Object(merge_map(target.clone(), patch.clone(), place)?))
}

/// A place in the schema; `None` where the schema says nothing.
#[derive(Debug, Clone, Copy)]
struct SchemaPosition<'a> {
    node: Option<&'a SchemaNode>,
}

impl<'a> SchemaPosition<'a> {
    fn field(self, name: &str) -> SchemaPosition<'a> {
        let node = self.node.and_then(|node| {
            node.property(name).or(match &node.additional {
                Additional::Of(values) => Some(values),
                Additional::Closed | Additional::Anything => None,
            })
        });
        SchemaPosition { node: node.map(|node| &**node) }
    }

    fn item(self) -> SchemaPosition<'a> {
        SchemaPosition { node: self.node.and_then(|node| node.items.as_deref()) }
    }

    fn strategy(self) -> Option<&'a PatchStrategy> {
        self.node.and_then(|node| node.patch.as_deref())
    }

    fn key(self) -> Option<&'a str> {
        self.strategy().and_then(|strategy| strategy.key.as_deref())
    }

    fn merges(self) -> bool {
        self.strategy().is_some_and(|strategy| strategy.merge)
    }

    /// A strategy that is neither to merge nor to retain keys can only be to replace.
    fn replaces(self) -> bool {
        self.strategy().is_some_and(|strategy| !strategy.merge && !strategy.retain_keys)
    }
}

type Fields = Map<String, Value>;

/// Lays `patch` over `target`, both objects.
fn merge_map(
    mut target: Fields,
    mut patch: Fields,
    place: SchemaPosition<'_>,
) -> Result<Fields, StrategicError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => Err(StrategicError::UnknownDirective {
                directive: directive.clone(),
                map: Value::Object(patch),
            }),
        };
    }
    retain_keys(&mut target, &mut patch)?;
    order_lists(&mut target, &mut patch, place)?;
    for (name, value) in patch {
        if name.starts_with(DELETE_FROM) {
            let name = directed(&name, DELETE_FROM).ok_or(StrategicError::BadDeleteList)?;
            delete_from(&mut target, name, value)?;
        } else {
            merge_field(&mut target, name, value, place)?;
        }
    }
    Ok(target)
}

fn merge_field(
    target: &mut Fields,
    name: String,
    value: Value,
    place: SchemaPosition<'_>,
) -> Result<(), StrategicError> {
    if value.is_null() {
        target.remove(&name);
        return Ok(());
    }
    let field = place.field(&name);
    let merged = match (target.remove(&name), value) {
        (Some(Value::Object(_)), Value::Object(new)) if field.replaces() => {
            Some(Value::Object(new))
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            Some(Value::Object(merge_map(old, new, field)?))
        }
        (Some(Value::Array(old)), Value::Array(new)) if field.merges() => {
            Some(Value::Array(lists::merge_list(old, new, field)?))
        }
        (Some(Value::Array(_)), list @ Value::Array(_)) => Some(list),
        (_, mut new) => {
            discard_nulls(&mut new);
            without_directives(new)
        }
    };
    target.extend(merged.map(|value| (name, value)));
    Ok(())
}

/// The field that a directive such as `$setElementOrder/x` speaks of.
fn directed<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.split_once('/').filter(|(before, _)| *before == prefix).map(|(_, name)| name)
}

/// `$deleteFromPrimitiveList/x`: removes scalars from a list.
fn delete_from(target: &mut Fields, name: &str, gone: Value) -> Result<(), StrategicError> {
    if gone.is_null() {
        target.remove(name);
        return Ok(());
    }
    if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(name), gone) {
        if items.is_empty() && gone.is_empty() {
            return Ok(());
        }
        lists::element_kind(items, &gone)?;
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// `$retainKeys`: drops every field that it does not list.
fn retain_keys(target: &mut Fields, patch: &mut Fields) -> Result<(), StrategicError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(StrategicError::BadRetainKeys) };
    let listed = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let unlisted = patch.iter().any(|(name, value)| {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        !value.is_null() && !directive && !listed(name)
    });
    if unlisted {
        return Err(StrategicError::BadRetainKeys);
    }
    target.retain(|name, _| listed(name));
    Ok(())
}

/// `$setElementOrder/x`: merges the list `x` and puts it in the given order.
fn order_lists(
    target: &mut Fields,
    patch: &mut Fields,
    place: SchemaPosition<'_>,
) -> Result<(), StrategicError> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(wrong_type("[]interface {}", &other.unwrap_or(Value::Null))),
        };
        let name = directed(&directive, SET_ORDER).ok_or(StrategicError::BadElementOrder)?;
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong_type("[]interface {}", &other)),
        };
        let (live, new) = (list(target.get(name).cloned())?, list(patch.get(name).cloned())?);
        if live.is_none() && new.is_none() {
            continue;
        }
        patch.remove(name);
        let merged = lists::merge_ordered(live, new, &order, place.field(name))?;
        target.insert(name.to_owned(), Value::Array(merged));
    }
    Ok(())
}

/// Removes fields with null from a value that is new to the object.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// A value that is new to the object without what is only an instruction.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(without_directives).collect()))
        }
        scalar => Some(scalar),
    }
}

fn wrong_type(expected: &'static str, actual: &Value) -> StrategicError {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    StrategicError::WrongType { expected, actual }
}

#[cfg(test)]
mod tests;
