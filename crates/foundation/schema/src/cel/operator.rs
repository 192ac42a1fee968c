//! CEL operators whose operands are all evaluated first: comparison, arithmetic, `in`, indexing.
//! Short-circuit operators (`&&`, `||`, `?:`) are elsewhere.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use kube_cel::cel::common::ast::operators;

use super::compare;
use super::eval::{Error, EvalResult, Evaluator};
use super::library;
use super::lookup;
use super::value::Val;
use crate::node::ListType;

impl<'a> Evaluator<'a> {
    /// `None` if `name` is not an operator.
    pub(super) fn operator(&self, name: &str, operands: &[Val<'a>]) -> Option<EvalResult<'a>> {
        Some(match (name, operands) {
            (operators::EQUALS, [left, right]) => self.equality(left, right).map(Val::Bool),
            (operators::NOT_EQUALS, [left, right]) => {
                self.equality(left, right).map(|equal| Val::Bool(!equal))
            }
            (operators::LESS, [left, right]) => self.order(name, left, right, Ordering::is_lt),
            (operators::LESS_EQUALS, [left, right]) => {
                self.order(name, left, right, Ordering::is_le)
            }
            (operators::GREATER, [left, right]) => self.order(name, left, right, Ordering::is_gt),
            (operators::GREATER_EQUALS, [left, right]) => {
                self.order(name, left, right, Ordering::is_ge)
            }
            (operators::IN, [needle, haystack]) => self
                .spend(match haystack {
                    Val::Map(_) | Val::Entries(..) | Val::Object(..) => 1,
                    list => list.weight(self.left() + 1),
                })
                .and_then(|()| lookup::contains(haystack, needle))
                .map(Val::Bool),
            (operators::LOGICAL_NOT, [Val::Bool(value)]) => Ok(Val::Bool(!value)),
            (operators::NEGATE, [Val::Int(value)]) => {
                value.checked_neg().map(Val::Int).ok_or(Error::Overflow)
            }
            (operators::NEGATE, [Val::Double(value)]) => Ok(Val::Double(-value)),
            (operators::INDEX, [value, index]) => element(value, index),
            (operators::OPT_INDEX, [value, index]) => optional_element(value, index),
            (operators::OPT_SELECT, [value, field]) => optional_element(value, field),
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                [left, right],
            ) => self.arithmetic(name, left, right),
            (operators::LOGICAL_NOT | operators::NEGATE, [operand]) => {
                Err(Error::overload(name, [operand]))
            }
            _ => return None,
        })
    }

    fn equality(&self, left: &Val<'a>, right: &Val<'a>) -> Result<bool, Error> {
        let most = self.left() + 1;
        let left_weight = left.weight(most);
        self.spend(right.weight(left_weight).min(left_weight))?;
        Ok(compare::equals(left, right))
    }

    fn order(
        &self,
        name: &str,
        left: &Val<'a>,
        right: &Val<'a>,
        wanted: fn(Ordering) -> bool,
    ) -> EvalResult<'a> {
        self.spend(left.weight(self.left() + 1))?;
        match compare::order(left, right) {
            Some(order) => Ok(Val::Bool(wanted(order))),
            // NaN has no order, but is a number.
            None if matches!((left, right), (Val::Double(_), Val::Double(_))) => {
                Ok(Val::Bool(false))
            }
            None => Err(Error::overload(name, [left, right])),
        }
    }

    fn arithmetic(&self, name: &str, left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
        match (left, right) {
            (Val::Int(left), Val::Int(right)) => integers(name, *left, *right).map(Val::Int),
            (Val::Uint(left), Val::Uint(right)) => naturals(name, *left, *right).map(Val::Uint),
            (Val::Double(left), Val::Double(right)) => match name {
                operators::ADD => Ok(Val::Double(left + right)),
                operators::SUBSTRACT => Ok(Val::Double(left - right)),
                operators::MULTIPLY => Ok(Val::Double(left * right)),
                operators::DIVIDE => Ok(Val::Double(left / right)),
                _ => Err(Error::overload(name, [&Val::Double(*left), &Val::Double(*right)])),
            },
            (Val::Text(left), Val::Text(right)) if name == operators::ADD => {
                self.spend((left.len() + right.len()) as u64 / 10)?;
                Ok(Val::text([&**left, &**right].concat()))
            }
            (Val::List(_) | Val::Array(..), Val::List(_) | Val::Array(..))
                if name == operators::ADD =>
            {
                let size = left.size().unwrap_or_default() + right.size().unwrap_or_default();
                self.spend(size as u64)?;
                Ok(Val::List(Rc::new(self.concatenate(left, right)?)))
            }
            (Val::Foreign(_), _) | (_, Val::Foreign(_)) => {
                library::call(name, None, &[left.clone(), right.clone()])
            }
            _ => Err(Error::overload(name, [left, right])),
        }
    }
}

