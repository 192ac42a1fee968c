//! The bridge to the function libraries of `cel` and `kube-cel`.
//!
//! A call is made by evaluating a one-call expression over variables that hold the
//! arguments; these are copied, which is why the evaluator handles by itself what is
//! common or large.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key as CelKey, Map as CelMap, OptionalValue};
use kube_cel::cel::{self, Context, ExecutionError};

use super::eval::Error;
use super::lookup;
use super::value::{MapKey, ResourceValue, Val};

thread_local! {
    /// Registering some hundred functions is too slow to be done for every object.
    static FUNCTIONS: OnceCell<Context<'static>> = const { OnceCell::new() };
}

const ARGUMENTS: [&str; 6] = ["@0", "@1", "@2", "@3", "@4", "@5"];

/// Calls a function by name, or an operator by its name in the syntax tree.
pub(super) fn call(
    function: &str,
    target: Option<&Val<'_>>,
    arguments: &[Val<'_>],
) -> Result<Val<'static>, Error> {
    let Some(names) = ARGUMENTS.get(..arguments.len()) else {
        return Err(Error::overload(function, target.into_iter().chain(arguments)));
    };
    let ident = |name: &str| IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) };
    let expression = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: function.to_owned(),
            target: target.map(|_| Box::new(ident("@target"))),
            args: names.iter().map(|name| ident(name)).collect(),
        }),
    };
    FUNCTIONS.with(|functions| {
        let functions = functions.get_or_init(|| Context::default().with_all());
        let mut scope = functions.new_inner_scope();
        if let Some(target) = target {
            scope.add_variable_from_value("@target", to_cel(target));
        }
        for (name, argument) in names.iter().zip(arguments) {
            scope.add_variable_from_value(*name, to_cel(argument));
        }
        cel::Value::resolve(&expression, &scope).map(from_cel).map_err(|error| match error {
            ExecutionError::NoSuchOverload => {
                Error::overload(function, target.into_iter().chain(arguments))
            }
            other => Error::Other(other.to_string()),
        })
    })
}

/// Whether two library values are the same.
pub(super) fn equals(left: &cel::Value, right: &cel::Value) -> bool {
    left == right
}

fn to_cel(value: &Val<'_>) -> cel::Value {
    match value {
        Val::Null | Val::Type(_) | Val::Inquiry(_) | Val::Verdict(_) => cel::Value::Null,
        Val::Bool(value) => cel::Value::Bool(*value),
        Val::Int(value) => cel::Value::Int(*value),
        Val::Uint(value) => cel::Value::UInt(*value),
        Val::Double(value) => cel::Value::Float(*value),
        Val::Text(text) => cel::Value::String(Arc::new(text.to_string())),
        Val::Bytes(bytes) => cel::Value::Bytes(Arc::new(bytes.to_vec())),
        Val::List(list) => cel::Value::List(Arc::new(list.iter().map(to_cel).collect())),
        Val::Array(list, node) => {
            let items = node.and_then(|node| node.items.as_deref());
            let list = list.iter().map(|item| to_cel(&Val::view(item, items, ResourceValue::No)));
            cel::Value::List(Arc::new(list.collect()))
        }
        Val::Map(map) => cel_map(map.iter().map(|(key, value)| {
            let key = match key {
                MapKey::Bool(key) => CelKey::Bool(*key),
                MapKey::Int(key) => CelKey::Int(*key),
                MapKey::Text(key) => CelKey::String(Arc::new(key.to_string())),
            };
            (key, to_cel(value))
        })),
        Val::Message(message) => cel_map(
            message
                .fields
                .iter()
                .map(|(name, value)| (CelKey::String(Arc::new((*name).to_owned())), to_cel(value))),
        ),
        Val::Object(..) | Val::Entries(..) => cel_map(
            lookup::fields(value)
                .into_iter()
                .map(|(name, value)| (CelKey::String(Arc::new(name.to_owned())), to_cel(&value))),
        ),
        Val::Optional(value) => cel::Value::Opaque(match value {
            Some(value) => Arc::new(OptionalValue::of(to_cel(value))),
            None => Arc::new(OptionalValue::none()),
        }),
        Val::Foreign(value) => value.clone(),
    }
}

fn cel_map(entries: impl Iterator<Item = (CelKey, cel::Value)>) -> cel::Value {
    let map: HashMap<CelKey, cel::Value> = entries.collect();
    cel::Value::Map(CelMap { map: Arc::new(map) })
}

fn from_cel(value: cel::Value) -> Val<'static> {
    match value {
        cel::Value::Null => Val::Null,
        cel::Value::Bool(value) => Val::Bool(value),
        cel::Value::Int(value) => Val::Int(value),
        cel::Value::UInt(value) => Val::Uint(value),
        cel::Value::Float(value) => Val::Double(value),
        cel::Value::String(text) => Val::text(text.as_str()),
        cel::Value::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
        cel::Value::List(list) => Val::List(Rc::new(list.iter().cloned().map(from_cel).collect())),
        cel::Value::Map(map) => {
            let mut entries = BTreeMap::new();
            #[expect(clippy::iter_over_hash_type, reason = "the target is sorted")]
            for (key, value) in map.map.iter() {
                let key = match key {
                    CelKey::Bool(key) => MapKey::Bool(*key),
                    CelKey::Int(key) => MapKey::Int(*key),
                    CelKey::Uint(key) => MapKey::Int(i64::try_from(*key).unwrap_or(i64::MAX)),
                    CelKey::String(key) => MapKey::Text(key.as_str().into()),
                };
                entries.insert(key, from_cel(value.clone()));
            }
            Val::Map(Rc::new(entries))
        }
        cel::Value::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => Val::Optional(optional.value().cloned().map(from_cel).map(Rc::new)),
            None => Val::Foreign(cel::Value::Opaque(opaque)),
        },
        other => Val::Foreign(other),
    }
}
