//! Parameters of policies: objects of one kind, chosen by a binding.

use std::sync::Arc;

use serde_json::Value;
use store::Range;

use super::super::attributes::Attributes;
use crate::api::Api;
use crate::schemas::served::ServedKind;
use crate::verbs::selector::LabelSelector;

/// `paramKind` of a policy.
#[derive(Debug)]
pub(crate) struct ParamKind {
    group: String,
    version: String,
    kind: String,
}

/// `paramRef` of a binding.
#[derive(Debug)]
pub(crate) struct ParamRef {
    namespace: String,
    choice: Choice,
    absence: ParamNotFound,
}

#[derive(Debug)]
enum Choice {
    Name(String),
    Selected(LabelSelector),
}

/// The result of a binding whose parameter does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParamNotFound {
    Allow,
    Deny,
}

/// Why a policy or a binding has no parameters to evaluate with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParamError {
    #[error("failed to find resource referenced by paramKind: '{group_version}, Kind={kind}'")]
    NoKind { group_version: String, kind: String },
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NamespaceOfClusterScoped,
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
}

impl ParamKind {
    pub(super) fn of(kind: &Value) -> Option<Self> {
        let version = kind["apiVersion"].as_str()?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind["kind"].as_str()?.to_owned(),
        })
    }

    pub(super) fn resolve(&self, api: &Api) -> Result<Arc<ServedKind>, ParamError> {
        let Self { group, version, kind } = self;
        let catalog = api.catalog.load();
        catalog.find_kind(group, version, kind).cloned().ok_or_else(|| {
            let group = if group.is_empty() { String::new() } else { format!("{group}/") };
            ParamError::NoKind { group_version: format!("{group}{version}"), kind: kind.clone() }
        })
    }
}

impl ParamRef {
    pub(super) fn of(reference: &Value) -> Option<Self> {
        let fields = reference.as_object()?;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or("");
        let choice = match text("name") {
            "" => Choice::Selected(LabelSelector::of(&reference["selector"])),
            name => Choice::Name(name.to_owned()),
        };
        let absence = match text("parameterNotFoundAction") {
            "Allow" => ParamNotFound::Allow,
            _ => ParamNotFound::Deny,
        };
        Some(Self { namespace: text("namespace").to_owned(), choice, absence })
    }
}

/// The parameters to evaluate with, one after the other; one that is nothing if the policy
/// or the binding takes none.
pub(super) fn collect(
    attributes: &Attributes<'_, '_>,
    kind: Option<&Arc<ServedKind>>,
    reference: Option<&ParamRef>,
) -> Result<Vec<Option<Value>>, ParamError> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![None]) };
    let namespace = match (kind.namespaced, reference.namespace.as_str()) {
        (false, "") => "",
        (false, _) => return Err(ParamError::NamespaceOfClusterScoped),
        (true, "") if attributes.namespace.is_empty() => return Err(ParamError::NoNamespace),
        (true, "") => &attributes.namespace,
        (true, given) => given,
    };
    let store = &attributes.api().store;
    let found: Vec<Option<Value>> = match &reference.choice {
        Choice::Name(name) => {
            let entry = store.get(&kind.table, &kind.key(namespace, name));
            entry.iter().map(|entry| Some(kind.live(entry))).collect()
        }
        Choice::Selected(selector) => {
            let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            let page = store.list(&kind.table, Range { prefix: &prefix, ..Range::default() });
            let entries = page.map(|page| page.entries).unwrap_or_default();
            let wanted =
                entries.iter().filter(|entry| selector.matches(|key| entry.item.label(key)));
            wanted.map(|entry| Some(kind.live(entry))).collect()
        }
    };
    if found.is_empty() && reference.absence == ParamNotFound::Deny {
        return Err(ParamError::NotFound);
    }
    Ok(found)
}
