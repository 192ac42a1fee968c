//! Keeping `managedFields` up to date on creates, updates and patches.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::entries::{Managed, ManagerEntry, Operation};
use super::{
    MANAGED_FIELDS, MergeRequest, NEVER_OWNED, has_uid, managed_fields, set_managed_fields,
    take_managed_fields,
};
use crate::set::Set;
use crate::typed::{Comparison, compare, reconcile_field_set_with_schema};

/// Brings `new.metadata.managedFields` up to date, given what is stored (`live`, if
/// anything). Never fails: an object that cannot be read through its schema keeps the
/// managers it had.
pub fn track_update(live: Option<&Value>, new: &mut Value, request: &MergeRequest<'_>) {
    let given = take_managed_fields(new);
    let stored = live.and_then(managed_fields);
    let Some(changes) = changes(live, new, request) else {
        let stored = stored.and_then(Value::as_array).cloned();
        set_managed_fields(new, stored.unwrap_or_default());
        return;
    };
    let mut managed = match source(given, stored, request) {
        // Nothing changed, and these entries were written by us.
        ManagersSource::Known(entries) if changes.is_same() && entries.is_array() => {
            if let Value::Array(entries) = entries.into_owned() {
                set_managed_fields(new, entries);
            }
            return;
        }
        ManagersSource::Known(entries) => Managed::read(entries).unwrap_or_default(),
        ManagersSource::Read(managed) => managed,
    };
    // An object whose managers are not tracked stays so until it is applied.
    if managed.entries.is_empty() && live.is_some_and(has_uid) {
        return;
    }
    lose(&mut managed, &changes, request);
    gain(&mut managed, changes, request, request.manager());
    managed.cap();
    set_managed_fields(new, managed.write());
}

/// Where the managers before the write come from.
enum ManagersSource<'a> {
    /// As stored, not read yet.
    Known(Cow<'a, Value>),
    Read(Managed<'a>),
}

/// Clients may send `managedFields` to change them; those who do not know them, or send
/// nonsense, do not lose them. Subresources never change them.
fn source<'a>(
    given: Option<Value>,
    stored: Option<&'a Value>,
    request: &MergeRequest<'_>,
) -> ManagersSource<'a> {
    let known = || ManagersSource::Known(stored.map_or(Cow::Owned(Value::Null), Cow::Borrowed));
    let given = given.filter(|given| !given.is_null());
    match given {
        Some(given) if Some(&given) == stored => ManagersSource::Known(Cow::Owned(given)),
        Some(given) if request.subresource.is_empty() => {
            if is_reset(&given) {
                return ManagersSource::Read(Managed::default());
            }
            match Managed::read(Cow::Owned(given)) {
                Ok(managed) if !managed.entries.is_empty() => {
                    ManagersSource::Read(managed.rewritten())
                }
                _ => known(),
            }
        }
        _ => known(),
    }
}

/// `[]` and `[{}]` ask to forget all managers.
fn is_reset(given: &Value) -> bool {
    match given.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(Value::is_null),
        _ => false,
    }
}

/// The changes of the write, without the fields that its endpoint never owns. `None` if the
/// objects do not fit their schema.
pub(super) fn changes(
    live: Option<&Value>,
    new: &Value,
    request: &MergeRequest<'_>,
) -> Option<Comparison> {
    let nothing = Value::Object(Map::new());
    let old = live.or(request.blank).unwrap_or(&nothing);
    let mut changes = compare(old, new, request.schema).ok()?;
    changes.removed.subtract(&MANAGED_FIELDS);
    Some(changes.without(request.reset))
}

/// Takes what changed from everyone.
fn lose(managed: &mut Managed<'_>, changes: &Comparison, request: &MergeRequest<'_>) {
    managed.entries.retain(|entry| request.serves(&entry.api_version));
    for entry in &mut managed.entries {
        reconcile(entry, request);
        entry.edit(|set| {
            let Comparison { added, modified, removed } = changes;
            set.subtract(added) | set.subtract(modified) | set.subtract(removed)
        });
    }
    managed.drop_empty();
}

/// Gives what changed to the manager.
pub(super) fn gain(
    managed: &mut Managed<'_>,
    changes: Comparison,
    request: &MergeRequest<'_>,
    manager: &str,
) {
    let mut own: Set = changes.added.union(&changes.modified);
    own.subtract(&NEVER_OWNED);
    if own.is_empty() {
        return;
    }
    let (version, subresource) = (request.api_version, request.subresource);
    let mut entry = ManagerEntry::new(manager, Operation::Update, version, subresource, own);
    entry.time = request.time();
    managed.add_update(entry);
}

/// Reads an entry that was written under an older schema in terms of today's.
pub(super) fn reconcile(entry: &mut ManagerEntry, request: &MergeRequest<'_>) {
    if let Some(set) = reconcile_field_set_with_schema(&entry.set, request.schema) {
        entry.edit(|old| {
            *old = set;
            true
        });
    }
}
