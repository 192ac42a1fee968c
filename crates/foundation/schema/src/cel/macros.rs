//! Calls that do not evaluate their arguments first: bindings, folds over two variables,
//! and what optional values offer. The parser leaves them as calls.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::parser::Expression;

use super::compare;
use super::eval::{Around, Error, EvalResult, EvalScope, Evaluator};
use super::value::{MapKey, Val};

impl From<MapKey> for Val<'_> {
    fn from(key: MapKey) -> Self {
        match key {
            MapKey::Bool(key) => Val::Bool(key),
            MapKey::Int(key) => Val::Int(key),
            MapKey::Text(key) => Val::text(key),
        }
    }
}

fn ident(expression: &Expression) -> Option<&str> {
    match &expression.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

impl<'a> Evaluator<'a> {
    pub(super) fn macro_call(
        &self,
        call: &'a CallExpr,
        around: Around<'_, 'a>,
    ) -> Option<EvalResult<'a>> {
        let target = call.target.as_deref()?;
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("bind", [name, value, body]) if ident(target) == Some("cel") => {
                Some(self.bind(ident(name)?, value, body, around))
            }
            ("optMap", [name, body]) => {
                let name = ident(name)?;
                Some(self.optional_map(target, name, body, around).map(|value| match value {
                    Some(value) => Val::Optional(Some(Rc::new(value))),
                    None => Val::Optional(None),
                }))
            }
            ("optFlatMap", [name, body]) => {
                let name = ident(name)?;
                let mapped = self.optional_map(target, name, body, around);
                Some(mapped.map(|value| value.unwrap_or(Val::Optional(None))))
            }
            ("sortBy", [name, by]) => Some(self.sort_by(target, ident(name)?, by, around)),
            (function, [first, second, rest @ ..]) if !rest.is_empty() => {
                let names = (ident(first)?, ident(second)?);
                let fold = TwoVariables::of(function, rest)?;
                Some(self.fold_two(target, names, &fold, around))
            }
            _ => None,
        }
    }

    fn bind(
        &self,
        name: &'a str,
        value: &'a Expression,
        body: &'a Expression,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        let value = self.eval(value, around);
        self.eval(body, Some(&EvalScope { parent: around, name, value }))
    }

    fn optional_map(
        &self,
        target: &'a Expression,
        name: &'a str,
        body: &'a Expression,
        around: Around<'_, 'a>,
    ) -> Result<Option<Val<'a>>, Error> {
        match self.eval(target, around)? {
            Val::Optional(None) => Ok(None),
            Val::Optional(Some(value)) => {
                let scope = EvalScope { parent: around, name, value: Ok((*value).clone()) };
                self.eval(body, Some(&scope)).map(Some)
            }
            other => Err(Error::overload("optMap", [&other])),
        }
    }

    fn sort_by(
        &self,
        target: &'a Expression,
        name: &'a str,
        by: &'a Expression,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        let mut keyed = Vec::new();
        for item in self.range(target, around)? {
            let scope = EvalScope { parent: around, name, value: Ok(item.clone()) };
            let key = self.eval(by, Some(&scope))?;
            if !compare::is_ordered(&key) {
                return Err(Error::overload("sortBy", [&key]));
            }
            keyed.push((key, item));
        }
        self.spend(keyed.len() as u64)?;
        keyed.sort_by(|(left, _), (right, _)| {
            compare::order(left, right).unwrap_or(Ordering::Equal)
        });
        Ok(Val::List(Rc::new(keyed.into_iter().map(|(_, item)| item).collect())))
    }

    fn fold_two(
        &self,
        target: &'a Expression,
        (first, second): (&'a str, &'a str),
        fold: &TwoVariables<'a>,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        let range = self.eval(target, around)?;
        self.spend(range.size().unwrap_or_default() as u64)?;
        let entries: Vec<(Val<'a>, Val<'a>)> = match &range {
            Val::List(_) | Val::Array(..) => compare::items(&range)
                .into_iter()
                .enumerate()
                .map(|(index, item)| (Val::Int(index as i64), item))
                .collect(),
            Val::Map(_) | Val::Entries(..) => compare::entries(&range)
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
            other => return Err(Error::overload("range", [other])),
        };
        let mut state = MacroState::default();
        for (key, value) in entries {
            let outer = EvalScope { parent: around, name: first, value: Ok(key.clone()) };
            let scope = EvalScope { parent: Some(&outer), name: second, value: Ok(value) };
            if let Some(guard) = fold.guard
                && !matches!(self.eval(guard, Some(&scope))?, Val::Bool(true))
            {
                continue;
            }
            match self.eval(fold.body, Some(&scope)) {
                Err(Error::Exhausted) => return Err(Error::Exhausted),
                outcome => {
                    if state.add(fold.kind, key, outcome)? {
                        break;
                    }
                }
            }
        }
        state.finish(fold.kind)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MacroKind {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    /// The body gives entries of its own.
    Entries,
}

struct TwoVariables<'a> {
    kind: MacroKind,
    guard: Option<&'a Expression>,
    body: &'a Expression,
}

