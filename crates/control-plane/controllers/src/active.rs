//! The namespaces that are not being deleted, for those who put something into each.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::reconcile::{ObjectChange, ObjectState};

#[derive(Debug, Default)]
pub(crate) struct ActiveNamespaces(BTreeSet<Arc<str>>);

impl ActiveNamespaces {
    /// The namespaces to check again because of the core object `watched`, given by
    /// plural and name.
    pub(crate) fn keys(&mut self, touch: &ObjectChange, watched: (&str, &str)) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state, .. } if kind.is("", "namespaces") => {
                match state {
                    ObjectState::Live if self.0.insert(Arc::clone(name)) => vec![Arc::clone(name)],
                    ObjectState::Live => vec![],
                    ObjectState::Deleting | ObjectState::Gone => {
                        self.0.remove(name);
                        vec![]
                    }
                }
            }
            ObjectChange::Object { kind, namespace, name, .. }
                if kind.is("", watched.0) && &**name == watched.1 && self.0.contains(namespace) =>
            {
                vec![Arc::clone(namespace)]
            }
            ObjectChange::Missed(kind) if kind.is("", "namespaces") || kind.is("", watched.0) => {
                self.0.iter().cloned().collect()
            }
            ObjectChange::Object { .. } | ObjectChange::Missed(_) => vec![],
        }
    }
}

/// Whether a write failed because its namespace is gone or going, so that no retry helps.
/// The namespace's own touches come before or after; both orders end here.
pub(crate) fn refused_by_namespace(failure: &kube::Error) -> bool {
    let kube::Error::Api(status) = failure else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let terminating =
        causes.map(|cause| &*cause.reason).any(|cause| cause == "NamespaceTerminating");
    status.code == 404 || (status.code == 403 && terminating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{core_kind, touch};

    #[test]
    fn a_namespace_is_checked_when_it_appears_and_when_its_object_changes() {
        let mut active = ActiveNamespaces::default();
        let watched = ("configmaps", "ca");
        let mut keys = |touch: ObjectChange| active.keys(&touch, watched).len();
        assert_eq!(keys(touch("configmaps", "n", "ca", ObjectState::Gone)), 0);
        assert_eq!(keys(touch("namespaces", "", "n", ObjectState::Live)), 1);
        assert_eq!(keys(touch("namespaces", "", "n", ObjectState::Live)), 0);
        assert_eq!(keys(touch("configmaps", "n", "ca", ObjectState::Gone)), 1);
        assert_eq!(keys(touch("configmaps", "n", "other", ObjectState::Gone)), 0);
        assert_eq!(keys(touch("secrets", "n", "ca", ObjectState::Gone)), 0);
        assert_eq!(keys(ObjectChange::Missed(core_kind("configmaps"))), 1);
        assert_eq!(keys(ObjectChange::Missed(core_kind("secrets"))), 0);
        assert_eq!(keys(touch("namespaces", "", "n", ObjectState::Deleting)), 0);
        assert_eq!(keys(touch("configmaps", "n", "ca", ObjectState::Gone)), 0);
    }
}
