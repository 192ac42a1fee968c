//! One kind at one version, as this server serves it right now.
//!
//! Built-in kinds come from the table in crate `kinds`, custom ones from
//! CustomResourceDefinitions. Everything above this module treats them alike; the
//! differences (how a body is cleaned, judged and shown) end here.

mod view;

use std::sync::Arc;

use kinds::{DefaultPropagation, NameRule, Resource, Scope};
use schema::{FieldError, Schema};
use serde_json::Value;
use store::{Revision, StoredVersion};
use types::Filling;

use crate::schemas::crd;
use crate::schemas::custom::Custom;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::item::Item;
use crate::verbs::object;

/// A served kind.
#[derive(Debug)]
pub(crate) struct ServedKind {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub plural: Arc<str>,
    pub singular: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub short_names: Box<[Box<str>]>,
    pub categories: Box<[Box<str>]>,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    /// The table of the store that holds its objects.
    pub table: Arc<str>,
    pub subresources: Box<[Subresource]>,
    pub origin: KindOrigin,
}

/// Where a kind comes from.
#[derive(Debug)]
pub(crate) enum KindOrigin {
    BuiltIn(&'static Resource),
    Custom(Box<Custom>),
}

/// A subresource as discovery lists it.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub name: &'static str,
    /// Group, version and kind of its bodies, where they are not the parent's.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

/// Through which door an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Main,
    Status,
    /// `/finalize` of a namespace: may change what the main door keeps shut.
    Finalize,
    /// `/approval` of a certificate signing request: only its verdict.
    Approval,
    /// `/binding` of a pod: where it runs.
    Binding,
}

