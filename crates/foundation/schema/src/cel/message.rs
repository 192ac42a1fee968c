//! Values that an expression constructs by name: `Object{…}` and `JSONPatch{…}`.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use kube_cel::cel::common::ast::{EntryExpr, StructExpr};
use serde_json::{Map, Number, Value};

use super::compare;
use super::eval::{Around, Error, EvalResult, Evaluator};
use super::scene::PatchError;
use super::value::{MapKey, Val};

/// A named type and its fields.
#[derive(Debug, Clone)]
pub(super) struct CelMessage<'a> {
    pub(super) name: &'a str,
    pub(super) fields: BTreeMap<&'a str, Val<'a>>,
}

const PATCH: &str = "JSONPatch";
const PATCH_FIELDS: [&str; 4] = ["from", "op", "path", "value"];

/// Whether an expression may construct a type of this name.
pub(super) fn is_known(name: &str) -> bool {
    let name = name.trim_start_matches('.');
    name == PATCH || name == "Object" || name.starts_with("Object.")
}

/// Whether a type has such a field; those of objects are known only when they are applied.
pub(super) fn has_field(name: &str, field: &str) -> bool {
    name != PATCH || PATCH_FIELDS.contains(&field)
}

impl<'a> Evaluator<'a> {
    pub(super) fn construct(
        &self,
        message: &'a StructExpr,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        if !is_known(&message.type_name) || !self.has_scene() {
            return Err(Error::Other(format!("unknown type: {}", message.type_name)));
        }
        let mut fields = BTreeMap::new();
        for entry in &message.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            match self.eval(&field.value, around)? {
                Val::Optional(value) if field.optional => {
                    fields.extend(value.map(|value| (field.field.as_str(), (*value).clone())));
                }
                value => {
                    fields.insert(field.field.as_str(), value);
                }
            }
        }
        let name = message.type_name.trim_start_matches('.');
        Ok(Val::Message(Rc::new(CelMessage { name, fields })))
    }
}

pub(super) fn configuration(value: &Val<'_>) -> Result<Value, PatchError> {
    match value {
        Val::Message(message) if message.name == "Object" => {
            check_names(value, "Object")?;
            to_json(value)
        }
        other => Err(PatchError::NoObject(other.type_name().to_owned())),
    }
}

/// The type of the value in a field is named after the field.
fn check_names(value: &Val<'_>, expected: &str) -> Result<(), PatchError> {
    match value {
        Val::Message(message) => {
            if message.name != expected {
                let found = message.name.to_owned();
                return Err(PatchError::Misnamed { found, expected: expected.to_owned() });
            }
            for (field, value) in &message.fields {
                check_names(value, &format!("{expected}.{field}"))?;
            }
            Ok(())
        }
        Val::List(list) => list.iter().try_for_each(|item| check_names(item, expected)),
        Val::Map(map) => map.values().try_for_each(|item| check_names(item, expected)),
        _ => Ok(()),
    }
}

pub(super) fn json_patch(value: &Val<'_>) -> Result<Value, PatchError> {
    if !matches!(value, Val::List(_) | Val::Array(..)) {
        return Err(PatchError::NoPatch);
    }
    let operations = compare::items(value).into_iter().map(|item| match item {
        Val::Message(message) if message.name == PATCH => {
            let fields = message.fields.iter().map(|(field, value)| {
                if let Val::Message(inner) = value {
                    check_names(value, inner.name)?;
                }
                Ok(((*field).to_owned(), to_json(value)?))
            });
            Ok(Value::Object(fields.collect::<Result<Map<_, _>, PatchError>>()?))
        }
        _ => Err(PatchError::NoPatch),
    });
    Ok(Value::Array(operations.collect::<Result<_, _>>()?))
}

fn to_json(value: &Val<'_>) -> Result<Value, PatchError> {
    let unfit = || PatchError::NoJson(value.type_name().to_owned());
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(value) => (*value).into(),
        Val::Int(value) => (*value).into(),
        Val::Uint(value) => (*value).into(),
        Val::Double(value) => Value::Number(Number::from_f64(*value).ok_or_else(unfit)?),
        Val::Text(text) => (**text).into(),
        Val::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        Val::List(list) => Value::Array(list.iter().map(to_json).collect::<Result<_, _>>()?),
        Val::Array(list, _) => Value::Array(list.to_vec()),
        Val::Object(map, ..) | Val::Entries(map, _) => Value::Object((*map).clone()),
        Val::Map(map) => {
            let entries = map.iter().map(|(key, value)| match key {
                MapKey::Text(key) => Ok((key.to_string(), to_json(value)?)),
                MapKey::Bool(key) => Ok((key.to_string(), to_json(value)?)),
                MapKey::Int(key) => Ok((key.to_string(), to_json(value)?)),
            });
            Value::Object(entries.collect::<Result<_, PatchError>>()?)
        }
        Val::Message(message) => {
            let fields = message.fields.iter();
            let fields = fields.map(|(name, value)| Ok(((*name).to_owned(), to_json(value)?)));
            Value::Object(fields.collect::<Result<_, PatchError>>()?)
        }
        Val::Optional(Some(value)) => to_json(value)?,
        Val::Optional(None) => Value::Null,
        Val::Foreign(_) => {
            match super::library::call("string", None, std::slice::from_ref(value)) {
                Ok(Val::Text(text)) => (*text).into(),
                _ => return Err(unfit()),
            }
        }
        Val::Type(_) | Val::Inquiry(_) | Val::Verdict(_) => return Err(unfit()),
    })
}
