//! Functions. The common ones are done here without copying; the rest is the libraries'.

use std::rc::Rc;

use kube_cel::cel::common::ast::{CallExpr, Expr};

use super::eval::{Around, Error, EvalResult, Evaluator};
use super::library;
use super::signature;
use super::value::Val;
use crate::validate::pattern;

impl<'a> Evaluator<'a> {
    /// A call that evaluates its target and arguments first.
    pub(super) fn strict_call(&self, call: &'a CallExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        let mut arguments = Vec::with_capacity(call.args.len());
        let qualified = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(space) => signature::qualified(space, &call.func_name),
            _ => None,
        });
        let target = match call.target.as_deref() {
            Some(target) if qualified.is_none() => Some(self.eval(target, around)?),
            _ => None,
        };
        for argument in &call.args {
            arguments.push(self.eval(argument, around)?);
        }
        if target.is_none()
            && qualified.is_none()
            && let Some(outcome) = self.operator(&call.func_name, &arguments)
        {
            return outcome;
        }
        let name = qualified.unwrap_or(&call.func_name);
        if let Some(outcome) = self.inquire(name, target.as_ref(), &arguments) {
            return outcome;
        }
        if let Some(outcome) = self.native(name, target.as_ref(), &arguments) {
            return outcome;
        }
        let limit = self.left() + 1;
        for value in target.iter().chain(&arguments) {
            self.spend(value.weight(limit))?;
        }
        library::call(name, target.as_ref(), &arguments)
    }

    fn native(
        &self,
        name: &str,
        target: Option<&Val<'a>>,
        arguments: &[Val<'a>],
    ) -> Option<EvalResult<'a>> {
        let bool = |value: bool| Ok(Val::Bool(value));
        Some(match (name, target, arguments) {
            ("size", None, [value]) | ("size", Some(value), []) => {
                if let Val::Text(text) = value
                    && let Err(error) = self.spend(text.len() as u64 / 100)
                {
                    return Some(Err(error));
                }
                let size = value.size().ok_or_else(|| Error::overload("size", [value]));
                size.map(|size| Val::Int(size as i64))
            }
            ("dyn", None, [value]) => Ok(value.clone()),
            ("type", None, [value]) => Ok(Val::Type(value.type_name())),
            ("string", None, [Val::Text(_)]) => Ok(arguments[0].clone()),
            ("string", None, [Val::Bool(value)]) => Ok(Val::text(value.to_string())),
            ("string", None, [Val::Double(value)]) => Ok(Val::text(format!("{value}"))),
            ("bool", None, [Val::Bool(_)]) => Ok(arguments[0].clone()),
            ("bool", None, [Val::Text(text)]) => match &**text {
                "true" | "True" | "TRUE" | "t" | "1" => bool(true),
                "false" | "False" | "FALSE" | "f" | "0" => bool(false),
                other => Err(Error::Other(format!("type conversion error from '{other}' to bool"))),
            },
            ("startsWith", Some(Val::Text(text)), [Val::Text(prefix)]) => {
                bool(text.starts_with(&**prefix))
            }
            ("endsWith", Some(Val::Text(text)), [Val::Text(suffix)]) => {
                bool(text.ends_with(&**suffix))
            }
            ("contains", Some(Val::Text(text)), [Val::Text(part)]) => {
                let steps = (text.len() + part.len()) as u64 / 10;
                self.spend(steps).and_then(|()| bool(text.contains(&**part)))
            }
            ("matches", Some(Val::Text(text)), [Val::Text(wanted)])
            | ("matches", None, [Val::Text(text), Val::Text(wanted)]) => {
                self.matches(text, wanted).map(Val::Bool)
            }
            _ => return optional(name, target, arguments),
        })
    }

    /// Matching is linear in the text; a pattern is compiled once and then cached.
    fn matches(&self, text: &str, wanted: &str) -> Result<bool, Error> {
        self.spend((1 + text.len() as u64 / 10) * (1 + wanted.len() as u64 / 4))?;
        match pattern::compile(wanted) {
            Ok(regex) => Ok(regex.is_match(text)),
            Err(error) => Err(Error::Other(error.to_string())),
        }
    }
}

fn optional<'a>(
    name: &str,
    target: Option<&Val<'a>>,
    arguments: &[Val<'a>],
) -> Option<EvalResult<'a>> {
    Some(match (name, target, arguments) {
        ("optional.of", None, [value]) => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        ("optional.none", None, []) => Ok(Val::Optional(None)),
        ("optional.ofNonZeroValue", None, [value]) => {
            let zero = match value {
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) => true,
                Val::Double(value) => *value == 0.0,
                other => other.size() == Some(0),
            };
            Ok(Val::Optional((!zero).then(|| Rc::new(value.clone()))))
        }
        ("hasValue", Some(Val::Optional(value)), []) => Ok(Val::Bool(value.is_some())),
        ("value", Some(Val::Optional(value)), []) => match value {
            Some(value) => Ok((**value).clone()),
            None => Err(Error::Other("optional.none() dereference".to_owned())),
        },
        ("or", Some(Val::Optional(value)), [other]) => Ok(match value {
            Some(value) => Val::Optional(Some(Rc::clone(value))),
            None => other.clone(),
        }),
        ("orValue", Some(Val::Optional(value)), [other]) => Ok(match value {
            Some(value) => (**value).clone(),
            None => other.clone(),
        }),
        _ => return None,
    })
}
