//! Calls: operators, macros that the parser leaves alone, functions.

use std::rc::Rc;

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use kube_cel::cel::parser::Expression;

use super::{Around, CheckScope, Checker, Info};
use crate::cel::cost::traversal;
use crate::cel::expression::named;
use crate::cel::inquiry::{self, Returns};
use crate::cel::types::{Ty, Typed};
use crate::cel::value::Val;
use crate::cel::{library, signature};
use crate::validate::pattern;

fn ident(expression: &Expression) -> Option<&str> {
    match &expression.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

impl<'a> Checker<'_, 'a> {
    pub(super) fn call(&mut self, call: &CallExpr, around: Around<'_, 'a>) -> Info<'a> {
        if let Some(info) = self.macro_call(call, around) {
            return info;
        }
        let space = call.target.as_deref().and_then(ident);
        let qualified = space.and_then(|space| signature::qualified(space, &call.func_name));
        let target = match call.target.as_deref() {
            Some(target) if qualified.is_none() => Some(self.visit(target, around)),
            _ => None,
        };
        let arguments: Vec<Info<'a>> =
            call.args.iter().map(|argument| self.visit(argument, around)).collect();
        if target.is_none()
            && qualified.is_none()
            && let Some(info) = self.operator(call, &arguments)
        {
            return info;
        }
        let member = call.target.is_some();
        self.check_literal(call);
        self.function(qualified.unwrap_or(&call.func_name), member, target, &arguments)
    }

    /// Patterns, durations and times that are written out must be right.
    fn check_literal(&mut self, call: &CallExpr) {
        let [Expression { expr: Expr::Literal(LiteralValue::String(text)), .. }] =
            call.args.as_slice()
        else {
            return;
        };
        let text = text.inner();
        let name = call.func_name.as_str();
        let fits = match (name, call.target.is_some()) {
            ("matches", true) => pattern::compile(text).is_ok(),
            ("duration" | "timestamp", false) => {
                library::call(name, None, &[Val::text(text)]).is_ok()
            }
            _ => true,
        };
        if !fits {
            let quoted = if self.source.contains(&format!("\"{text}")) { '"' } else { '\'' };
            self.report(&format!("{quoted}{text}"), format!("invalid {name} argument"));
        }
    }

    fn function(
        &mut self,
        name: &str,
        member: bool,
        target: Option<Info<'a>>,
        arguments: &[Info<'a>],
    ) -> Info<'a> {
        if let Some(info) = self.inquiry(name, target.as_ref(), arguments) {
            return info;
        }
        let values: Vec<&Info<'a>> = target.iter().chain(arguments).collect();
        let sizes: Vec<u64> = values.iter().map(|info| info.typed.size).collect();
        let total = sizes.iter().copied().fold(0, u64::saturating_add);
        let work = match (name, sizes.as_slice()) {
            (
                "size" | "dyn" | "type" | "hasValue" | "value" | "or" | "orValue" | "int" | "uint"
                | "double" | "bool" | "duration" | "timestamp",
                _,
            ) => 1,
            ("startsWith" | "endsWith", [_, part]) => traversal(*part),
            ("contains", [text, part]) => traversal(*text).saturating_mul(traversal(*part)),
            ("matches" | "find" | "findAll", [text, pattern]) => {
                traversal(*text + 1).saturating_mul(pattern.div_ceil(4).max(1))
            }
            ("sets.contains" | "sets.equivalent" | "sets.intersects", [left, right]) => {
                left.saturating_mul(*right)
            }
            (
                "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" | "sort",
                [list, ..],
            ) if matches!(values[0].typed.ty, Ty::List(_)) => *list,
            _ => traversal(total),
        };
        let cost = values.iter().fold(work.max(1), |cost, info| cost.saturating_add(info.cost));
        let orig = values.first().map(|info| info.typed.clone());
        let typed = match (name, orig) {
            ("value", Some(Typed { ty: Ty::Optional(inner), .. })) => (*inner).clone(),
            ("orValue", Some(Typed { ty: Ty::Optional(inner), .. })) => (*inner).clone(),
            ("or", Some(optional)) => optional,
            ("dyn", Some(value)) => Typed::new(Ty::Dyn, value.size),
            ("split" | "findAll", _) => {
                let part = Typed::new(Ty::Text, total);
                Typed::new(Ty::List(Rc::new(part)), total)
            }
            _ => match signature::result(name, total) {
                Some(typed) => typed,
                None => {
                    let text = format!("undeclared reference to '{name}' (in container '')");
                    let near = if member { format!(".{name}") } else { name.to_owned() };
                    self.report(&near, text);
                    Typed::dynamic()
                }
            },
        };
        Info { typed, cost }
    }

    /// A step of a question about rights; `None` if the target is not one.
    fn inquiry(
        &mut self,
        name: &str,
        target: Option<&Info<'a>>,
        arguments: &[Info<'a>],
    ) -> Option<Info<'a>> {
        let target = target?;
        let Ty::Named(of) = &target.typed.ty else { return None };
        let cost =
            arguments.iter().fold(inquiry::cost(name), |sum, info| sum.saturating_add(info.cost));
        let cost = cost.saturating_add(target.cost);
        let ty = match inquiry::result(of, name, arguments.len()) {
            Some(Returns::Chain(next)) => named(next),
            Some(Returns::Bool) => Ty::Bool,
            Some(Returns::Text) => Ty::Text,
            None => {
                let types: Vec<String> =
                    arguments.iter().map(|info| info.typed.ty.to_string()).collect();
                let text = format!(
                    "found no matching overload for '{name}' applied to '{of}.({})'",
                    types.join(", ")
                );
                self.report(&format!(".{name}"), text);
                Ty::Dyn
            }
        };
        Some(Info::new(ty, 1, cost))
    }

    fn operator(&mut self, call: &CallExpr, operands: &[Info<'a>]) -> Option<Info<'a>> {
        let name = call.func_name.as_str();
        let sum = operands.iter().fold(0_u64, |cost, info| cost.saturating_add(info.cost));
        let cost = |work: u64| sum.saturating_add(work);
        Some(match (name, operands) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, _) => {
                if operands.iter().any(|info| !info.typed.ty.may_be_bool()) {
                    self.no_overload(name, operands);
                }
                Info::new(Ty::Bool, 1, cost(u64::from(name == operators::LOGICAL_NOT)))
            }
            (operators::NOT_STRICTLY_FALSE, [_]) => Info::new(Ty::Bool, 1, cost(1)),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                if !condition.typed.ty.may_be_bool() {
                    self.no_overload(name, operands);
                }
                let typed = if yes.typed.ty.is_dyn() { &no.typed } else { &yes.typed };
                let typed = Typed::new(typed.ty.clone(), yes.typed.size.max(no.typed.size));
                Info { typed, cost: condition.cost.saturating_add(yes.cost.max(no.cost)) }
            }
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [left, right],
            ) => {
                if !comparable(name, &left.typed.ty, &right.typed.ty) {
                    self.no_overload(name, operands);
                }
                Info::new(Ty::Bool, 1, cost(1 + comparison(left, right)))
            }
            (operators::NEGATE, [value]) => Info { typed: value.typed.clone(), cost: cost(1) },
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                [left, right],
            ) => self.arithmetic(name, left, right, sum),
            _ => return self.access(call, operands, sum.saturating_add(1)),
        })
    }

    /// Membership, indexes and optional fields.
    fn access(&mut self, call: &CallExpr, operands: &[Info<'a>], cost: u64) -> Option<Info<'a>> {
        let name = call.func_name.as_str();
        Some(match (name, operands) {
            (operators::IN, [_, haystack]) => {
                let work =
                    if matches!(haystack.typed.ty, Ty::List(_)) { haystack.typed.size } else { 1 };
                Info::new(Ty::Bool, 1, cost.saturating_add(work))
            }
            (operators::INDEX, [value, _]) => {
                if matches!(value.typed.ty, Ty::Object(..)) {
                    self.no_overload(name, operands);
                }
                Info { typed: value.typed.element(), cost }
            }
            (operators::OPT_INDEX, [value, _]) => optional(value.typed.element(), cost),
            (operators::OPT_SELECT, [value, _]) => {
                let field = match &call.args[1].expr {
                    Expr::Literal(LiteralValue::String(name)) => {
                        self.field(&value.typed, name.inner())
                    }
                    _ => Typed::dynamic(),
                };
                optional(field, cost)
            }
            _ => return None,
        })
    }

    fn arithmetic(&mut self, name: &str, left: &Info<'a>, right: &Info<'a>, cost: u64) -> Info<'a> {
        let (a, b) = (&left.typed.ty, &right.typed.ty);
        let timed = |ty: &Ty<'_>| matches!(ty, Ty::Timestamp | Ty::Duration | Ty::Dyn | Ty::Null);
        let plain = !timed(a) && !timed(b);
        let concatenates =
            matches!(a, Ty::Text | Ty::Bytes | Ty::List(_)) && name == operators::ADD;
        let fits = a.is_number() && b.is_number() && a.matches(b) || concatenates && a.matches(b);
        if plain && !fits {
            self.no_overload(name, &[left.clone(), right.clone()]);
        }
        let size = left.typed.size.saturating_add(right.typed.size);
        let work = match a {
            Ty::Text | Ty::Bytes => traversal(size),
            _ => 1,
        };
        let ty = match (a, b) {
            (Ty::Dyn, _) | (_, Ty::Dyn) => Ty::Dyn,
            // `@result + [x]`: the accumulator starts out without a type.
            (Ty::List(_), right) => right.clone(),
            (Ty::Timestamp, Ty::Timestamp) => Ty::Duration,
            (Ty::Duration, Ty::Timestamp) => Ty::Timestamp,
            (left, _) => left.clone(),
        };
        Info::new(ty, size, cost.saturating_add(work.max(1)))
    }

    fn no_overload(&mut self, name: &str, operands: &[Info<'a>]) {
        let types: Vec<String> = operands.iter().map(|info| info.typed.ty.to_string()).collect();
        let symbol: String = name.chars().filter(|char| !"_".contains(*char)).collect();
        let text =
            format!("found no matching overload for '{name}' applied to '({})'", types.join(", "));
        self.report_symbol(&symbol, text);
    }

    fn report_symbol(&mut self, symbol: &str, text: String) {
        let near = if self.source.contains(symbol) { symbol.to_owned() } else { String::new() };
        self.report(&near, text);
    }

    fn macro_call(&mut self, call: &CallExpr, around: Around<'_, 'a>) -> Option<Info<'a>> {
        let target = call.target.as_deref()?;
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("bind", [name, value, body]) if ident(target) == Some("cel") => {
                let value = self.visit(value, around);
                let scope = CheckScope { parent: around, name: ident(name)?, typed: value.typed };
                let body = self.visit(body, Some(&scope));
                Some(Info { cost: body.cost.saturating_add(value.cost), ..body })
            }
            ("optMap" | "optFlatMap", [name, body]) => {
                let target = self.visit(target, around);
                let typed = match &target.typed.ty {
                    Ty::Optional(inner) => (**inner).clone(),
                    _ => Typed::dynamic(),
                };
                let scope = CheckScope { parent: around, name: ident(name)?, typed };
                let body = self.visit(body, Some(&scope));
                let cost = target.cost.saturating_add(body.cost).saturating_add(1);
                if call.func_name == "optMap" {
                    return Some(optional(body.typed, cost));
                }
                Some(Info { typed: body.typed, cost })
            }
            ("sortBy", [name, by]) => {
                let name = ident(name)?;
                let target = self.visit(target, around);
                let item = self.iteration(&target.typed);
                let by = self.visit(by, Some(&CheckScope { parent: around, name, typed: item }));
                let looping = target.typed.size.saturating_mul(by.cost.saturating_add(1));
                Some(Info { cost: target.cost.saturating_add(looping), typed: target.typed })
            }
            (
                "all" | "exists" | "existsOne" | "exists_one" | "transformList" | "transformMap"
                | "transformMapEntry",
                [first, second, bodies @ ..],
            ) if !bodies.is_empty() => {
                let names = (ident(first)?, ident(second)?);
                Some(self.fold_two(&call.func_name, target, names, bodies, around))
            }
            _ => None,
        }
    }

    fn fold_two(
        &mut self,
        function: &str,
        target: &Expression,
        (first, second): (&str, &str),
        bodies: &[Expression],
        around: Around<'_, 'a>,
    ) -> Info<'a> {
        let range = self.visit(target, around);
        let key = match &range.typed.ty {
            Ty::List(_) => Typed::new(Ty::Int, 1),
            _ => self.iteration(&range.typed),
        };
        let outer = CheckScope { parent: around, name: first, typed: key };
        let value = range.typed.element();
        let scope = CheckScope { parent: Some(&outer), name: second, typed: value };
        let mut step = 2_u64;
        let mut body = Typed::dynamic();
        for expression in bodies {
            let info = self.visit(expression, Some(&scope));
            step = step.saturating_add(info.cost);
            body = info.typed;
        }
        let size = range.typed.size;
        let cost = range.cost.saturating_add(size.saturating_mul(step));
        match function {
            "transformList" => Info::new(Ty::List(Rc::new(body)), size, cost),
            "transformMapEntry" => Info::new(Ty::Map(Rc::new(Typed::dynamic())), size, cost),
            "transformMap" => Info::new(Ty::Map(Rc::new(body)), size, cost),
            _ => Info::new(Ty::Bool, 1, cost),
        }
    }
}