impl<'a> Evaluator<'a> {
    /// Concatenates lists. Sets get no duplicates, and in list maps items of the right operand
    /// replace those of the left one.
    fn concatenate(&self, left: &Val<'a>, right: &Val<'a>) -> Result<Vec<Val<'a>>, Error> {
        let (mut all, added) = (compare::items(left), compare::items(right));
        let Val::Array(_, Some(node)) = left else {
            all.extend(added);
            return Ok(all);
        };
        let identity = |item: &Val<'a>| match (&node.list, item) {
            (ListType::Map(keys), item) => keys
                .iter()
                .map(|key| match lookup::index(item, &Val::text(&**key)) {
                    Ok(Some(value)) => compare::canonical(&value),
                    _ => match lookup::select(item, key) {
                        Ok(Some(value)) => compare::canonical(&value),
                        _ => String::new(),
                    },
                })
                .collect(),
            (_, item) => compare::canonical(item),
        };
        if node.list == ListType::Atomic {
            all.extend(added);
            return Ok(all);
        }
        self.spend(left.weight(self.left() + 1))?;
        self.spend(right.weight(self.left() + 1))?;
        let mut known: HashMap<String, usize> =
            all.iter().enumerate().map(|(index, item)| (identity(item), index)).collect();
        for item in added {
            match known.entry(identity(&item)) {
                Entry::Occupied(place) => all[*place.get()] = item,
                Entry::Vacant(place) => {
                    place.insert(all.len());
                    all.push(item);
                }
            }
        }
        Ok(all)
    }
}

fn element<'a>(value: &Val<'a>, index: &Val<'a>) -> EvalResult<'a> {
    if let Val::Optional(_) = value {
        return optional_element(value, index);
    }
    lookup::index(value, index)?.ok_or_else(|| match index {
        Val::Int(index) => Error::NoIndex(*index),
        Val::Text(name) => Error::NoKey(name.to_string()),
        other => Error::NoKey(other.type_name().to_owned()),
    })
}

/// `value.?field`, `value[?index]`
fn optional_element<'a>(value: &Val<'a>, index: &Val<'a>) -> EvalResult<'a> {
    let found = match value {
        Val::Optional(None) => None,
        Val::Optional(Some(value)) => optional_lookup(value, index)?,
        value => optional_lookup(value, index)?,
    };
    Ok(Val::Optional(found.map(Rc::new)))
}

fn optional_lookup<'a>(value: &Val<'a>, index: &Val<'a>) -> Result<Option<Val<'a>>, Error> {
    match (value, index) {
        (Val::Object(..), Val::Text(name)) => lookup::select(value, name),
        _ => lookup::index(value, index),
    }
}

fn integers(name: &str, left: i64, right: i64) -> Result<i64, Error> {
    let result = match name {
        operators::ADD => left.checked_add(right),
        operators::SUBSTRACT => left.checked_sub(right),
        operators::MULTIPLY => left.checked_mul(right),
        _ if right == 0 => return Err(Error::DivisionByZero),
        operators::DIVIDE => left.checked_div(right),
        _ => left.checked_rem(right),
    };
    result.ok_or(Error::Overflow)
}

fn naturals(name: &str, left: u64, right: u64) -> Result<u64, Error> {
    let result = match name {
        operators::ADD => left.checked_add(right),
        operators::SUBSTRACT => left.checked_sub(right),
        operators::MULTIPLY => left.checked_mul(right),
        _ if right == 0 => return Err(Error::DivisionByZero),
        operators::DIVIDE => left.checked_div(right),
        _ => left.checked_rem(right),
    };
    result.ok_or(Error::Overflow)
}
