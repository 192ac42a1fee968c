//! Evaluation: a walk over the syntax tree in which every step is paid for.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::common::ast::operators;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
};
use kube_cel::cel::parser::Expression;

use super::compare;
use super::inquiry::Authorize;
use super::lookup;
use super::scene::EvalContextInner;
use super::signature;
use super::value::{Text, Val};

/// Why an expression has no value. An error is itself a value where logic can absorb it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Error {
    #[error("operation cancelled: actual cost limit exceeded")]
    Exhausted,
    #[error("no such key: {0}")]
    NoKey(String),
    #[error("index out of bounds: {0}")]
    NoIndex(i64),
    #[error("no such overload: {function}({types})")]
    NoOverload { function: String, types: String },
    #[error("undeclared reference to '{0}' (in container '')")]
    Undeclared(String),
    #[error("division by zero")]
    DivisionByZero,
    #[error("integer overflow")]
    Overflow,
    /// In the words of a library.
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub(super) fn overload<'v, 'a: 'v>(
        function: &str,
        arguments: impl IntoIterator<Item = &'v Val<'a>>,
    ) -> Self {
        let types: Vec<&str> = arguments.into_iter().map(Val::type_name).collect();
        Self::NoOverload { function: function.to_owned(), types: types.join(", ") }
    }
}

pub(super) type EvalResult<'a> = Result<Val<'a>, Error>;

/// One evaluation: its variables and what is left of its budget.
pub(super) struct Evaluator<'a> {
    pub(super) this: Val<'a>,
    pub(super) old: Option<Val<'a>>,
    /// Takes the place of both where an expression is not a rule of a schema.
    scene: Option<Rc<EvalContextInner<'a>>>,
    left: Cell<u64>,
}

/// A variable of a macro, and those around it.
pub(super) struct EvalScope<'s, 'a> {
    pub(super) parent: Option<&'s EvalScope<'s, 'a>>,
    pub(super) name: &'a str,
    pub(super) value: EvalResult<'a>,
}

pub(super) type Around<'s, 'a> = Option<&'s EvalScope<'s, 'a>>;

impl<'a> Evaluator<'a> {
    pub(super) fn new(this: Val<'a>, old: Option<Val<'a>>, budget: u64) -> Self {
        Self { this, old, scene: None, left: Cell::new(budget) }
    }

    /// An evaluation over the names of a scene.
    pub(super) fn on(scene: Rc<EvalContextInner<'a>>, budget: u64) -> Self {
        Self { this: Val::Null, old: None, scene: Some(scene), left: Cell::new(budget) }
    }

    pub(super) fn has_scene(&self) -> bool {
        self.scene.is_some()
    }

