//! Settings of Harvester report whether their value is in effect. `kubevirt-migration`,
//! `additional-guest-memory-overhead-ratio` and `max-hotplug-ratio` are written into the
//! configuration of KubeVirt (`kubevirt`); the other settings are read where they are used.

mod kubevirt;

use base::clock;
use hci::cluster_setting::{SettingEffect, effect_of, explains_default};
use hci::node_network::NodeNetwork;
use hci::ntp;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{self, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::setting;
use crate::resource::{KUBEVIRTS, NODES, Objects, Resource, is_refused};

const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");

/// Every setting that changes, and that of the time servers when nodes report theirs.
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
            ObjectChange::Object { kind, .. } if NODES.is(kind) => {
                vec![ObjectKey::new("", ntp::SETTING)]
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
        // The controllers of the backup target and of networks of nodes report about theirs.
        if &*key.name == "backup-target" || NodeNetwork::of_setting(&key.name).is_some() {
            return Ok(ReconcileResult::Done);
        }
        let found = self.0.get(SETTINGS, "", &key.name).await.doing("get the setting")?;
        let Some(setting) = found else { return Ok(ReconcileResult::Done) };
        if kubevirt::is_mirrored(&key.name) {
            self.configure_kubevirt(&setting).await?;
        }
        let shortcoming = match &*key.name {
            ntp::SETTING if !setting::value(&setting).is_empty() => {
                let nodes = self.0.list(NODES, "", "").await.doing("list nodes")?;
                ntp::shortcoming(setting::value(&setting), &nodes)
            }
            _ => None,
        };
        let Some(patch) = status(&setting, shortcoming, clock::now()) else {
            return Ok(ReconcileResult::Done);
        };
        match self.0.merge(SETTINGS, "", &key.name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the setting's status"),
        }
    }
}

impl SettingReconciler {
    async fn configure_kubevirt(&self, setting: &Value) -> Result<(), ReconcileError> {
        let all = self.0.list(KUBEVIRTS, "", "").await.doing("get the configuration")?;
        let Some(kubevirt) = all.first() else { return Ok(()) };
        let Some(patch) = kubevirt::patch(setting, kubevirt) else { return Ok(()) };
        let (namespace, name) = (object::namespace(kubevirt), object::name(kubevirt));
        let written = self.0.merge(KUBEVIRTS, namespace, name, &patch).await;
        written.map(drop).doing("configure KubeVirt")
    }
}

