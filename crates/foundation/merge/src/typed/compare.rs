//! How two values of one type differ: which fields were added, changed, removed.
//! Allocates only where they differ, because every write compares whole objects.

use serde_json::{Map, Value};

use super::field_element;
use super::validate::{Faults, FieldFault};
use super::walk::{Ty, ValueKind};
use crate::path::{PathElement, same_value};
use crate::set::Set;

/// The difference between two values; no field is in more than one of the sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Comparison {
    /// Whether the values are the same.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Forgets the given fields and all that lies below them.
    pub(crate) fn without(self, fields: &Set) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }

    fn graft(&mut self, element: PathElement, own: OwnedSets, below: Self) {
        let place = |set: &mut Set, member: bool, below: Set| {
            if member || !below.is_empty() {
                set.graft(element.clone(), member, below);
            }
        };
        place(&mut self.modified, own.modified, below.modified);
        place(&mut self.removed, own.removed, below.removed);
        if own.added || !below.added.is_empty() {
            self.added.graft(element, own.added, below.added);
        }
    }
}

/// To which sets the compared place itself belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OwnedSets {
    added: bool,
    modified: bool,
    removed: bool,
}

pub(super) fn compare(
    ty: Ty<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<Comparison, Faults> {
    let mut comparison = Comparison::default();
    walk(ty, old, new, &mut comparison)?;
    Ok(comparison)
}

/// Compares one position; differences below it are added to `below`.
fn walk(
    ty: Ty<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    below: &mut Comparison,
) -> Result<OwnedSets, Faults> {
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (None, Some(new)) => {
            everything(ty, new, &mut below.added)?;
            return Ok(OwnedSets { added: true, ..OwnedSets::default() });
        }
        (Some(old), None) => {
            everything(ty, old, &mut below.removed)?;
            return Ok(OwnedSets { removed: true, ..OwnedSets::default() });
        }
        (None, None) => return Ok(OwnedSets::default()),
    };
    let (old_kind, new_kind) = (ty.kind(Some(old)), ty.kind(Some(new)));
    // One kind replaces another: the old parts go, the new parts come.
    let mut modified = old_kind != new_kind && walk_as(ty, old_kind, old, new, below)?;
    modified |= walk_as(ty, new_kind, old, new, below)?;
    Ok(OwnedSets { modified, ..OwnedSets::default() })
}

