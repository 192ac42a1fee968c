//! The order of a merged list: items of the patch are in the patch's order, the others in the live
//! order, and the two are interleaved by the live order where it has both.

use serde_json::Value;

use super::{PATCH, StrategicError, wrong_type};

/// The identity of an item of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum ItemIdentity<'a> {
    Scalar,
    Key(&'a str),
}

/// The merge key of an item, which must be there.
pub(super) fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, StrategicError> {
    let Value::Object(fields) = item else {
        return Err(wrong_type("map[string]interface {}", item));
    };
    fields
        .get(key)
        .ok_or_else(|| StrategicError::NoMergeKey { map: item.clone(), key: key.to_owned() })
}

impl ItemIdentity<'_> {
    fn of<'a>(&self, item: &'a Value) -> Result<&'a Value, StrategicError> {
        match self {
            Self::Scalar => Ok(item),
            Self::Key(key) => key_of(item, key),
        }
    }

    fn identities<'a>(&self, items: &'a [Value]) -> Result<Vec<&'a Value>, StrategicError> {
        items.iter().map(|item| self.of(item)).collect()
    }
}

/// Arranges the items of a merged list.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    live: &[Value],
    identity: ItemIdentity<'_>,
) -> Result<Vec<Value>, StrategicError> {
    let wanted = identity.identities(wanted)?;
    let live = identity.identities(live)?;
    let place = |order: &[&Value], item: &Value| {
        let item = identity.of(item).ok()?;
        order.iter().position(|other| *other == item)
    };
    identity.identities(&merged)?;
    let (mut ours, mut theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(&wanted, item).is_some());
    ours.sort_by_cached_key(|item| place(&wanted, item));
    theirs.sort_by_cached_key(|item| place(&live, item));

    let mut arranged = Vec::with_capacity(ours.len() + theirs.len());
    let mut ours = ours.into_iter().peekable();
    for item in theirs {
        let at = place(&live, &item);
        // An item of the patch is first unless the live order says otherwise.
        while let Some(before) = ours.next_if(|our| match (at, place(&live, our)) {
            (Some(at), Some(our)) => at >= our,
            _ => true,
        }) {
            arranged.push(before);
        }
        arranged.push(item);
    }
    arranged.extend(ours);
    Ok(arranged)
}

/// The live order that `$setElementOrder` is compared with. Upstream edits the live list in
/// place, so that new items take the positions of deleted ones and thereby a position in the
/// live order. Clients see the result, so we do the same.
pub(super) fn after_edit(
    live: &[Value],
    patch: &[Value],
    identity: ItemIdentity<'_>,
) -> Vec<Value> {
    let ItemIdentity::Key(key) = identity else { return live.to_vec() };
    let is =
        |item: &Value, directive: &str| item.get(PATCH).and_then(Value::as_str) == Some(directive);
    let held =
        |items: &[Value], item: &Value| items.iter().any(|other| other.get(key) == item.get(key));
    let deleted: Vec<Value> = patch.iter().filter(|item| is(item, "delete")).cloned().collect();
    let mut order: Vec<Value> = live.iter().filter(|item| !held(&deleted, item)).cloned().collect();
    if !patch.iter().any(|item| is(item, "replace")) {
        for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
            if order.len() < live.len() && !held(&order, item) {
                order.push(item.clone());
            }
        }
    }
    order
}

/// Checks that the items of a patch, except deletions, are in the order of `$setElementOrder`.
pub(super) fn check(
    patch: &[Value],
    wanted: &[Value],
    identity: ItemIdentity<'_>,
) -> Result<(), StrategicError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut order = wanted.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let item = identity.of(item)?;
        let mut found = false;
        for other in order.by_ref() {
            if identity.of(other)? == item {
                found = true;
                break;
            }
        }
        if !found {
            return Err(StrategicError::OrderMismatch {
                patch: Value::from(patch),
                order: Value::from(wanted),
            });
        }
    }
    Ok(())
}
