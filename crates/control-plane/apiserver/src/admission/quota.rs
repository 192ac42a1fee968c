//! ResourceQuotas: the limits of a namespace as a whole, charged before the object is stored.
//!
//! The charge is a compare-and-swap on the quota's own status, so that two requests, on
//! two servers even, cannot both take the last place. If the write fails afterwards the
//! quota controller counts anew and gives the place back.

use base::clock;
use bytes::Bytes;
use kinds::quota::{self, Amounts};
use serde_json::{Map, Value};
use store::{Expect, Range, Write, WriteChange, WriteError};
use types::Quantity;

use super::Operation;
use crate::api::{ObjectEntry, write_failure};
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::item;
use crate::verbs::object;

const QUOTAS: &str = "resourcequotas";
/// How often a charge is tried anew when others charge at the same time.
const TRIES: usize = 50;

pub(super) async fn check(
    call: &Call<'_>,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> ApiResult<()> {
    if call.namespace().is_empty()
        || operation == Operation::Delete
        || !call.path.subresource.is_empty()
    {
        return Ok(());
    }
    let prefix = format!("{}/", call.namespace());
    let range = Range { prefix: &prefix, ..Range::default() };
    let page = call.api.store.list(QUOTAS, range);
    for entry in page.map(|page| page.entries).unwrap_or_default() {
        charge(call, entry, new, old, dry_run).await?;
    }
    Ok(())
}

async fn charge(
    call: &Call<'_>,
    mut entry: ObjectEntry,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> ApiResult<()> {
    for _ in 0..TRIES {
        let quota = entry.item.to_value();
        let Some(used) = check_quota(call, &quota, new, old)? else { return Ok(()) };
        if dry_run {
            return Ok(());
        }
        let mut charged = quota;
        charged["status"]["used"] = used;
        let write = Write {
            table: QUOTAS.into(),
            name: entry.name.clone(),
            expect: Expect::At(entry.revision),
            change: WriteChange::Put(Bytes::from(item::encode(&charged))),
        };
        match call.api.store.write(write).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict { .. }) => match call.api.store.get(QUOTAS, &entry.name) {
                Some(fresh) => entry = fresh,
                None => return Ok(()),
            },
            Err(error) => {
                return Err(write_failure(&error, call.served.subject(object::name(new))));
            }
        }
    }
    Err(ApiError::unavailable("the quota is being changed by too many requests at once"))
}

/// The quota's new `used`, or nothing if this object does not count towards it.
fn check_quota(
    call: &Call<'_>,
    quota: &Value,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<Option<Value>> {
    let (group, plural) = (&*call.served.group, &*call.served.plural);
    if !quota::in_scope(quota, group, plural, new) {
        return Ok(None);
    }
    let hard = quota::amounts(quota["spec"].get("hard"));
    if old.is_none()
        && let Some(missing) = quota::unstated(&hard, group, plural, new)
    {
        let reason = format!("failed quota: {}: {missing}", object::name(quota));
        return Err(ApiError::forbidden_because(call.served.subject(object::name(new)), reason));
    }
    let now = clock::now();
    let wanted = quota::usage(group, plural, new, now);
    // An update can bring an object into the quota's scope; then all of it is new.
    let before = old
        .filter(|old| quota::in_scope(quota, group, plural, old))
        .map(|old| quota::usage(group, plural, old, now))
        .unwrap_or_default();
    let delta = delta(&hard, &wanted, &before);
    if delta.is_empty() {
        return Ok(None);
    }
    let used = quota::amounts(quota["status"].get("used"));
    let mut after = used.clone();
    quota::add(&mut after, &delta);
    let over: Vec<&String> = delta
        .iter()
        .filter(|(name, _)| after.get(*name) > hard.get(*name))
        .map(|(name, _)| name)
        .collect();
    if over.is_empty() {
        return Ok(Some(shown(&after)));
    }
    let list = |amounts: &Amounts| {
        let text = |name: &&String| {
            let amount = amounts.get(*name).map_or_else(|| "0".to_owned(), Quantity::to_string);
            format!("{name}={amount}")
        };
        over.iter().map(text).collect::<Vec<_>>().join(",")
    };
    let subject = call.served.subject(object::name(new));
    Err(ApiError::forbidden_because(
        subject,
        format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            object::name(quota),
            list(&delta),
            list(&used),
            list(&hard),
        ),
    ))
}

/// The amounts that the write adds, of the resources that the quota limits. The controller counts
/// the amounts that a write releases once it is stored: it may still fail.
fn delta(hard: &Amounts, wanted: &Amounts, before: &Amounts) -> Amounts {
    let zero = Quantity::from_units(0);
    let mut delta = Amounts::new();
    for name in hard.keys() {
        let (new, old) = (wanted.get(name).unwrap_or(&zero), before.get(name).unwrap_or(&zero));
        let change = new.clone() - old;
        if change.signum() > 0 {
            delta.insert(name.clone(), change);
        }
    }
    delta
}

fn shown(amounts: &Amounts) -> Value {
    let entries = amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
    Value::Object(entries.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_add_what_is_limited_and_take_nothing_back() {
        let amounts = |value: Value| quota::amounts(Some(&value));
        let hard = amounts(json!({"pods": "5", "requests.cpu": "2"}));
        for (before, wanted, expected) in [
            (json!({}), json!({"pods": "1", "limits.cpu": "1"}), json!({"pods": "1"})),
            (json!({"pods": "1"}), json!({"pods": "1"}), json!({})),
            (
                json!({"requests.cpu": "1"}),
                json!({"requests.cpu": "1500m"}),
                json!({"requests.cpu": "500m"}),
            ),
            (
                json!({"pods": "1", "requests.cpu": "2"}),
                json!({"pods": "1", "requests.cpu": "1"}),
                json!({}),
            ),
        ] {
            let added = delta(&hard, &amounts(wanted.clone()), &amounts(before.clone()));
            assert_eq!(shown(&added), expected, "from {before} to {wanted}");
        }
    }
}
