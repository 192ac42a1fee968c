//! Laying a partial object over another.
//!
//! Lists keep the live order for items that the configuration does not mention
//! and take the configuration's order for those it does.

use serde_json::{Map, Value};

use super::field_element;
use super::validate::{Faults, FieldFault};
use super::walk::{Ty, ValueKind};
use crate::path::PathElement;

pub(super) fn merge(
    ty: Ty<'_>,
    live: Option<&Value>,
    config: Option<&Value>,
) -> Result<Option<Value>, Faults> {
    let (live, config) = match (live, config) {
        (None, None) => return Ok(None),
        (Some(live), None) => return Ok(Some(live.clone())),
        (None, Some(config)) => return Ok(Some(config.clone())),
        (Some(live), Some(config)) => (live, config),
    };
    let kind = ty.kind(Some(config));
    if ty.is_atomic(kind) {
        return Ok(Some(config.clone()));
    }
    let nothing = Map::new();
    match kind {
        ValueKind::Scalar => Ok(Some(config.clone())),
        ValueKind::Map => {
            let (old, new) = (live.as_object(), config.as_object());
            let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
            // Nothing inside either: the configuration decides between `{}` and null.
            if old.is_empty() && new.is_empty() {
                return Ok(Some(config.clone()));
            }
            Ok(Some(Value::Object(merge_fields(ty, old, new)?)))
        }
        ValueKind::List => {
            let old = live.as_array().map_or(&[][..], Vec::as_slice);
            let new = config.as_array().map_or(&[][..], Vec::as_slice);
            if old.is_empty() && new.is_empty() {
                return Ok(Some(config.clone()));
            }
            let merged = Items::index(ty, old, new)?.merge(ty)?;
            Ok(Some(merged).filter(|items| !items.is_empty()).map(Value::Array))
        }
    }
}

fn merge_fields(
    ty: Ty<'_>,
    live: &Map<String, Value>,
    config: &Map<String, Value>,
) -> Result<Map<String, Value>, Faults> {
    let mut merged = Map::new();
    for (name, live) in live {
        let value = merge(ty.field(name), Some(live), config.get(name))
            .map_err(|faults| faults.within(&field_element(name)))?;
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    for (name, config) in config.iter().filter(|(name, _)| !live.contains_key(*name)) {
        merged.insert(name.clone(), config.clone());
    }
    Ok(merged)
}

/// One item with the element that identifies it.
struct Item<'a> {
    element: PathElement,
    value: &'a Value,
    /// The position of the item with the same element on the other side.
    twin: Option<usize>,
    /// For live items: whether another live item has the same element.
    doubled: bool,
}

struct Items<'a> {
    live: Vec<Item<'a>>,
    config: Vec<Item<'a>>,
}

impl<'a> Items<'a> {
    fn index(list: Ty<'_>, live: &'a [Value], config: &'a [Value]) -> Result<Self, Faults> {
        let mut config = elements(list, config)?;
        let mut live = elements(list, live)?;
        let order = sorted(&config);
        for pair in order.windows(2) {
            let element = &config[pair[0]].element;
            if *element == config[pair[1]].element {
                return Err(Faults::one(FieldFault::Duplicate(element.clone())));
            }
        }
        let live_order = sorted(&live);
        for pair in live_order.windows(2) {
            if live[pair[0]].element == live[pair[1]].element {
                live[pair[0]].doubled = true;
                live[pair[1]].doubled = true;
            }
        }
        for at in live_order.into_iter().rev() {
            let found = order.binary_search_by(|&it| config[it].element.cmp(&live[at].element));
            if let Ok(found) = found {
                live[at].twin = Some(order[found]);
                config[order[found]].twin = Some(at);
            }
        }
        Ok(Self { live, config })
    }

    /// The item at a position of the configuration, laid over its live twin. Live items
    /// that cannot be distinguished are replaced by it.
    fn merged(&self, list: Ty<'_>, at: usize) -> Result<Option<Value>, Faults> {
        let item = &self.config[at];
        let live = match item.twin.map(|twin| &self.live[twin]) {
            Some(twin) if twin.doubled => Some(&Value::Null),
            twin => twin.map(|twin| twin.value),
        };
        merge(list.item(), live, Some(item.value)).map_err(|faults| faults.within(&item.element))
    }

    /// Walks both lists at once. A shared item that is due later in the configuration's
    /// order is passed over on the live side and taken when its turn comes.
    fn merge(&self, list: Ty<'_>) -> Result<Vec<Value>, Faults> {
        let (live, config) = (&self.live, &self.config);
        let mut out = Vec::with_capacity(live.len().max(config.len()));
        let mut taken = vec![false; config.len()];
        let mut shared = (0..config.len()).filter(|&at| config[at].twin.is_some()).peekable();
        let (mut left, mut right) = (0, 0);
        while left < live.len() || right < config.len() {
            if left < live.len() && right < config.len() {
                if live[left].twin == Some(right) {
                    taken[right] = true;
                    out.extend(self.merged(list, right)?);
                    left += 1;
                    right += 1;
                    shared.next();
                    continue;
                }
                let due = shared.peek().copied();
                if live[left].twin.is_some() && due.is_some() && live[left].twin != due {
                    left += 1;
                    continue;
                }
            }
            if left < live.len() {
                match live[left].twin {
                    None => {
                        out.push(live[left].value.clone());
                        left += 1;
                        continue;
                    }
                    Some(twin) if taken[twin] => left += 1,
                    Some(_) => {}
                }
            }
            if right < config.len() {
                taken[right] = true;
                out.extend(self.merged(list, right)?);
                if shared.peek() == Some(&right) {
                    shared.next();
                }
                right += 1;
            }
        }
        Ok(out)
    }
}

fn elements<'a>(list: Ty<'_>, items: &'a [Value]) -> Result<Vec<Item<'a>>, Faults> {
    let mut found = Vec::with_capacity(items.len());
    for (at, value) in items.iter().enumerate() {
        let element = list
            .item_element(value)
            .map_err(|error| Faults::one(FieldFault::Item { at, why: error.to_string() }))?;
        found.push(Item { element, value, twin: None, doubled: false });
    }
    Ok(found)
}

/// Positions in the order of elements.
fn sorted(items: &[Item<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&left, &right| items[left].element.cmp(&items[right].element));
    order
}
