use hci::local_volume::{
    COPIED_VOLUMES, CopiedVolumes, HOSTNAME, PREVIOUS_NODES, PROVISIONED_BY, PROVISIONER,
    VOLUME_MOVE, node_of,
};
use serde_json::json;

use super::*;
use crate::fake::Fake;
use crate::object::annotation;

const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";
const VOLUME: &str = "/persistentvolumes";

/// An instance on `a` that migrates to `b`, with a volume of `a`.
fn cluster() -> Fake {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let claim = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"}});
    let uid = fake.create("/persistentvolumeclaims", "n", claim);
    let on = json!({"key": HOSTNAME, "operator": "In", "values": ["a"]});
    let volume = json!({
        "metadata": {"name": "v", "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {"local": {"path": "/v"},
            "claimRef": {"namespace": "n", "name": "c", "uid": uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}},
    });
    fake.create(VOLUME, "", volume);
    let copied = CopiedVolumes { migration: "m".into(), volumes: vec!["v".into()] };
    let instance = json!({
        "metadata": {"name": "web", "annotations": {COPIED_VOLUMES: copied.encode()}},
        "spec": {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"nodeName": "a", "migrationState": {
            "migrationUid": "m", "sourceNode": "a", "targetNode": "b"}},
    });
    fake.create(INSTANCES, "n", instance);
    fake
}

async fn reconcile(fake: &Fake) -> Value {
    let reconciler = LocalVolumeReconciler::new(fake.client(), Dependents::default());
    let instance = LocalVolumeKey::Instance(ObjectKey::new("n", "web"));
    for key in [instance, LocalVolumeKey::Volume("v".into())] {
        assert_eq!(reconciler.reconcile(&key).await.unwrap(), ReconcileResult::Done);
    }
    fake.get(VOLUME, "", "v").unwrap()
}

#[tokio::test]
async fn a_volume_moves_with_its_machine_and_stays_if_that_stays() {
    let fake = cluster();
    let moving = reconcile(&fake).await;
    assert!(annotation(&moving, VOLUME_MOVE).is_some(), "{moving}");
    assert_eq!(node_of(&moving), Some("a"));
    assert_eq!(reconcile(&fake).await, moving, "nothing changes before the instance does");

    let failed = json!({"status": {"migrationState": {"failed": true}}});
    fake.merge(INSTANCES, "n", "web", &failed);
    let stays = reconcile(&fake).await;
    assert_eq!((node_of(&stays), annotation(&stays, VOLUME_MOVE)), (Some("a"), None));
    assert_eq!(annotation(&stays, PREVIOUS_NODES), None);

    fake.merge(INSTANCES, "n", "web", &json!({"status": {"migrationState": {"failed": null}}}));
    reconcile(&fake).await;
    let given = json!({"status": {"nodeName": "b", "migrationState": {"completed": true}}});
    fake.merge(INSTANCES, "n", "web", &given);
    let moved = reconcile(&fake).await;
    assert_eq!((node_of(&moved), annotation(&moved, VOLUME_MOVE)), (Some("b"), None));
    assert_eq!(annotation(&moved, PREVIOUS_NODES), Some("a"));
}

#[tokio::test]
async fn an_instance_moves_only_volumes_that_it_uses() {
    for change in [
        json!({"spec": {"volumes": [{"name": "root", "emptyDisk": {}}]}}),
        json!({"spec": {"volumes": [
            {"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}]}}),
    ] {
        let fake = cluster();
        fake.merge(INSTANCES, "n", "web", &change);
        assert_eq!(annotation(&reconcile(&fake).await, VOLUME_MOVE), None, "{change}");
    }
    let fake = cluster();
    // The claim was made anew with the same name.
    fake.merge(VOLUME, "", "v", &json!({"spec": {"claimRef": {"uid": "former"}}}));
    assert_eq!(annotation(&reconcile(&fake).await, VOLUME_MOVE), None);
}

#[tokio::test]
async fn a_machine_that_is_gone_leaves_its_volume_at_the_source() {
    let fake = cluster();
    reconcile(&fake).await;
    fake.delete(INSTANCES, "n", "web", "Background");
    let stays = reconcile(&fake).await;
    assert_eq!((node_of(&stays), annotation(&stays, VOLUME_MOVE)), (Some("a"), None));
}
