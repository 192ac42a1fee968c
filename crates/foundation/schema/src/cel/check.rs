//! The static check of an expression: does it refer to what the schema declares, do
//! operators fit their operands, and what can it cost at most?
//!
//! It is weaker than cel-go's type checker: expressions that it cannot type pass, and evaluation
//! reports their errors. Every expression that it refuses, upstream refuses as well.

mod call;

use std::rc::Rc;

use kube_cel::cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, StructExpr,
};
use kube_cel::cel::parser::Expression;

use super::expression::{Declarations, named};
use super::message;
use super::program::Issue;
use super::signature;
use super::types::{Field, Ty, Typed};
use crate::node::Additional;

/// The type and the cost of an expression.
#[derive(Debug, Clone)]
pub(super) struct Info<'a> {
    pub(super) typed: Typed<'a>,
    pub(super) cost: u64,
}

impl<'a> Info<'a> {
    fn new(ty: Ty<'a>, size: u64, cost: u64) -> Self {
        Self { typed: Typed::new(ty, size), cost }
    }
}

/// Variables of the macros around an expression.
struct CheckScope<'s, 'a> {
    parent: Option<&'s CheckScope<'s, 'a>>,
    name: &'s str,
    typed: Typed<'a>,
}

type Around<'s, 'a> = Option<&'s CheckScope<'s, 'a>>;

pub(super) struct Checker<'c, 'a> {
    source: &'c str,
    this: &'c Typed<'a>,
    old: Typed<'a>,
    /// Takes the place of both where an expression is not a rule of a schema.
    names: Option<&'c Declarations<'a>>,
    issues: Vec<Issue>,
}

impl<'c, 'a> Checker<'c, 'a> {
    /// Checks a whole expression over `self` and `oldSelf`.
    pub(super) fn check(
        source: &'c str,
        expression: &Expression,
        this: &'c Typed<'a>,
        optional_old_self: bool,
    ) -> (Info<'a>, Vec<Issue>) {
        let old = if optional_old_self {
            Typed::new(Ty::Optional(Rc::new(this.clone())), this.size)
        } else {
            this.clone()
        };
        let mut checker = Self { source, this, old, names: None, issues: Vec::new() };
        let info = checker.visit(expression, None);
        (info, checker.issues)
    }

    /// Checks a whole expression over names.
    pub(super) fn check_names(
        source: &'c str,
        expression: &Expression,
        names: &'c Declarations<'a>,
    ) -> (Info<'a>, Vec<Issue>) {
        let this = &Typed::dynamic();
        let old = this.clone();
        let mut checker = Checker { source, this, old, names: Some(names), issues: Vec::new() };
        let info = checker.visit(expression, None);
        (info, checker.issues)
    }

    /// Reports an issue at the first place where `near` occurs in the source: the syntax
    /// tree carries no positions.
    fn report(&mut self, near: &str, text: String) {
        let offset = find(self.source, near).unwrap_or_default();
        let before = &self.source[..offset];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let issue = Issue { at: Some((line, column)), text };
        if !self.issues.contains(&issue) {
            self.issues.push(issue);
        }
    }

