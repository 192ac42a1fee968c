//! Access to fields, keys, indexes and membership in CEL.

use serde_json::Value;

use super::compare;
use super::eval::Error;
use super::name;
use super::value::{MapKey, ResourceValue, Val, field_schema};

/// `value.field` as written in an expression; `None` if there is no such field.
pub(super) fn select<'a>(value: &Val<'a>, field: &str) -> Result<Option<Val<'a>>, Error> {
    match value {
        Val::Object(map, node, resource) => {
            let name = name::unescape(field);
            let Some(schema) = field_schema(node, *resource, &name) else { return Ok(None) };
            // A null field is as good as absent.
            let value = map.get(&*name).filter(|value| !value.is_null());
            Ok(value.map(|value| Val::view(value, Some(schema), ResourceValue::No)))
        }
        Val::Entries(map, values) => {
            Ok(map.get(field).map(|value| Val::view(value, *values, ResourceValue::No)))
        }
        Val::Map(map) => Ok(map.get(&MapKey::Text(field.into())).cloned()),
        Val::Message(message) => Ok(message.fields.get(field).cloned()),
        other => Err(Error::overload("select", [other])),
    }
}

/// `value[index]`
pub(super) fn index<'a>(value: &Val<'a>, index: &Val<'a>) -> Result<Option<Val<'a>>, Error> {
    let position = |length: usize| match index {
        Val::Int(at) => usize::try_from(*at).ok().filter(|at| *at < length),
        Val::Uint(at) => usize::try_from(*at).ok().filter(|at| *at < length),
        Val::Double(at) if at.fract() == 0.0 && *at >= 0.0 => {
            Some(*at as usize).filter(|at| *at < length)
        }
        _ => None,
    };
    match (value, index) {
        (Val::List(list), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            Ok(position(list.len()).map(|at| list[at].clone()))
        }
        (Val::Array(list, node), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            let items = node.and_then(|node| node.items.as_deref());
            Ok(position(list.len()).map(|at| Val::view(&list[at], items, ResourceValue::No)))
        }
        (Val::Map(map), key) => Ok(self::key(key).and_then(|key| map.get(&key).cloned())),
        (Val::Entries(..), Val::Text(name)) => select(value, name),
        _ => Err(Error::overload("_[_]", [value, index])),
    }
}

/// `needle in haystack`
pub(super) fn contains<'a>(haystack: &Val<'a>, needle: &Val<'a>) -> Result<bool, Error> {
    match haystack {
        Val::List(list) => Ok(list.iter().any(|item| compare::equals(item, needle))),
        Val::Array(list, node) => {
            let items = node.and_then(|node| node.items.as_deref());
            Ok(list
                .iter()
                .any(|item| compare::equals(&Val::view(item, items, ResourceValue::No), needle)))
        }
        Val::Map(map) => Ok(key(needle).is_some_and(|key| map.contains_key(&key))),
        Val::Entries(map, _) => match needle {
            Val::Text(name) => Ok(map.contains_key(&**name)),
            _ => Ok(false),
        },
        Val::Object(map, node, resource) => match needle {
            Val::Text(name) => {
                Ok(map.contains_key(&**name) && field_schema(node, *resource, name).is_some())
            }
            _ => Ok(false),
        },
        other => Err(Error::overload("@in", [needle, other])),
    }
}

pub(super) fn key(value: &Val<'_>) -> Option<MapKey> {
    Some(match value {
        Val::Bool(key) => MapKey::Bool(*key),
        Val::Int(key) => MapKey::Int(*key),
        Val::Uint(key) => MapKey::Int(i64::try_from(*key).ok()?),
        Val::Text(key) => MapKey::Text((**key).into()),
        _ => return None,
    })
}

/// Name and value of every field or entry of a JSON object, as far as it is visible.
pub(super) fn fields<'a>(value: &Val<'a>) -> Vec<(&'a str, Val<'a>)> {
    let view = |value: &'a Value, schema| Val::view(value, schema, ResourceValue::No);
    match value {
        Val::Object(map, node, resource) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .filter_map(|(name, value)| {
                let schema = field_schema(node, *resource, name)?;
                Some((name.as_str(), view(value, Some(schema))))
            })
            .collect(),
        Val::Entries(map, values) => {
            map.iter().map(|(name, value)| (name.as_str(), view(value, *values))).collect()
        }
        _ => Vec::new(),
    }
}
