//! How far the deletion of a namespace has come, and what it says about itself: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use client::{Catalog, CatalogKind, Meta, Verb};
use std::sync::Arc;

/// The finalizer in `spec.finalizers` that this controller takes off.
pub(crate) const FINALIZER: &str = "kubernetes";

/// The objects of one kind that are left in the namespace after all of it was deleted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct RemainingObjects {
    pub(crate) resource: String,
    pub(crate) group: String,
    pub(crate) count: usize,
    pub(crate) finalizers: BTreeMap<String, usize>,
}

/// The result of one pass over the namespace.
#[derive(Debug, Default)]
pub(crate) struct DeletionPass {
    /// Group versions that could not be discovered.
    pub(crate) undiscovered: Vec<String>,
    pub(crate) failures: Vec<String>,
    pub(crate) left: Vec<RemainingObjects>,
}

impl DeletionPass {
    pub(crate) fn is_clean(&self) -> bool {
        self.undiscovered.is_empty() && self.failures.is_empty() && self.left.is_empty()
    }
}

/// The kinds to empty, in steps: the next step begins when the one before has left nothing.
/// Pods go first, so that what they use outlives them.
pub(crate) fn steps(catalog: &Catalog) -> [Vec<Arc<CatalogKind>>; 2] {
    let deletable = |kind: &&Arc<CatalogKind>| kind.namespaced && kind.can(Verb::Delete);
    let (pods, rest) = catalog
        .kinds()
        .iter()
        .filter(deletable)
        .map(Arc::clone)
        .partition(|kind| kind.is("", "pods"));
    [pods, rest]
}

/// Adds the remaining objects of `kind`, if any. Objects without finalizers should be gone.
pub(crate) fn left(kind: &CatalogKind, namespace: &str, objects: &[Meta], pass: &mut DeletionPass) {
    if objects.is_empty() {
        return;
    }
    let mut finalizers = BTreeMap::new();
    for finalizer in objects.iter().flat_map(|object| &object.finalizers) {
        *finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    // Pods may linger for their grace period; anything else without a finalizer is odd.
    if finalizers.is_empty() && !kind.is("", "pods") {
        pass.failures.push(format!(
            "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
            kind.group, kind.version, kind.plural
        ));
    }
    pass.left.push(RemainingObjects {
        resource: kind.plural.to_string(),
        group: kind.group.to_string(),
        count: objects.len(),
        finalizers,
    });
}

/// Whether the namespace is ours to finish.
pub(crate) fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

pub(crate) fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|own| own == FINALIZER))
}

/// The namespace as it is sent to `/finalize`.
pub(crate) fn without_finalizer(mut namespace: Namespace) -> Namespace {
    if let Some(spec) = &mut namespace.spec
        && let Some(finalizers) = &mut spec.finalizers
    {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    namespace
}

/// Writes what the pass found into the status; true if that changed anything.
pub(crate) fn update_conditions(
    namespace: &mut Namespace,
    pass: &DeletionPass,
    now: &Time,
) -> bool {
    let status = namespace.status.get_or_insert_default();
    let old = status.conditions.get_or_insert_default();
    let mut changed = false;
    for new in conditions(pass, now) {
        match old.iter_mut().find(|old| old.type_ == new.type_) {
            None => {
                old.push(new);
                changed = true;
            }
            Some(old)
                if (&old.status, &old.reason, &old.message)
                    == (&new.status, &new.reason, &new.message) => {}
            Some(old) => {
                // The time is that of the last change between true and false.
                let since = if old.status == new.status {
                    old.last_transition_time.clone()
                } else {
                    new.last_transition_time.clone()
                };
                *old = NamespaceCondition { last_transition_time: since, ..new };
                changed = true;
            }
        }
    }
    changed
}

fn conditions(pass: &DeletionPass, now: &Time) -> [NamespaceCondition; 5] {
    let condition = |kind: &str, bad: Option<(&str, String)>, reason: &str, message: &str| {
        let is_bad = bad.is_some();
        let (reason, message) = bad.unwrap_or((reason, message.to_owned()));
        NamespaceCondition {
            type_: kind.to_owned(),
            status: if is_bad { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(now.clone()),
        }
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            undiscovered(pass).map(|text| ("DiscoveryFailed", text)),
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        // Discovery gives groups and versions apart, so that there is nothing to parse.
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        condition(
            "NamespaceDeletionContentFailure",
            failed(pass).map(|text| ("ContentDeletionFailed", text)),
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        condition(
            "NamespaceContentRemaining",
            remaining(pass).map(|text| ("SomeResourcesRemain", text)),
            "ContentRemoved",
            "All content successfully removed",
        ),
        condition(
            "NamespaceFinalizersRemaining",
            finalizers(pass).map(|text| ("SomeFinalizersRemain", text)),
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]
}

fn undiscovered(pass: &DeletionPass) -> Option<String> {
    let groups = &pass.undiscovered;
    let each: Vec<String> = groups
        .iter()
        .map(|group| format!("{group}: stale GroupVersion discovery: {group}"))
        .collect();
    (!groups.is_empty()).then(|| {
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list \
             of server APIs: {}",
            groups.len(),
            each.join(", ")
        )
    })
}

fn failed(pass: &DeletionPass) -> Option<String> {
    let mut failures = pass.failures.clone();
    failures.sort();
    (!failures.is_empty()).then(|| {
        let (count, all) = (failures.len(), failures.join(", "));
        format!("Failed to delete all resource types, {count} remaining: {all}")
    })
}

fn remaining(pass: &DeletionPass) -> Option<String> {
    let mut each: Vec<String> = pass
        .left
        .iter()
        .map(|left| {
            format!("{}.{} has {} resource instances", left.resource, left.group, left.count)
        })
        .collect();
    each.sort();
    (!each.is_empty()).then(|| format!("Some resources are remaining: {}", each.join(", ")))
}

fn finalizers(pass: &DeletionPass) -> Option<String> {
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for (finalizer, count) in pass.left.iter().flat_map(|left| &left.finalizers) {
        *totals.entry(finalizer).or_default() += count;
    }
    let each: Vec<String> = totals
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    (!each.is_empty()).then(|| {
        format!("Some content in the namespace has finalizers remaining: {}", each.join(", "))
    })
}

#[cfg(test)]
mod tests;