impl<'a> TwoVariables<'a> {
    fn of(function: &str, arguments: &'a [Expression]) -> Option<Self> {
        let kind = match function {
            "all" => MacroKind::All,
            "exists" => MacroKind::Exists,
            "existsOne" | "exists_one" => MacroKind::ExistsOne,
            "transformList" => MacroKind::List,
            "transformMap" => MacroKind::Map,
            "transformMapEntry" => MacroKind::Entries,
            _ => return None,
        };
        match arguments {
            [body] => Some(Self { kind, guard: None, body }),
            [guard, body]
                if matches!(kind, MacroKind::List | MacroKind::Map | MacroKind::Entries) =>
            {
                Some(Self { kind, guard: Some(guard), body })
            }
            _ => None,
        }
    }
}

#[derive(Default)]
struct MacroState<'a> {
    decided: bool,
    count: usize,
    error: Option<Error>,
    list: Vec<Val<'a>>,
    map: BTreeMap<MapKey, Val<'a>>,
}

impl<'a> MacroState<'a> {
    /// Takes one result; true if the rest cannot change anything.
    fn add(
        &mut self,
        kind: MacroKind,
        key: Val<'a>,
        outcome: EvalResult<'a>,
    ) -> Result<bool, Error> {
        match (kind, outcome) {
            (MacroKind::All, Ok(Val::Bool(false))) | (MacroKind::Exists, Ok(Val::Bool(true))) => {
                self.decided = true;
            }
            (MacroKind::ExistsOne, Ok(Val::Bool(value))) => self.count += usize::from(value),
            (MacroKind::All | MacroKind::Exists, Ok(Val::Bool(_))) => {}
            (MacroKind::All | MacroKind::Exists, Err(error)) => self.error = Some(error),
            (MacroKind::List, Ok(value)) => self.list.push(value),
            (MacroKind::Map, Ok(value)) => {
                let key =
                    super::lookup::key(&key).ok_or_else(|| Error::overload("map key", [&key]))?;
                self.map.insert(key, value);
            }
            (MacroKind::Entries, Ok(Val::Map(entries))) => {
                let entries = entries.iter().map(|(key, value)| (key.clone(), value.clone()));
                self.map.extend(entries);
            }
            (_, Ok(other)) => return Err(Error::overload("fold", [&other])),
            (_, Err(error)) => return Err(error),
        }
        Ok(self.decided)
    }

    fn finish(self, kind: MacroKind) -> EvalResult<'a> {
        match (kind, self.error) {
            (MacroKind::All | MacroKind::Exists, Some(error)) if !self.decided => Err(error),
            (MacroKind::All, _) => Ok(Val::Bool(!self.decided)),
            (MacroKind::Exists, _) => Ok(Val::Bool(self.decided)),
            (MacroKind::ExistsOne, _) => Ok(Val::Bool(self.count == 1)),
            (MacroKind::List, _) => Ok(Val::List(Rc::new(self.list))),
            (MacroKind::Map | MacroKind::Entries, _) => Ok(Val::Map(Rc::new(self.map))),
        }
    }
}
