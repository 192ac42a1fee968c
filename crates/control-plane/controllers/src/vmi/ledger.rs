//! The placed instances: the few facts that placing others needs, kept so that not every placement
//! reads all instances.
//!
//! It is filled from one list and updated from every instance that changes. A place
//! is taken here before it is written: two placements at once cannot both have the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::placement::{self, ScheduledInstance, SchedulingError, SchedulingRequest, VolumeReach};
use super::plan::{VmiStage, stage};
use super::requests::requests;
use crate::key::ObjectKey;
use crate::object::{labels, list, namespace, text};

#[derive(Debug, Default)]
pub(crate) struct CapacityLedger(Mutex<CapacitySnapshot>);

#[derive(Debug, Default)]
struct CapacitySnapshot {
    filled: bool,
    tenants: BTreeMap<ObjectKey, ScheduledInstance>,
    /// Places that are taken, but not written: their pods may still be refused.
    unconfirmed: BTreeSet<ObjectKey>,
}

impl CapacityLedger {
    pub(crate) fn is_filled(&self) -> bool {
        self.lock().filled
    }

    /// Adds all existing instances. Entries that were noted before are newer.
    pub(crate) fn fill(&self, vmis: &[Value]) {
        let mut places = self.lock();
        for vmi in vmis {
            if let Some(tenant) = placed(vmi) {
                places.tenants.entry(ObjectKey::of(vmi)).or_insert(tenant);
            }
        }
        places.filled = true;
    }

    /// Forgets those that are not among all instances there are.
    pub(crate) fn keep_only(&self, vmis: &[Value]) {
        let alive: BTreeSet<ObjectKey> = vmis.iter().map(ObjectKey::of).collect();
        let mut places = self.lock();
        places.tenants.retain(|key, _| alive.contains(key));
        places.unconfirmed.retain(|key| alive.contains(key));
    }

    /// Takes note of an instance that changed.
    pub(crate) fn note(&self, vmi: &Value) {
        let key = ObjectKey::of(vmi);
        match placed(vmi) {
            Some(tenant) => self.lock().tenants.insert(key, tenant),
            None => self.lock().tenants.remove(&key),
        };
    }

    pub(crate) fn remove(&self, key: &ObjectKey) {
        let mut places = self.lock();
        places.tenants.remove(key);
        places.unconfirmed.remove(key);
    }

    /// The instance keeps the place that it took.
    pub(crate) fn confirm(&self, key: &ObjectKey) {
        self.lock().unconfirmed.remove(key);
    }

    /// Whether an instance other than `key` has a place that it may give back.
    pub(crate) fn has_unconfirmed(&self, key: &ObjectKey) -> bool {
        self.lock().unconfirmed.iter().any(|own| own != key)
    }

    pub(crate) fn on_node(&self, node: &str) -> Vec<ObjectKey> {
        let places = self.lock();
        let here = places.tenants.iter().filter(|(_, tenant)| tenant.node == node);
        here.map(|(key, _)| key.clone()).collect()
    }

    /// A node for the instance, without taking the place.
    pub(crate) fn choose(
        &self,
        vmi: &Value,
        reach: &[VolumeReach],
        nodes: &[Value],
    ) -> Result<String, SchedulingError> {
        self.lock().choose(vmi, reach, nodes).map(str::to_owned)
    }

    /// A node for the instance, which has that place from now on.
    pub(crate) fn take(
        &self,
        vmi: &Value,
        reach: &[VolumeReach],
        nodes: &[Value],
    ) -> Result<String, SchedulingError> {
        let mut places = self.lock();
        let node = places.choose(vmi, reach, nodes)?;
        let key = ObjectKey::of(vmi);
        places.tenants.insert(key.clone(), tenant(vmi, node));
        places.unconfirmed.insert(key);
        Ok(node.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, CapacitySnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CapacitySnapshot {
    fn choose<'n>(
        &self,
        vmi: &Value,
        reach: &[VolumeReach],
        nodes: &'n [Value],
    ) -> Result<&'n str, SchedulingError> {
        let key = ObjectKey::of(vmi);
        let others: Vec<&ScheduledInstance> =
            self.tenants.iter().filter(|(own, _)| **own != key).map(|(_, own)| own).collect();
        let requests = requests(vmi);
        let wish = SchedulingRequest {
            namespace: namespace(vmi),
            labels: labels(vmi),
            spec: &vmi["spec"],
            requests: &requests,
            reach,
        };
        placement::choose(&wish, nodes, &others)
    }
}

/// The resources of an instance, if it has a node.
fn placed(vmi: &Value) -> Option<ScheduledInstance> {
    let node = text(vmi, "/status/nodeName");
    (stage(vmi) == VmiStage::Placed && !node.is_empty()).then(|| tenant(vmi, node))
}

fn tenant(vmi: &Value, node: &str) -> ScheduledInstance {
    let terms = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    ScheduledInstance {
        namespace: namespace(vmi).to_owned(),
        labels: labels(vmi).clone(),
        node: node.to_owned(),
        requests: requests(vmi),
        repels: list(vmi, terms).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(name: &str, phase: &str, node: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n"},
            "spec": {"domain": {"memory": {"guest": "1Gi"}}},
            "status": {"phase": phase, "nodeName": node}})
    }

    fn node() -> Value {
        json!({"metadata": {"name": "one"}, "status": {"allocatable": {"cpu": "4", "memory": "2Gi"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    #[test]
    fn a_place_is_taken_until_its_holder_is_over() {
        let (ledger, nodes) = (CapacityLedger::default(), [node()]);
        let take = |name: &str| ledger.take(&vmi(name, "Pending", ""), &[], &nodes);
        assert_eq!(take("a").as_deref(), Ok("one"));
        assert_eq!(take("a").as_deref(), Ok("one"), "its own place is not in its way");
        assert!(take("b").is_err());
        assert_eq!(ledger.on_node("one").len(), 1);
        ledger.note(&vmi("a", "Succeeded", "one"));
        assert_eq!(take("b").as_deref(), Ok("one"));
    }

    #[test]
    fn noted_instances_are_newer_than_listed_ones() {
        let (ledger, nodes) = (CapacityLedger::default(), [node()]);
        ledger.note(&vmi("a", "Running", "one"));
        ledger.fill(&[vmi("a", "Scheduled", "two"), vmi("b", "Failed", "one")]);
        assert!(ledger.is_filled() && ledger.on_node("one").len() == 1);
        ledger.keep_only(&[vmi("a", "Running", "one")]);
        assert_eq!(ledger.on_node("one").len(), 1);
        assert!(ledger.choose(&vmi("c", "Pending", ""), &[], &nodes).is_err());
        ledger.keep_only(&[]);
        assert!(ledger.choose(&vmi("c", "Pending", ""), &[], &nodes).is_ok());
    }
}