    pub(super) fn authority(&self) -> Option<&'a dyn Authorize> {
        self.scene.as_ref().and_then(|scene| scene.authority)
    }

    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    pub(super) fn spend(&self, steps: u64) -> Result<(), Error> {
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or_default());
        left.map(drop).ok_or(Error::Exhausted)
    }

    pub(super) fn eval(
        &self,
        expression: &'a Expression,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        self.spend(1)?;
        match &expression.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.variable(name, around),
            Expr::Select(select) => self.select(select, around),
            Expr::Call(call) => self.call(call, around),
            Expr::Comprehension(fold) => self.fold(fold, around),
            Expr::List(list) => self.list(list, around),
            Expr::Map(map) => self.map(map, around),
            Expr::Struct(message) => self.construct(message, around),
            Expr::Unspecified => Err(Error::Other("messages cannot be constructed".to_owned())),
        }
    }

    fn variable(&self, name: &str, around: Around<'_, 'a>) -> EvalResult<'a> {
        let mut scope = around;
        while let Some(here) = scope {
            if here.name == name {
                return here.value.clone();
            }
            scope = here.parent;
        }
        if let Some(value) = self.scene.as_ref().and_then(|scene| scene.value(name)) {
            return value;
        }
        match name {
            "self" if self.scene.is_none() => Ok(self.this.clone()),
            "oldSelf" => self
                .old
                .clone()
                .ok_or_else(|| Error::Other("no such attribute: oldSelf".to_owned())),
            name => TYPES
                .iter()
                .find(|known| **known == name)
                .map(|known| Val::Type(known))
                .ok_or_else(|| Error::Undeclared(name.to_owned())),
        }
    }

    fn select(&self, select: &'a SelectExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        if let Some(name) = signature::type_name(select) {
            return Ok(Val::Type(name));
        }
        if let Some(outcome) = self.scene_field(select, around) {
            return outcome;
        }
        let operand = self.eval(&select.operand, around)?;
        if let Val::Optional(inner) = &operand {
            let found = match inner {
                Some(value) => lookup::select(value, &select.field)?,
                None => None,
            };
            return Ok(if select.test {
                Val::Bool(found.is_some())
            } else {
                Val::Optional(found.map(Rc::new))
            });
        }
        let found = lookup::select(&operand, &select.field)?;
        if select.test {
            return Ok(Val::Bool(found.is_some()));
        }
        found.ok_or_else(|| Error::NoKey(select.field.clone()))
    }

    /// `variables.name` and `authorizer.requestResource`, which are no fields of anything.
    fn scene_field(
        &self,
        select: &'a SelectExpr,
        around: Around<'_, 'a>,
    ) -> Option<EvalResult<'a>> {
        let scene = self.scene.as_ref()?;
        let Expr::Ident(name) = &select.operand.expr else { return None };
        let mut shadow = around;
        while let Some(here) = shadow {
            if here.name == name {
                return None;
            }
            shadow = here.parent;
        }
        match (name.as_str(), select.field.as_str()) {
            ("variables", name) if select.test => {
                Some(Ok(Val::Bool(scene.variable(name, self).is_some())))
            }
            ("variables", name) => Some(
                scene.variable(name, self).unwrap_or_else(|| Err(Error::NoKey(name.to_owned()))),
            ),
            ("authorizer", "requestResource") => scene.request_resource().map(Ok),
            _ => None,
        }
    }

    fn list(&self, list: &'a ListExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            match self.eval(element, around)? {
                Val::Optional(value) if list.optional_indices.contains(&index) => {
                    items.extend(value.map(|value| (*value).clone()));
                }
                value => items.push(value),
            }
        }
        Ok(Val::List(Rc::new(items)))
    }

    fn map(&self, map: &'a MapExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        let mut entries = BTreeMap::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.eval(&entry.key, around)?;
            let key = lookup::key(&key).ok_or_else(|| Error::overload("map key", [&key]))?;
            match self.eval(&entry.value, around)? {
                Val::Optional(None) if entry.optional => {}
                Val::Optional(Some(value)) if entry.optional => {
                    entries.insert(key, (*value).clone());
                }
                value => {
                    entries.insert(key, value);
                }
            }
        }
        Ok(Val::Map(Rc::new(entries)))
    }

    /// The values that a macro iterates over: items of a list or keys of a map.
    pub(super) fn range(
        &self,
        range: &'a Expression,
        around: Around<'_, 'a>,
    ) -> Result<Vec<Val<'a>>, Error> {
        let range = self.eval(range, around)?;
        let size = match &range {
            Val::Text(_) | Val::Bytes(_) => None,
            other => other.size(),
        };
        let Some(size) = size else { return Err(Error::overload("range", [&range])) };
        self.spend(size as u64)?;
        Ok(match &range {
            Val::List(_) | Val::Array(..) => compare::items(&range),
            map => compare::entries(map).into_iter().map(|(key, _)| key.into()).collect(),
        })
    }

    fn fold(&self, fold: &'a ComprehensionExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        let items = self.range(&fold.iter_range, around)?;
        if let Some(step) = Append::of(fold) {
            return self.append(&items, fold, &step, around);
        }
        let value = self.eval(&fold.accu_init, around);
        let mut result = EvalScope { parent: around, name: &fold.accu_var, value };
        for item in items {
            if let Val::Bool(false) = self.eval(&fold.loop_cond, Some(&result))? {
                break;
            }
            let inner = EvalScope { parent: Some(&result), name: &fold.iter_var, value: Ok(item) };
            let value = self.eval(&fold.loop_step, Some(&inner));
            // Nothing absorbs an exhausted budget.
            if matches!(value, Err(Error::Exhausted)) {
                return value;
            }
            result.value = value;
        }
        self.eval(&fold.result, Some(&result))
    }

    /// `map` and `filter`, without copying the list for every item.
    fn append(
        &self,
        items: &[Val<'a>],
        fold: &'a ComprehensionExpr,
        step: &Append<'a>,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        let mut result = Vec::new();
        for item in items {
            let scope = EvalScope { parent: around, name: &fold.iter_var, value: Ok(item.clone()) };
            let wanted = match step.guard {
                None => true,
                Some(guard) => match self.eval(guard, Some(&scope))? {
                    Val::Bool(wanted) => wanted,
                    other => return Err(Error::overload("filter", [&other])),
                },
            };
            if wanted {
                for element in &step.list.elements {
                    result.push(self.eval(element, Some(&scope))?);
                }
            }
        }
        Ok(Val::List(Rc::new(result)))
    }

    fn call(&self, call: &'a CallExpr, around: Around<'_, 'a>) -> EvalResult<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [left, right]) => self.logic(left, right, false, around),
            (operators::LOGICAL_OR, [left, right]) => self.logic(left, right, true, around),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                match self.eval(condition, around)? {
                    Val::Bool(true) => self.eval(yes, around),
                    Val::Bool(false) => self.eval(no, around),
                    other => Err(Error::overload("_?_:_", [&other])),
                }
            }
            (operators::NOT_STRICTLY_FALSE, [value]) => match self.eval(value, around) {
                Err(Error::Exhausted) => Err(Error::Exhausted),
                Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
                _ => Ok(Val::Bool(true)),
            },
            _ => match self.macro_call(call, around) {
                Some(outcome) => outcome,
                None => self.strict_call(call, around),
            },
        }
    }

    /// `&&` and `||`: an operand that decides wins over an error in the other.
    fn logic(
        &self,
        left: &'a Expression,
        right: &'a Expression,
        decisive: bool,
        around: Around<'_, 'a>,
    ) -> EvalResult<'a> {
        let left = self.eval(left, around);
        if let Ok(Val::Bool(value)) = left
            && value == decisive
        {
            return left;
        }
        if matches!(left, Err(Error::Exhausted)) {
            return left;
        }
        let right = self.eval(right, around);
        match (left, right) {
            (_, Err(Error::Exhausted)) => Err(Error::Exhausted),
            (_, Ok(Val::Bool(value))) if value == decisive => Ok(Val::Bool(decisive)),
            (Ok(Val::Bool(_)), Ok(Val::Bool(value))) => Ok(Val::Bool(value)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(left), Ok(right)) => {
                Err(Error::overload(if decisive { "_||_" } else { "_&&_" }, [&left, &right]))
            }
        }
    }
}