fn optional(inner: Typed<'_>, cost: u64) -> Info<'_> {
    let size = inner.size;
    // An optional field of an optional value is not nested.
    let ty = match inner.ty {
        Ty::Optional(_) => inner.ty,
        _ => Ty::Optional(Rc::new(inner)),
    };
    Info::new(ty, size, cost)
}

fn comparable(name: &str, left: &Ty<'_>, right: &Ty<'_>) -> bool {
    if matches!(name, operators::EQUALS | operators::NOT_EQUALS) {
        return left.matches(right);
    }
    let ordered = |ty: &Ty<'_>| !matches!(ty, Ty::List(_) | Ty::Map(_) | Ty::Object(..));
    let fits = left.is_number() && right.is_number() || left.matches(right);
    fits && ordered(left) && ordered(right)
}

/// Texts and lists compare up to the end of the shorter.
fn comparison(left: &Info<'_>, right: &Info<'_>) -> u64 {
    let size = left.typed.size.min(right.typed.size);
    match (&left.typed.ty, &right.typed.ty) {
        (Ty::Text | Ty::Bytes, _) | (_, Ty::Text | Ty::Bytes) => traversal(size),
        (Ty::List(_) | Ty::Map(_), _) | (_, Ty::List(_) | Ty::Map(_)) => size,
        _ => 0,
    }
}
