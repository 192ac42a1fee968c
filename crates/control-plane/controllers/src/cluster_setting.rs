//! Settings of Harvester report whether their value is in effect.

use base::clock;
use hci::cluster_setting::{SettingEffect, effect};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{is_merged, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, is_refused};

const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");

/// Every setting that changes.
#[derive(Debug, Default)]
pub(crate) struct SettingMapper;

impl EventMapper for SettingMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if SETTINGS.is(kind) =>
            {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct SettingReconciler(Objects);

impl SettingReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for SettingReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(SETTINGS, "", &key.name).await.doing("get the setting")?;
        let Some(patch) = found.and_then(|setting| status(&setting, clock::now())) else {
            return Ok(ReconcileResult::Done);
        };
        match self.0.merge(SETTINGS, "", &key.name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the setting's status"),
        }
    }
}

/// The patch that makes a setting say whether its value is in effect, if it does not.
fn status(setting: &Value, now: Timestamp) -> Option<Value> {
    let name = text(setting, "/metadata/name");
    let has_value = !text(setting, "/value").is_empty();
    // As upstream: a setting that nobody changed has no condition, until it had a value once.
    if !has_value && condition::of(setting).is_empty() {
        return None;
    }
    let wanted = match effect(name) {
        _ if !has_value => Condition::new("configured", "False"),
        SettingEffect::Applied => Condition::new("configured", "True").because("Completed", ""),
        SettingEffect::Stored(why) => {
            Condition::new("configured", "False").because("NotApplicable", why)
        }
    };
    let mut conditions = condition::of(setting);
    condition::set(&mut conditions, &wanted, now);
    let patch = json!({"status": {"conditions": conditions}});
    (!is_merged(setting, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_reports_whether_it_is_in_effect() {
        let setting = |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value});
        let condition = |setting: &Value| {
            let patch = status(setting, Timestamp::UNIX_EPOCH)?;
            let own =
                |field: &str| text(&patch, &format!("/status/conditions/0/{field}")).to_owned();
            Some((own("status"), own("reason"), own("message")))
        };
        let unset = setting("overcommit-config", "");
        assert_eq!(condition(&unset), None);
        let (status, reason, _) = condition(&setting("overcommit-config", "{}")).unwrap();
        assert_eq!((&*status, &*reason), ("True", "Completed"));
        let (status, reason, message) = condition(&setting("vip-pools", "{}")).unwrap();
        assert_eq!((&*status, &*reason), ("False", "NotApplicable"));
        assert!(!message.is_empty());
        let mut reset = setting("overcommit-config", "");
        reset["status"]["conditions"] = json!([{"type": "configured", "status": "True"}]);
        let (status, reason, message) = condition(&reset).unwrap();
        assert_eq!((&*status, &*reason, &*message), ("False", "", ""));
    }
}
