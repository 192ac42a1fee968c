//! Add-ons report whether their feature exists here.

use base::clock;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{is_merged, name, namespace, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::fields;
use crate::resource::{Objects, Resource, is_refused};

const ADDONS: Resource = Resource::new("harvesterhci.io", "v1beta1", "addons");

/// Every add-on that changes.
#[derive(Debug, Default)]
pub(crate) struct AddonMapper;

impl EventMapper for AddonMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if ADDONS.is(kind) =>
            {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct AddonReconciler(Objects);

impl AddonReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for AddonReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(ADDONS, &key.namespace, &key.name).await.doing("get the add-on")?;
        let Some(patch) = found.and_then(|addon| status(&addon, clock::now())) else {
            return Ok(ReconcileResult::Done);
        };
        match self.0.merge_status(ADDONS, &key.namespace, &key.name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the add-on's status"),
        }
    }
}

fields! {
    struct AddonFields {
        spec: AddonSpec,
    }

    struct AddonSpec {
        enabled: bool,
    }
}

pub(crate) fn is_enabled(addon: &Value) -> bool {
    read::<AddonFields>(addon).spec.enabled
}

/// The patch that brings the status of an add-on up to date, if it is not.
fn status(addon: &Value, now: Timestamp) -> Option<Value> {
    let outcome = hci::addon::outcome(namespace(addon), name(addon), is_enabled(addon));
    let mut conditions = condition::of(addon);
    for (kind, holds, reason, message) in outcome.conditions {
        let condition = Condition::new(kind, if holds { "True" } else { "False" });
        condition::set(&mut conditions, &condition.because(reason, message), now);
    }
    let patch = json!({"status": {"status": outcome.status, "conditions": conditions}});
    (!is_merged(addon, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    #[test]
    fn an_addon_follows_its_switch() {
        let mut addon = json!({
            "metadata": {"namespace": "cattle-monitoring-system", "name": "rancher-monitoring"},
            "spec": {"enabled": false},
        });
        let patch = status(&addon, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(text(&patch, "/status/status"), "AddonDisabled");
        addon["status"] = patch["status"].clone();
        assert_eq!(status(&addon, Timestamp::UNIX_EPOCH), None);
        addon["spec"]["enabled"] = true.into();
        let patch = status(&addon, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(text(&patch, "/status/status"), "AddonDeploySuccessful");
    }
}
