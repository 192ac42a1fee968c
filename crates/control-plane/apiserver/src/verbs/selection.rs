//! Selects the objects of a list, a watch or a deletion of a collection.
//!
//! Selectors are evaluated on the object in the requested version. A conversion webhook may change
//! every field but the identity of an object, labels included, so entries of such a kind are converted
//! before they are matched; only their key is compared before that.

use crate::api::{Api, ObjectEntry};
use crate::http::options::ListOptions;
use crate::schemas::conversion;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};
use crate::verbs::selector::{FieldSelector, LabelSelector};

/// The namespace and the selectors of one request.
#[derive(Debug)]
pub(crate) struct Selection {
    /// `namespace/`, or empty for all.
    pub(crate) prefix: String,
    labels: LabelSelector,
    /// Terms that the key of an object answers: its name and namespace.
    key_fields: FieldSelector,
    /// Terms that need the object itself.
    object_fields: FieldSelector,
    /// The selectors read content that a conversion webhook decides.
    converts: bool,
}

impl Selection {
    pub(crate) fn new(served: &ServedKind, options: &ListOptions) -> ApiResult<Self> {
        for term in &options.fields.0 {
            if !served.selects(&term.field) {
                return Err(ApiError::bad_request(cannot_select(served, &term.field)));
            }
        }
        let is_key = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let (key_fields, object_fields): (Vec<_>, Vec<_>) =
            options.fields.0.iter().cloned().partition(|term| is_key(&term.field));
        let reads_object = !options.labels.is_empty() || !object_fields.is_empty();
        Ok(Self {
            prefix: String::new(),
            labels: options.labels.clone(),
            key_fields: FieldSelector(key_fields),
            object_fields: FieldSelector(object_fields),
            converts: reads_object && conversion::is_needed(served),
        })
    }

    pub(crate) fn within(mut self, namespace: &str) -> Self {
        if !namespace.is_empty() {
            self.prefix = format!("{namespace}/");
        }
        self
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.key_fields.is_empty() && self.object_fields.is_empty()
    }

    /// Whether entries have to be converted before [`Selection::matches`] can judge them.
    pub(crate) fn converts(&self) -> bool {
        self.converts
    }

    /// The entries that match, in their order. Those of a kind with a conversion webhook come back
    /// converted if the selectors made that necessary.
    pub(crate) async fn select(
        &self,
        api: &Api,
        served: &ServedKind,
        mut entries: Vec<ObjectEntry>,
    ) -> ApiResult<Vec<ObjectEntry>> {
        if self.converts {
            entries.retain(|entry| self.matches_key(&entry.name));
            entries = conversion::shown(api, served, entries).await?;
        }
        entries.retain(|entry| self.matches(served, entry));
        Ok(entries)
    }

    /// Whether an entry in the requested version matches.
    pub(crate) fn matches(&self, served: &ServedKind, entry: &ObjectEntry) -> bool {
        if !self.matches_key(&entry.name) || !self.labels.matches(|key| entry.item.label(key)) {
            return false;
        }
        if self.object_fields.is_empty() {
            return true;
        }
        let object = served.live(entry);
        self.object_fields.matches(|field| served.field(&object, field))
    }

    /// Whether an object of this key can match at all.
    pub(crate) fn matches_key(&self, key: &str) -> bool {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        key.starts_with(&self.prefix)
            && self.key_fields.matches(|field| {
                if field == "metadata.name" { name.to_owned() } else { namespace.to_owned() }
            })
    }
}

/// Why a list cannot be narrowed by this field.
fn cannot_select(served: &ServedKind, field: &str) -> String {
    match served.row() {
        Some(row) if row.fields.is_empty() => format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        _ => format!("field label not supported: {field}"),
    }
}