/// A fold whose step is `@result + [element]`, possibly guarded.
struct Append<'a> {
    guard: Option<&'a Expression>,
    list: &'a ListExpr,
}

impl<'a> Append<'a> {
    fn of(fold: &'a ComprehensionExpr) -> Option<Self> {
        let is_result =
            |expr: &Expression| matches!(&expr.expr, Expr::Ident(name) if *name == fold.accu_var);
        let appended = |expr: &'a Expression| match &expr.expr {
            Expr::Call(call) if call.func_name == operators::ADD => match call.args.as_slice() {
                [left, Expression { expr: Expr::List(list), .. }] if is_result(left) => Some(list),
                _ => None,
            },
            _ => None,
        };
        if let Some(list) = appended(&fold.loop_step) {
            return Some(Self { guard: None, list });
        }
        match &fold.loop_step.expr {
            Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
                match call.args.as_slice() {
                    [guard, step, otherwise] if is_result(otherwise) => {
                        Some(Self { guard: Some(guard), list: appended(step)? })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

const TYPES: &[&str] =
    &["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

fn literal_value(literal: &LiteralValue) -> Val<'_> {
    match literal {
        LiteralValue::Null => Val::Null,
        LiteralValue::Boolean(value) => Val::Bool(*value.inner()),
        LiteralValue::Int(value) => Val::Int(*value.inner()),
        LiteralValue::UInt(value) => Val::Uint(*value.inner()),
        LiteralValue::Double(value) => Val::Double(*value.inner()),
        LiteralValue::String(value) => Val::Text(Text::Borrowed(value.inner())),
        LiteralValue::Bytes(value) => Val::Bytes(value.inner().into()),
    }
}
