//! The event mapper of instances: which instances, pods and nodes are reconciled after a change of
//! an object. It also stores the instances that wait for free resources or for a quota.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::launcher;
use crate::key::{Dependents, ObjectKey};
use crate::reconcile::{EventMapper, ObjectChange, ObjectState};
use crate::resource::{CLAIMS, DATA_VOLUMES, LIMIT_RANGES, NODES, PODS, QUOTAS, VMIS};

/// The object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VmiKey {
    Instance(ObjectKey),
    /// A pod that is being deleted, or is gone.
    Pod(ObjectKey),
    /// A node that may be lost, with all instances on it.
    Node(Arc<str>),
    /// All instances: some may have been deleted while events were missed.
    Recount,
}

/// Instances that wait for free resources or a quota; shared with the scheduler, which adds them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitingInstances {
    pub(crate) storage: Dependents,
    room: Arc<Mutex<BTreeSet<ObjectKey>>>,
    /// Those whose pods were refused, by a quota for instance.
    refused: Arc<Mutex<BTreeSet<ObjectKey>>>,
}

impl WaitingInstances {
    pub(crate) fn wait_for_resources(&self, key: &ObjectKey) {
        lock(&self.room).insert(key.clone());
    }

    pub(crate) fn remove_scheduled(&self, key: &ObjectKey) {
        lock(&self.room).remove(key);
    }

    pub(crate) fn wait_for_quota(&self, key: &ObjectKey) {
        lock(&self.refused).insert(key.clone());
    }

    pub(crate) fn accepted(&self, key: &ObjectKey) {
        lock(&self.refused).remove(key);
    }

    /// The instances of a namespace whose pods were refused.
    fn refused_in(&self, namespace: &str) -> Vec<VmiKey> {
        let refused = lock(&self.refused);
        let own = refused.iter().filter(|key| &*key.namespace == namespace);
        own.cloned().map(VmiKey::Instance).collect()
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.remove_scheduled(key);
        self.accepted(key);
        self.storage.forget(key);
    }

    fn for_room(&self) -> Vec<VmiKey> {
        lock(&self.room).iter().cloned().map(VmiKey::Instance).collect()
    }
}

fn lock(keys: &Mutex<BTreeSet<ObjectKey>>) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventMapper for WaitingInstances {
    type Key = VmiKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<VmiKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state } => {
                let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                if VMIS.is(kind) {
                    let mut keys =
                        if *state == ObjectState::Gone { self.for_room() } else { Vec::new() };
                    keys.push(VmiKey::Instance(key));
                    keys
                } else if CLAIMS.is(kind) || DATA_VOLUMES.is(kind) {
                    self.storage.of(&key).into_iter().map(VmiKey::Instance).collect()
                } else if QUOTAS.is(kind) || LIMIT_RANGES.is(kind) {
                    self.refused_in(namespace)
                } else if PODS.is(kind) {
                    self.pod(&key, *state)
                } else if NODES.is(kind) {
                    let mut keys = self.for_room();
                    keys.push(VmiKey::Node(Arc::clone(name)));
                    keys
                } else {
                    Vec::new()
                }
            }
            ObjectChange::Missed(kind) => {
                let concerns = [VMIS, CLAIMS, DATA_VOLUMES, PODS, NODES];
                if !concerns.iter().any(|own| own.is(kind)) {
                    return Vec::new();
                }
                let waiting = self.storage.all().into_iter().map(VmiKey::Instance);
                let recount = VMIS.is(kind).then_some(VmiKey::Recount);
                recount.into_iter().chain(waiting).chain(self.for_room()).collect()
            }
        }
    }
}

impl WaitingInstances {
    /// A pod that changes may have freed resources; one that is deleted ends its instance.
    fn pod(&self, pod: &ObjectKey, state: ObjectState) -> Vec<VmiKey> {
        if launcher::instance_of(&pod.name).is_none() {
            return Vec::new();
        }
        let mut keys = self.for_room();
        keys.extend(match state {
            ObjectState::Live => None,
            ObjectState::Deleting | ObjectState::Gone => Some(VmiKey::Pod(pod.clone())),
        });
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::touch;

    #[test]
    fn a_waiting_instance_is_requeued_by_its_dependency() {
        let mut waiting = WaitingInstances::default();
        let key = |name: &str| ObjectKey::new("n", name);
        waiting.storage.set(&key("a"), [key("c")].into());
        waiting.wait_for_resources(&key("b"));
        let mut names = |touch: ObjectChange| -> Vec<String> {
            let show = |work: VmiKey| match work {
                VmiKey::Instance(key) => key.name.to_string(),
                VmiKey::Pod(key) => format!("pod {}", key.name),
                VmiKey::Node(name) => format!("node {name}"),
                VmiKey::Recount => "all".to_owned(),
            };
            waiting.keys(&touch).into_iter().map(show).collect()
        };
        let claims = "persistentvolumeclaims";
        assert_eq!(names(touch(claims, "n", "c", ObjectState::Live)), ["a"]);
        assert!(names(touch(claims, "m", "c", ObjectState::Live)).is_empty());
        assert_eq!(names(touch("nodes", "", "one", ObjectState::Live)), ["b", "node one"]);
        assert_eq!(names(touch("pods", "n", "virt-launcher-v-abcde", ObjectState::Live)), ["b"]);
        let pod = "virt-launcher-v-abcde";
        assert_eq!(
            names(touch("pods", "n", pod, ObjectState::Deleting)),
            ["b", &format!("pod {pod}")]
        );
        assert_eq!(names(touch("pods", "n", pod, ObjectState::Gone)), ["b", &format!("pod {pod}")]);
        assert!(names(touch("pods", "n", "other", ObjectState::Gone)).is_empty());
    }

    #[test]
    fn a_changed_quota_wakes_the_refused_instances_of_its_namespace() {
        let mut waiting = WaitingInstances::default();
        let key = ObjectKey::new("n", "v");
        waiting.wait_for_quota(&key);
        let quota = |namespace: &str| touch("resourcequotas", namespace, "q", ObjectState::Live);
        assert_eq!(waiting.keys(&quota("n")), [VmiKey::Instance(key.clone())]);
        assert!(waiting.keys(&quota("other")).is_empty());
        waiting.accepted(&key);
        assert!(waiting.keys(&quota("n")).is_empty());
    }
}