impl ServedKind {
    pub(crate) fn built_in(row: &'static Resource) -> Self {
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        Self {
            group: row.group.into(),
            version: row.version.into(),
            plural: row.plural.into(),
            singular: row.singular.into(),
            kind: row.kind.into(),
            list_kind: format!("{}List", row.kind).into(),
            short_names: boxed(row.short_names),
            categories: boxed(row.categories),
            namespaced: row.scope == Scope::Namespaced,
            verbs: row.verbs,
            table: row.table.into(),
            subresources: row
                .subresources
                .iter()
                .map(|sub| Subresource { name: sub.name, kind: sub.kind, verbs: sub.verbs })
                .collect(),
            origin: KindOrigin::BuiltIn(row),
        }
    }

    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `configmaps` or `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        crate::status::qualified(&self.plural, &self.group)
    }

    /// For errors that speak of the resource.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject { group: &self.group, resource: &self.plural, name }
    }

    /// For errors that speak of the kind.
    pub(crate) fn kind_subject<'a>(&'a self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject { group: &self.group, resource: &self.kind, name }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.origin, KindOrigin::Custom(_))
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            KindOrigin::Custom(custom) => Some(custom),
            KindOrigin::BuiltIn(_) => None,
        }
    }

    pub(crate) fn row(&self) -> Option<&'static Resource> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => Some(row),
            KindOrigin::Custom(_) => None,
        }
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The key of an object in its table.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { object::key(namespace, name) } else { name.to_owned() }
    }

    pub(crate) fn name_rule(&self) -> NameRule {
        self.row().map_or(NameRule::Subdomain, |row| row.strategy.name)
    }

    /// The schema of the object; used by apply and strategic merge.
    pub(crate) fn schema(&self) -> ApiResult<Schema> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => types::schema(row.group, row.version, row.kind)
                .ok_or_else(|| ApiError::internal(format!("no schema for {}", row.kind))),
            KindOrigin::Custom(custom) => Ok(custom.managed_schema().clone()),
        }
    }

    /// Whether objects and lists are where the schema has them. Built-in types were brought into
    /// shape when they were decoded.
    pub(crate) fn has_shape(&self, object: &Value) -> bool {
        match &self.origin {
            KindOrigin::BuiltIn(_) => true,
            KindOrigin::Custom(custom) => schema::has_shape(object, custom.schema()),
        }
    }

    /// Brings a decoded body into shape: types checked, unknown fields dropped.
    /// Returns the paths of what was dropped.
    pub(crate) fn clean(&self, object: &mut Value, filling: Filling) -> ApiResult<Vec<String>> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                let kind = types::Kind::find(row.group, row.version, row.kind)
                    .ok_or_else(|| ApiError::internal(format!("no table for {}", row.kind)))?;
                let normalized = match filling {
                    Filling::Whole => kind.normalize(object),
                    Filling::Sparse => kind.normalize_applied(object),
                };
                let mut unknown = normalized.map_err(|error| {
                    ApiError::bad_request(format!(
                        "{} in version {:?} cannot be handled as a {}: {}",
                        self.kind,
                        &*self.version,
                        self.kind,
                        base::Chain(&error)
                    ))
                })?;
                if &*self.table == crd::TABLE {
                    unknown.extend(crd::unknown_keywords(object));
                }
                Ok(unknown)
            }
            KindOrigin::Custom(custom) => custom.clean(object, schema::Malformed::Refuse),
        }
    }

    pub(crate) fn default(&self, object: &mut Value) {
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                (row.strategy.default)(object);
                if matches!(row.kind, "RoleBinding" | "ClusterRoleBinding") {
                    auth::rbac::validate::default_binding(object);
                }
            }
            KindOrigin::Custom(custom) => custom.default(object),
        }
    }

    pub(crate) fn prepare_create(&self, object: &mut Value) {
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                (row.strategy.prepare_create)(object);
                if self.has_status() && object.get("status").is_none() {
                    // A typed object has a status even when nothing is known yet. An object that
                    // passed `clean` before cannot fail here.
                    let _ = self.clean(object, Filling::Whole);
                }
            }
            KindOrigin::Custom(custom) => custom.prepare_create(object),
        }
        if self.counts_generations() {
            object::set_meta(object, "generation", Some(1.into()));
        } else {
            object::set_meta(object, "generation", None);
        }
    }

    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value, endpoint: Endpoint) {
        match (&self.origin, endpoint) {
            (KindOrigin::BuiltIn(row), Endpoint::Main) => (row.strategy.prepare_update)(new, old),
            (KindOrigin::BuiltIn(row), Endpoint::Status) => (row.strategy.prepare_status)(new, old),
            (_, Endpoint::Finalize | Endpoint::Binding) => {}
            (_, Endpoint::Approval) => kinds::prepare_approval(new, old),
            (KindOrigin::Custom(custom), _) => custom.prepare_update(new, old, endpoint),
        }
        object::copy_meta(new, old, "generation");
        // Placing a pod is not a change of what its owner wants; upstream does not count it.
        if endpoint != Endpoint::Binding
            && self.counts_generations()
            && object::content_differs(new, old, self.has_status())
        {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object::set_meta(new, "generation", Some(generation.into()));
        }
    }

    pub(crate) fn default_propagation(&self) -> DefaultPropagation {
        self.row().map_or(DefaultPropagation::Background, |row| row.strategy.default_propagation)
    }

    fn counts_generations(&self) -> bool {
        self.row().is_none_or(|row| row.strategy.generation)
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let scope = if self.namespaced { Scope::Namespaced } else { Scope::Cluster };
        kinds::validate_metadata_create(object, scope, self.name_rule(), &mut errors);
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                (row.strategy.validate)(object, &mut errors);
                errors.extend(rights(row.kind, object, None));
            }
            KindOrigin::Custom(custom) => {
                errors.extend(custom.validate(object, None, Endpoint::Main))
            }
        }
        errors
    }

    pub(crate) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        endpoint: Endpoint,
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        kinds::validate_metadata_update(new, old, &mut errors);
        match (&self.origin, endpoint) {
            (KindOrigin::BuiltIn(row), Endpoint::Main) => {
                (row.strategy.validate_update)(new, old, &mut errors);
                errors.extend(rights(row.kind, new, Some(old)));
            }
            (KindOrigin::BuiltIn(row), Endpoint::Status) => {
                (row.strategy.validate_status)(new, old, &mut errors);
            }
            (_, Endpoint::Finalize | Endpoint::Binding) => {}
            (_, Endpoint::Approval) => kinds::validate_approval(new, old, &mut errors),
            (KindOrigin::Custom(custom), _) => {
                errors.extend(custom.validate(new, Some(old), endpoint))
            }
        }
        errors
    }

    pub(crate) fn warnings(&self, object: &Value) -> Vec<String> {
        match &self.origin {
            KindOrigin::BuiltIn(row) => (row.strategy.warnings)(object),
            KindOrigin::Custom(custom) => custom.deprecation(self).into_iter().collect(),
        }
    }

    /// A stored object as a tree of this version.
    pub(crate) fn live(&self, entry: &StoredVersion<Item>) -> Value {
        let mut object = entry.item.to_value();
        self.read(&mut object, entry.revision);
        object
    }

    /// Whether the stored bytes are just what clients of this version read.
    pub(crate) fn reads_verbatim(&self, revision: Revision) -> bool {
        match &self.origin {
            KindOrigin::BuiltIn(row) => row.conversion.is_none(),
            KindOrigin::Custom(custom) => custom.reads_verbatim(revision),
        }
    }

    /// Turns a stored tree into this version, with defaults that came later.
    pub(crate) fn read(&self, object: &mut Value, revision: Revision) {
        if self.reads_verbatim(revision) {
            return;
        }
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                if let Some(conversion) = &row.conversion {
                    (conversion.from_storage)(object);
                }
            }
            KindOrigin::Custom(custom) => {
                object["apiVersion"] = self.api_version().into();
                custom.refresh(object);
            }
        }
    }

    /// Turns a tree of this version into the stored one.
    pub(crate) fn to_storage(&self, object: &mut Value) {
        match &self.origin {
            KindOrigin::BuiltIn(row) => {
                if let Some(conversion) = &row.conversion {
                    (conversion.to_storage)(object);
                }
            }
            KindOrigin::Custom(custom) => {
                object["apiVersion"] = format!("{}/{}", self.group, custom.storage_version).into();
            }
        }
    }
}

/// Roles and bindings are judged by the crate that enforces them.
fn rights(kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    use auth::rbac::validate;
    match kind {
        "Role" => validate::validate_role(new, old),
        "ClusterRole" => validate::validate_cluster_role(new, old),
        "RoleBinding" => validate::validate_role_binding(new, old),
        "ClusterRoleBinding" => validate::validate_cluster_role_binding(new, old),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
