//! Server-side apply.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::conflict::Conflicts;
use super::entries::{EntryError, Managed, ManagerEntry, Operation};
use super::update::{changes, gain, reconcile};
use super::{
    MANAGED_FIELDS, MergeRequest, NEVER_OWNED, equal_but_managed_fields, equal_ignoring_timestamps,
    last_applied, managed_fields, metadata, set_managed_fields, take_managed_fields,
};
use crate::set::Set;
use crate::typed::{
    self, Duplicates, Faults, compare, remove_items, to_field_set, validate, with_named_parents,
};

/// The manager of what was there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why a configuration cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own what would change.
    #[error(transparent)]
    Conflict(#[from] Conflicts),
    /// A bad request: the configuration is of another kind or version.
    #[error("invalid object type: {0}")]
    WrongKind(String),
    /// A bad request.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The configuration does not fit the schema.
    #[error("failed to create typed patch object ({object}): {faults}")]
    Invalid { object: String, faults: Faults },
    /// The stored object does not fit the schema.
    #[error("failed to create typed live object ({object}): {faults}")]
    Live { object: String, faults: Faults },
    #[error("failed to decode managed fields: {0}")]
    Entries(EntryError),
}

/// Applies `config` to `live`, in the name of a manager; `None` if nothing changes. The
/// caller defaults and validates the result, and creates the object if there was none.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    request: &MergeRequest<'_>,
    force: bool,
) -> Result<Option<Value>, ApplyError> {
    check(config, request)?;
    let nothing = Value::Object(Map::new());
    let before = live.unwrap_or(&nothing);
    let apply = Apply { live: before, config, request };
    let (mut object, managed) = match apply.run(managers(before, request)?, force) {
        Err(ApplyError::Conflict(conflicts)) if request.manager == last_applied::MANAGER => {
            match last_applied::allowed_conflicts(before, request) {
                None => return Err(conflicts.into()),
                Some(allowed) => match conflicts.except(&allowed) {
                    conflicts if conflicts.0.is_empty() => {
                        apply.run(managers(before, request)?, true)?
                    }
                    conflicts => return Err(conflicts.into()),
                },
            }
        }
        result => result?,
    };
    if request.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, config);
    }
    set_managed_fields(&mut object, managed.write());
    let same = live.is_some_and(|live| equal_ignoring_timestamps(live, &object));
    Ok((!same).then_some(object))
}

fn check(config: &Value, request: &MergeRequest<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or("");
    if text("apiVersion") != request.api_version || text("kind") != request.kind {
        return Err(ApplyError::WrongKind(kind_text(config)));
    }
    if managed_fields(config).is_some_and(Value::is_array) {
        return Err(ApplyError::ManagedFields);
    }
    validate(config, request.schema, Duplicates::Refused)
        .map_err(|faults| ApplyError::Invalid { object: object_text(config), faults })
}

/// The managers before the apply. Fields that no manager owns belong to the manager
/// `before-first-apply`.
fn managers<'a>(live: &'a Value, request: &MergeRequest<'_>) -> Result<Managed<'a>, ApplyError> {
    let stored = managed_fields(live).map_or(Cow::Owned(Value::Null), Cow::Borrowed);
    let mut managed = Managed::read(stored).map_err(ApplyError::Entries)?;
    if managed.entries.is_empty()
        && let Some(existing) = changes(None, live, request)
    {
        gain(&mut managed, existing, request, BEFORE_FIRST_APPLY);
    }
    managed.entries.retain(|entry| request.serves(&entry.api_version));
    for entry in &mut managed.entries {
        reconcile(entry, request);
    }
    Ok(managed)
}

struct Apply<'a> {
    live: &'a Value,
    config: &'a Value,
    request: &'a MergeRequest<'a>,
}

