use serde_json::json;

use super::*;
use crate::condition;
use crate::fake::Fake;

const CONFIG_KIND: &str = "network.harvesterhci.io/hostnetworkconfigs";
const SETTING_KIND: &str = "harvesterhci.io/settings";

/// A cluster with one node and the setting of the storage network.
fn cluster(value: &str) -> Fake {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "longhorn-system"}}));
    let name = NodeNetwork::Storage.setting();
    fake.create(SETTING_KIND, "", json!({"metadata": {"name": name}, "value": value}));
    let annotations = json!({hci::cluster::HOST_ADDRESSES: "192.0.2.1"});
    fake.create("/nodes", "", json!({"metadata": {"name": "a", "annotations": annotations}}));
    fake
}

async fn reconcile(fake: &Fake) -> ReconcileResult {
    let key = ObjectKey::new("", NodeNetwork::Storage.setting());
    NodeNetworkReconciler::new(fake.client()).reconcile(&key).await.unwrap()
}

#[tokio::test]
async fn a_storage_network_is_set_up_and_taken_down() {
    let name = NodeNetwork::Storage.setting();
    let value = r#"{"clusterNetwork":"lan","vlan":100,"range":"10.9.0.0/24"}"#;
    let fake = cluster(value);
    reconcile(&fake).await;
    let config = fake.get(CONFIG_KIND, "", name).unwrap();
    assert_eq!(config["spec"]["ips"], json!({"a": "10.9.0.1/24"}));
    let annotation = || {
        let node = fake.get("/nodes", "", "a").unwrap();
        node["metadata"]["annotations"][NodeNetwork::Storage.annotation()].clone()
    };
    assert!(annotation().is_null(), "its host does not have the address yet");
    let has = json!({hci::cluster::HOST_ADDRESSES: "192.0.2.1,10.9.0.1"});
    fake.merge("/nodes", "", "a", &json!({"metadata": {"annotations": has}}));
    reconcile(&fake).await;
    assert_eq!(annotation(), "10.9.0.1");
    reconcile(&fake).await;
    let setting = || fake.get(SETTING_KIND, "", name).unwrap();
    assert!(condition::is(&setting(), "configured", "True"));

    let replica = json!({"metadata": {"name": "r"}, "status": {"storageIP": "10.9.0.1"}});
    fake.create("longhorn.io/replicas", "longhorn-system", replica);
    fake.merge(SETTING_KIND, "", name, &json!({"value": ""}));
    for _ in 0..2 {
        assert!(matches!(reconcile(&fake).await, ReconcileResult::Again(_)));
    }
    assert!(annotation().is_null());
    assert!(fake.get(CONFIG_KIND, "", name).is_some(), "a replica still has the address");
    let elsewhere = json!({"status": {"storageIP": "192.0.2.1"}});
    fake.merge("longhorn.io/replicas", "longhorn-system", "r", &elsewhere);
    reconcile(&fake).await;
    assert!(fake.get(CONFIG_KIND, "", name).is_none());
    reconcile(&fake).await;
    assert!(condition::is(&setting(), "configured", "False"));
}

#[tokio::test]
async fn a_setting_that_was_never_used_is_left_alone() {
    let fake = cluster("");
    let before = fake.get(SETTING_KIND, "", NodeNetwork::Storage.setting());
    assert!(matches!(reconcile(&fake).await, ReconcileResult::Done));
    assert_eq!(fake.get(SETTING_KIND, "", NodeNetwork::Storage.setting()), before);
}