/// All places below a value that is on one side only.
fn everything(ty: Ty<'_>, value: &Value, below: &mut Set) -> Result<(), Faults> {
    let kind = ty.kind(Some(value));
    if ty.is_atomic(kind) {
        return Ok(());
    }
    match (kind, value) {
        (ValueKind::Map, Value::Object(fields)) => {
            below.nodes.reserve(fields.len());
            for (name, value) in fields {
                let mut deeper = Set::new();
                everything(ty.field(name), value, &mut deeper)
                    .map_err(|faults| faults.within(&field_element(name)))?;
                below.graft(field_element(name), true, deeper);
            }
        }
        (ValueKind::List, Value::Array(items)) => {
            for (element, items) in group(ty, items)? {
                let mut deeper = Set::new();
                if let [item] = items.as_slice() {
                    everything(ty.item(), item, &mut deeper)
                        .map_err(|faults| faults.within(&element))?;
                }
                below.graft(element, true, deeper);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Compares as one kind; whether the place as a whole differs.
fn walk_as(
    ty: Ty<'_>,
    kind: ValueKind,
    old: &Value,
    new: &Value,
    below: &mut Comparison,
) -> Result<bool, Faults> {
    let whole = || Ok(!same_value(old, new));
    if ty.is_atomic(kind) {
        return whole();
    }
    match kind {
        ValueKind::Scalar => whole(),
        ValueKind::Map => {
            let (old, new) = (old.as_object(), new.as_object());
            // Nothing inside either: compared as a whole, so that `{}` and null stay apart.
            if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                return whole();
            }
            compare_fields(ty, old, new, below)?;
            Ok(false)
        }
        ValueKind::List => {
            let (old, new) = (items(old), items(new));
            if old.is_empty() && new.is_empty() {
                return whole();
            }
            if old != new {
                compare_items(ty, old, new, below)?;
            }
            Ok(false)
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn compare_fields(
    ty: Ty<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    below: &mut Comparison,
) -> Result<(), Faults> {
    let mut olds = old.into_iter().flatten().peekable();
    let mut news = new.into_iter().flatten().peekable();
    loop {
        let (name, old, new) = match (olds.peek(), news.peek()) {
            (None, None) => return Ok(()),
            (Some((left, _)), Some((right, _))) if left == right => {
                let (name, old) = olds.next().expect("peeked");
                (name, Some(old), news.next().map(|(_, new)| new))
            }
            (Some((left, _)), right) if right.is_none_or(|(right, _)| left < right) => {
                let (name, old) = olds.next().expect("peeked");
                (name, Some(old), None)
            }
            _ => {
                let (name, new) = news.next().expect("peeked");
                (name, None, Some(new))
            }
        };
        let mut deeper = Comparison::default();
        let own = walk(ty.field(name), old, new, &mut deeper)
            .map_err(|faults| faults.within(&field_element(name)))?;
        if own != OwnedSets::default() || !deeper.is_same() {
            below.graft(field_element(name), own, deeper);
        }
    }
}

/// The values of one list under one key.
type Group<'a> = (PathElement, Vec<&'a Value>);

fn compare_items(
    list: Ty<'_>,
    old: &[Value],
    new: &[Value],
    below: &mut Comparison,
) -> Result<(), Faults> {
    let olds = group(list, old)?;
    let mut news = group(list, new)?;
    for (element, old) in olds {
        let new = match news.binary_search_by(|group| group.0.cmp(&element)) {
            Ok(at) => std::mem::take(&mut news[at].1),
            Err(_) => Vec::new(),
        };
        compare_group(list, element, &old, &new, below)?;
    }
    for (element, new) in news.into_iter().filter(|(_, new)| !new.is_empty()) {
        compare_group(list, element, &[], &new, below)?;
    }
    Ok(())
}

/// The items by key, sorted.
fn group<'a>(list: Ty<'_>, items: &'a [Value]) -> Result<Vec<Group<'a>>, Faults> {
    let mut groups: Vec<Group<'a>> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let element = list
            .item_element(item)
            .map_err(|error| Faults::one(FieldFault::Item { at, why: error.to_string() }))?;
        groups.push((element, vec![item]));
    }
    groups.sort_by(|left, right| left.0.cmp(&right.0));
    groups.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1.append(&mut next.1);
        }
        same
    });
    Ok(groups)
}

/// Items that cannot be distinguished count as one opaque item.
fn compare_group(
    list: Ty<'_>,
    element: PathElement,
    old: &[&Value],
    new: &[&Value],
    below: &mut Comparison,
) -> Result<(), Faults> {
    let mut deeper = Comparison::default();
    let mut item = |old: Option<&Value>, new: Option<&Value>| {
        walk(list.item(), old, new, &mut deeper).map_err(|faults| faults.within(&element))
    };
    let own = match (old, new) {
        ([] | [_], [] | [_]) => item(old.first().copied(), new.first().copied())?,
        ([_, _, ..], [_, _, ..]) => {
            let same = old.len() == new.len()
                && old.iter().zip(new).all(|(old, new)| same_value(old, new));
            OwnedSets { modified: !same, ..OwnedSets::default() }
        }
        ([_, _, ..], _) => {
            let mut own = OwnedSets::default();
            if let Some(new) = new.first() {
                own = item(None, Some(new))?;
            }
            OwnedSets { removed: true, ..own }
        }
        _ => {
            let mut own = OwnedSets::default();
            if let Some(old) = old.first() {
                own = item(Some(old), None)?;
            }
            OwnedSets { added: true, ..own }
        }
    };
    below.graft(element, own, deeper);
    Ok(())
}