/// The patch that makes a setting say whether its value is in effect, if it does not. `shortcoming`
/// is what keeps it from being in effect everywhere.
fn status(setting: &Value, shortcoming: Option<String>, now: Timestamp) -> Option<Value> {
    let name = object::name(setting);
    let value = setting::value(setting);
    let has_value = !value.is_empty();
    let is_unset = !has_value && !explains_default(name);
    // As upstream: a setting that was never changed has no condition, until it had a value once.
    if is_unset && condition::of(setting).is_empty() {
        return None;
    }
    let wanted = match effect_of(name, value) {
        _ if is_unset => Condition::new("configured", "False"),
        SettingEffect::Applied => match shortcoming {
            None => Condition::new("configured", "True").because("Completed", ""),
            Some(why) => Condition::new("configured", "False").because("NotOnAllNodes", why),
        },
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
    use crate::fake::Fake;
    use crate::object::text;

    const MIGRATION: &str = "kubevirt-migration";

    #[tokio::test]
    async fn the_migration_setting_reaches_kubevirt() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let kind = "kubevirt.io/kubevirts";
        let before = json!({"network": "fast", "maxDowntimeMs": 700});
        let kubevirt = json!({"metadata": {"name": "kubevirt"},
            "spec": {"configuration": {"migrations": before}}});
        fake.create(kind, "n", kubevirt);
        let value = r#"{"parallelMigrationsPerCluster":1,"bandwidthPerMigration":"64Mi"}"#;
        let settings = "harvesterhci.io/settings";
        fake.create(settings, "", json!({"metadata": {"name": MIGRATION}, "value": ""}));
        let reconciler = SettingReconciler::new(fake.client());
        let found = || {
            fake.get(kind, "n", "kubevirt").unwrap()["spec"]["configuration"]["migrations"].clone()
        };
        let key = ObjectKey::new("", MIGRATION);
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(found(), before, "the setting was never changed");
        fake.merge(settings, "", MIGRATION, &json!({"value": value}));
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(
            found(),
            json!({"network": "fast", "parallelMigrationsPerCluster": 1,
                "bandwidthPerMigration": "64Mi"})
        );
        let setting = fake.get(settings, "", MIGRATION).unwrap();
        assert!(condition::is(&setting, "configured", "True"));
        // Without a value it is the default again.
        fake.merge(settings, "", MIGRATION, &json!({"value": ""}));
        reconciler.reconcile(&key).await.unwrap();
        assert_eq!(found()["parallelMigrationsPerCluster"], 5);
        assert_eq!(found()["network"], "fast");
    }

    #[tokio::test]
    async fn the_overhead_ratio_reaches_kubevirt() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let (kind, settings) = ("kubevirt.io/kubevirts", "harvesterhci.io/settings");
        let name = "additional-guest-memory-overhead-ratio";
        fake.create(kind, "n", json!({"metadata": {"name": "kubevirt"}, "spec": {}}));
        fake.create(
            settings,
            "",
            json!({"metadata": {"name": name}, "value": "", "default": "1.5"}),
        );
        let reconciler = SettingReconciler::new(fake.client());
        let key = ObjectKey::new("", name);
        for (value, expected) in [("", json!("1.5")), ("3.0", json!("3.0")), ("0", Value::Null)] {
            fake.merge(settings, "", name, &json!({"value": value}));
            reconciler.reconcile(&key).await.unwrap();
            let kubevirt = fake.get(kind, "n", "kubevirt").unwrap();
            let found = &kubevirt["spec"]["configuration"]["additionalGuestMemoryOverheadRatio"];
            assert_eq!(*found, expected, "{value}");
        }
        let setting = fake.get(settings, "", name).unwrap();
        assert!(condition::is(&setting, "configured", "True"));
    }

    #[tokio::test]
    async fn time_servers_are_in_effect_when_all_nodes_follow() {
        let fake = Fake::new();
        let settings = "harvesterhci.io/settings";
        let value = r#"{"ntpServers":["a.example"]}"#;
        fake.create(settings, "", json!({"metadata": {"name": ntp::SETTING}, "value": value}));
        fake.create("/nodes", "", json!({"metadata": {"name": "one"}}));
        let reconciler = SettingReconciler::new(fake.client());
        let key = ObjectKey::new("", ntp::SETTING);
        let is = |status: &str| {
            let setting = fake.get(settings, "", ntp::SETTING).unwrap();
            condition::is(&setting, "configured", status)
        };
        reconciler.reconcile(&key).await.unwrap();
        assert!(is("False"), "the node has not reported");
        let report = r#"{"ntpSyncStatus":"synced","currentNtpServers":"a.example"}"#;
        let patch = json!({"metadata": {"annotations": {ntp::ANNOTATION: report}}});
        fake.merge("/nodes", "", "one", &patch);
        reconciler.reconcile(&key).await.unwrap();
        assert!(is("True"));
    }

    #[test]
    fn a_setting_reports_whether_it_is_in_effect() {
        let setting = |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value});
        let condition = |setting: &Value| {
            let patch = status(setting, None, Timestamp::UNIX_EPOCH)?;
            let own =
                |field: &str| text(&patch, &format!("/status/conditions/0/{field}")).to_owned();
            Some((own("status"), own("reason"), own("message")))
        };
        let unset = setting("overcommit-config", "");
        assert_eq!(condition(&unset), None);
        let (status, reason, message) = condition(&setting("upgrade-checker-enabled", "")).unwrap();
        assert_eq!((&*status, &*reason), ("False", "NotApplicable"));
        assert!(message.contains("the checker is off"), "{message}");
        let (status, ..) = condition(&setting("upgrade-checker-enabled", "false")).unwrap();
        assert_eq!(status, "True");
        let (status, reason, _) = condition(&setting("overcommit-config", "{}")).unwrap();
        assert_eq!((&*status, &*reason), ("True", "Completed"));
        let (status, reason, message) = condition(&setting("vip-pools", "{}")).unwrap();
        assert_eq!((&*status, &*reason), ("False", "NotApplicable"));
        assert!(!message.is_empty());
        let (status, ..) =
            condition(&setting("ssl-parameters", r#"{"protocols":"TLSv1.3"}"#)).unwrap();
        assert_eq!(status, "True");
        let (status, _, message) =
            condition(&setting("ssl-parameters", r#"{"protocols":"TLSv1"}"#)).unwrap();
        assert_eq!(status, "False");
        assert!(message.contains("no client could connect"), "{message}");
        let mut reset = setting("overcommit-config", "");
        reset["status"]["conditions"] = json!([{"type": "configured", "status": "True"}]);
        let (status, reason, message) = condition(&reset).unwrap();
        assert_eq!((&*status, &*reason, &*message), ("False", "", ""));
    }
}