    fn visit(&mut self, expression: &Expression, around: Around<'_, 'a>) -> Info<'a> {
        match &expression.expr {
            Expr::Literal(literal) => literal_info(literal),
            Expr::Ident(name) => self.ident(name, around),
            Expr::Select(select) => self.select(select, around),
            Expr::Call(call) => self.call(call, around),
            Expr::Comprehension(fold) => self.fold(fold, around),
            Expr::List(list) => {
                let mut cost = 10_u64;
                let mut element: Option<Typed<'a>> = None;
                for item in &list.elements {
                    let info = self.visit(item, around);
                    cost = cost.saturating_add(info.cost);
                    element = Some(match element {
                        Some(known) if known.ty.matches(&info.typed.ty) => {
                            Typed::new(known.ty, known.size.max(info.typed.size))
                        }
                        Some(known) => {
                            self.mixed(&known.ty, &info.typed.ty);
                            Typed::dynamic()
                        }
                        None => info.typed,
                    });
                }
                let element = element.unwrap_or_else(|| Typed::new(Ty::Dyn, 0));
                Info::new(Ty::List(Rc::new(element)), list.elements.len() as u64, cost)
            }
            Expr::Map(map) => {
                let mut cost = 30_u64;
                let mut known: Option<Ty<'a>> = None;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let key = self.visit(&entry.key, around);
                        let value = self.visit(&entry.value, around);
                        cost = cost.saturating_add(key.cost).saturating_add(value.cost);
                        match &known {
                            Some(known) if !known.matches(&value.typed.ty) => {
                                self.mixed(known, &value.typed.ty);
                            }
                            Some(_) => {}
                            None => known = Some(value.typed.ty),
                        }
                    }
                }
                let values = Rc::new(Typed::dynamic());
                Info::new(Ty::Map(values), map.entries.len() as u64, cost)
            }
            Expr::Struct(message) => self.construct(message, around),
            Expr::Unspecified => Info::new(Ty::Dyn, 1, 40),
        }
    }

    /// Lists and maps hold values of one type.
    fn mixed(&mut self, known: &Ty<'a>, other: &Ty<'a>) {
        self.report("", format!("expected type '{known}' but found '{other}'"));
    }

    fn ident(&mut self, name: &str, around: Around<'_, 'a>) -> Info<'a> {
        let mut scope = around;
        while let Some(here) = scope {
            if here.name == name {
                return Info { typed: here.typed.clone(), cost: 1 };
            }
            scope = here.parent;
        }
        let known = self.names.and_then(|names| names.find(name));
        let typed = match name {
            _ if known.is_some() => known.unwrap_or_else(Typed::dynamic),
            "self" if self.names.is_none() => self.this.clone(),
            "oldSelf" if self.names.is_none() => self.old.clone(),
            "bool" | "int" | "uint" | "double" | "string" | "bytes" | "list" | "map"
            | "null_type" | "type" => Typed::new(Ty::Type, 1),
            _ => {
                self.report(name, format!("undeclared reference to '{name}' (in container '')"));
                Typed::dynamic()
            }
        };
        Info { typed, cost: 1 }
    }

    fn select(&mut self, select: &SelectExpr, around: Around<'_, 'a>) -> Info<'a> {
        if signature::type_name(select).is_some() {
            return Info::new(Ty::Type, 1, 1);
        }
        if let Some(typed) = self.named_field(select, around) {
            return Info {
                typed: if select.test { Typed::new(Ty::Bool, 1) } else { typed },
                cost: 2,
            };
        }
        let operand = self.visit(&select.operand, around);
        let field = self.field(&operand.typed, &select.field);
        let cost = operand.cost.saturating_add(1);
        if select.test { Info::new(Ty::Bool, 1, cost) } else { Info { typed: field, cost } }
    }

    fn field(&mut self, typed: &Typed<'a>, name: &str) -> Typed<'a> {
        match typed.field(name) {
            Field::Known(field) => return field,
            Field::Undefined if self.is_open(typed, name) => {}
            Field::Undefined => {
                self.report(&format!(".{name}"), format!("undefined field '{name}'"));
            }
            Field::Unsupported => {
                let text = format!("type '{}' does not support field selection", typed.ty);
                self.report(&format!(".{name}"), text);
            }
        }
        Typed::dynamic()
    }

    /// Whether a schema leaves open what is in a field. Rules of a schema do not see such
    /// fields, all others do.
    fn is_open(&self, typed: &Typed<'a>, name: &str) -> bool {
        let Ty::Object(node, _) = &typed.ty else { return false };
        let declared = node.property(&super::name::unescape(name)).is_some();
        self.names.is_some() && (declared || matches!(node.additional, Additional::Anything))
    }

    /// `variables.name` and `authorizer.requestResource`, which are no fields of anything.
    fn named_field(&mut self, select: &SelectExpr, around: Around<'_, 'a>) -> Option<Typed<'a>> {
        let names = self.names?;
        let Expr::Ident(name) = &select.operand.expr else { return None };
        let mut shadow = around;
        while let Some(here) = shadow {
            if here.name == name {
                return None;
            }
            shadow = here.parent;
        }
        match (name.as_str(), select.field.as_str()) {
            ("variables", field) => Some(names.find_variable(field).unwrap_or_else(|| {
                self.report(&format!(".{field}"), format!("undefined field '{field}'"));
                Typed::dynamic()
            })),
            ("authorizer", "requestResource") => names.request_resource(),
            _ => None,
        }
    }

    fn construct(&mut self, message: &StructExpr, around: Around<'_, 'a>) -> Info<'a> {
        let name = message.type_name.trim_start_matches('.');
        let known =
            self.names.is_some_and(Declarations::has_constructors) && message::is_known(name);
        if self.names.is_some() && !known {
            self.report(name, format!("undeclared reference to '{name}' (in container '')"));
        }
        let mut cost = 40_u64;
        for entry in &message.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            cost = cost.saturating_add(self.visit(&field.value, around).cost);
            if known && !message::has_field(name, &field.field) {
                self.report(&field.field, format!("undefined field '{}'", field.field));
            }
        }
        Info::new(if known { named(name) } else { Ty::Dyn }, 1, cost)
    }

    /// The type of the variable of a macro over `range`.
    fn iteration(&mut self, range: &Typed<'a>) -> Typed<'a> {
        match &range.ty {
            Ty::List(element) => (**element).clone(),
            Ty::Map(_) => Typed::new(Ty::Text, range.size),
            Ty::Dyn => Typed::dynamic(),
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                self.report("", text);
                Typed::dynamic()
            }
        }
    }

    fn fold(&mut self, fold: &ComprehensionExpr, around: Around<'_, 'a>) -> Info<'a> {
        let range = self.visit(&fold.iter_range, around);
        let item = self.iteration(&range.typed);
        let init = self.visit(&fold.accu_init, around);
        let mut result =
            CheckScope { parent: around, name: &fold.accu_var, typed: init.typed.clone() };
        let inner = CheckScope { parent: Some(&result), name: &fold.iter_var, typed: item };
        let condition = self.visit(&fold.loop_cond, Some(&inner));
        let step = self.visit(&fold.loop_step, Some(&inner));
        let size = range.typed.size;
        if let Ty::List(_) = step.typed.ty {
            // `map` and `filter`: at most one element for every item.
            result.typed = Typed::new(step.typed.ty, size);
        }
        let outcome = self.visit(&fold.result, Some(&result));
        let looping = size.saturating_mul(condition.cost.saturating_add(step.cost));
        let cost =
            [range.cost, init.cost, looping, outcome.cost].into_iter().fold(0, u64::saturating_add);
        Info { typed: outcome.typed, cost }
    }
}

/// Where `near` occurs in the source as a word of its own.
fn find(source: &str, near: &str) -> Option<usize> {
    if near.is_empty() {
        return None;
    }
    let word = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '_');
    let plain = source.match_indices(near).find(|(at, _)| {
        let before = source[..*at].chars().next_back();
        let after = source[at + near.len()..].chars().next();
        !word(after) && (near.starts_with('.') || !word(before) && before != Some('.'))
    });
    let optional = near.strip_prefix('.').and_then(|name| source.find(&format!(".?{name}")));
    plain.map(|(at, _)| at).or(optional)
}

fn literal_info<'a>(literal: &LiteralValue) -> Info<'a> {
    let (ty, size) = match literal {
        LiteralValue::Null => (Ty::Null, 1),
        LiteralValue::Boolean(_) => (Ty::Bool, 1),
        LiteralValue::Int(_) => (Ty::Int, 1),
        LiteralValue::UInt(_) => (Ty::Uint, 1),
        LiteralValue::Double(_) => (Ty::Double, 1),
        LiteralValue::String(text) => (Ty::Text, text.inner().len() as u64),
        LiteralValue::Bytes(bytes) => (Ty::Bytes, bytes.inner().len() as u64),
    };
    Info::new(ty, size, 0)
}