impl Apply<'_> {
    /// The object after the apply, without managers, and the managers.
    fn run<'m>(
        &self,
        mut managed: Managed<'m>,
        force: bool,
    ) -> Result<(Value, Managed<'m>), ApplyError> {
        let schema = self.request.schema;
        let broken = |faults| ApplyError::Live { object: object_text(self.live), faults };
        let mut own = self.own();
        let last = managed.find(&own).cloned();
        own.time = last.as_ref().and_then(|entry| entry.time.clone());
        managed.put(own.clone());

        let merged = typed::merge(self.live, self.config, schema).map_err(broken)?;
        let mut merged = merged.unwrap_or_else(|| Value::Object(Map::new()));
        take_managed_fields(&mut merged);
        let mut object = match &last {
            // A manager that applies at least the fields of its last apply removes nothing.
            Some(last) if !last.set.is_within(&own.set) => self.prune(&merged, &managed, last),
            _ => merged,
        };
        if !object.is_object() {
            object = Value::Object(Map::new());
        }
        self.settle(&object, &mut managed, &own, force).map_err(|error| match error {
            ApplyRetry::Conflict(conflicts) => ApplyError::Conflict(conflicts),
            ApplyRetry::Faults(faults) => broken(faults),
        })?;
        let changed = !equal_but_managed_fields(self.live, &object);
        self.finish(&mut managed, &own, last.as_ref(), changed);
        Ok((object, managed))
    }

    /// The fields of the configuration, owned by its manager.
    fn own(&self) -> ManagerEntry {
        let MergeRequest { api_version, subresource, reset, schema, .. } = *self.request;
        let set = to_field_set(self.config, schema).recursive_difference(reset);
        ManagerEntry::new(self.request.manager(), Operation::Apply, api_version, subresource, set)
    }

    /// Removes what the manager applied last time, does not apply now, and no other manager owns.
    fn prune(&self, merged: &Value, managed: &Managed<'_>, last: &ManagerEntry) -> Value {
        let schema = self.request.schema;
        let named = |set: &Set| with_named_parents(set, schema);
        let fields = |value: &Value| named(&to_field_set(value, schema));
        let (all, before) = (fields(merged), named(&last.set));

        let mut pruned = remove_items(merged, &before, schema);
        // Added back: fields that any manager owns, this configuration included.
        for owned in owned_by_version(managed, &last.api_version) {
            let kept = fields(&pruned).union(&named(&owned));
            pruned = remove_items(merged, &all.difference(&kept), schema);
        }
        // Added back: fields that the manager did not own last time.
        let gone = all.difference(&fields(&pruned)).intersection(&before);
        remove_items(merged, &gone, schema)
    }

    /// Takes what changed from the other managers, if they release it.
    fn settle(
        &self,
        object: &Value,
        managed: &mut Managed<'_>,
        own: &ManagerEntry,
        force: bool,
    ) -> Result<(), ApplyRetry> {
        let mut changes =
            compare(self.live, object, self.request.schema).map_err(ApplyRetry::Faults)?;
        changes.removed.subtract(&MANAGED_FIELDS);
        let changes = changes.without(self.request.reset);
        let changed = changes.modified.union(&changes.added);
        let others = || managed.entries.iter().filter(|entry| !entry.same_manager(own));
        if !force {
            let conflicts: Vec<(&ManagerEntry, Set)> = others()
                .map(|entry| (entry, entry.set.intersection(&changed)))
                .filter(|(_, set)| !set.is_empty())
                .collect();
            if !conflicts.is_empty() {
                return Err(ApplyRetry::Conflict(Conflicts::new(conflicts)));
            }
        }
        for entry in managed.entries.iter_mut().filter(|entry| !entry.same_manager(own)) {
            entry.edit(|set| set.subtract(&changed) | set.subtract(&changes.removed));
        }
        Ok(())
    }

    /// Strips fields without an owner, and dates the entry if the object changed.
    fn finish(
        &self,
        managed: &mut Managed<'_>,
        own: &ManagerEntry,
        last: Option<&ManagerEntry>,
        changed: bool,
    ) {
        managed.drop_empty();
        for entry in managed.entries.iter_mut().filter(|entry| entry.same_manager(own)) {
            entry.edit(|set| set.subtract(&NEVER_OWNED));
            if let Some(last) = last {
                entry.written_as(last);
            }
            if changed {
                entry.time = self.request.time();
            }
        }
        managed.drop_empty();
    }
}

/// The owned fields of all managers, version by version and `first` first: upstream adds them back
/// in this order, which is visible in lists that lose all their items.
fn owned_by_version(managed: &Managed<'_>, first: &str) -> Vec<Set> {
    let mut versions: BTreeMap<(bool, &str), Set> = BTreeMap::new();
    for entry in &managed.entries {
        let version = entry.api_version.as_str();
        let owned = versions.entry((version != first, version)).or_default();
        *owned = std::mem::take(owned).union(&entry.set);
    }
    versions.into_values().collect()
}

enum ApplyRetry {
    Conflict(Conflicts),
    Faults(Faults),
}

/// `apps/v1, Kind=Deployment`
fn kind_text(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("");
    let version = text("apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", text("kind"))
}

/// `namespace/name; apps/v1, Kind=Deployment`
fn object_text(object: &Value) -> String {
    let text = |name: &str| {
        let field = metadata(object).and_then(|metadata| metadata.get(name));
        field.and_then(Value::as_str).unwrap_or("").to_owned()
    };
    format!("{}/{}; {}", text("namespace"), text("name"), kind_text(object))
}
