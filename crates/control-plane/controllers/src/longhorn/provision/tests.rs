use super::*;
use crate::condition;
use crate::fake::Fake;
use crate::longhorn::object::engine_name;
use crate::object::text;

const CLAIM_KIND: &str = "/persistentvolumeclaims";
const VOLUME_KIND: &str = "/persistentvolumes";
const BACKING_KIND: &str = "longhorn.io/volumes";

fn cluster(parameters: Value) -> (Fake, Provisioner) {
    let fake = Fake::new();
    for name in ["n", NAMESPACE] {
        fake.create("/namespaces", "", json!({"metadata": {"name": name}}));
    }
    let class = json!({
        "metadata": {"name": "longhorn"}, "provisioner": hci::DRIVER, "parameters": parameters,
        "reclaimPolicy": "Delete",
    });
    fake.create("storage.k8s.io/storageclasses", "", class);
    let provisioner = Provisioner::new(fake.client(), Dependents::default());
    (fake, provisioner)
}

fn make_claim(fake: &Fake) -> String {
    let claim = json!({
        "metadata": {"name": "c", "annotations": {plan::ANNOUNCED: hci::DRIVER}},
        "spec": {"storageClassName": "longhorn", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    format!("pvc-{}", fake.create(CLAIM_KIND, "n", claim))
}

#[tokio::test]
async fn a_claim_gets_its_volume_and_both_go_with_it() {
    let (fake, provisioner) = cluster(json!({"numberOfReplicas": "1"}));
    let name = make_claim(&fake);
    let key = ObjectKey::new("n", "c");
    provisioner.claim(&key).await.unwrap();
    provisioner.claim(&key).await.unwrap();
    assert_eq!(fake.names(BACKING_KIND), std::slice::from_ref(&name));
    assert_eq!(fake.names(VOLUME_KIND), std::slice::from_ref(&name));

    fake.delete(CLAIM_KIND, "n", "c", "Background");
    fake.merge(VOLUME_KIND, "", &name, &json!({"status": {"phase": "Released"}}));
    provisioner.volume(&name).await.unwrap();
    let backing = fake.get(BACKING_KIND, NAMESPACE, &name).unwrap();
    assert!(object::is_deleting(&backing), "it is held until its replicas are gone");
    fake.merge(BACKING_KIND, NAMESPACE, &name, &json!({"metadata": {"finalizers": []}}));
    provisioner.backing(&name).await.unwrap();
    provisioner.volume(&name).await.unwrap();
    assert!(fake.names(VOLUME_KIND).is_empty() && fake.names(BACKING_KIND).is_empty());
}

#[tokio::test]
async fn a_wrong_class_is_reported_once_and_makes_nothing() {
    let (fake, provisioner) = cluster(json!({"numberOfReplicas": "many"}));
    make_claim(&fake);
    for _ in 0..2 {
        let next = provisioner.claim(&ObjectKey::new("n", "c")).await.unwrap();
        assert_eq!(next, ReconcileResult::Again(RECHECK_INTERVAL));
    }
    assert!(fake.names(BACKING_KIND).is_empty() && fake.names(VOLUME_KIND).is_empty());
    assert_eq!(fake.names("/events").len(), 1);
    assert!(fake.any("/events", |event| {
        event["reason"] == "ProvisioningFailed"
            && text(event, "/message").contains("parameter numberOfReplicas \"many\" is invalid")
    }));
}

#[tokio::test]
async fn a_volume_whose_claim_went_early_is_not_left_behind() {
    let (fake, provisioner) = cluster(json!({}));
    let name = make_claim(&fake);
    provisioner.claim(&ObjectKey::new("n", "c")).await.unwrap();
    fake.delete(VOLUME_KIND, "", &name, "Background");
    fake.merge(VOLUME_KIND, "", &name, &json!({"metadata": {"finalizers": []}}));
    provisioner.backing(&name).await.unwrap();
    assert_eq!(
        fake.names(VOLUME_KIND),
        std::slice::from_ref(&name),
        "its claim is there: it is made again"
    );
    fake.delete(VOLUME_KIND, "", &name, "Background");
    fake.merge(VOLUME_KIND, "", &name, &json!({"metadata": {"finalizers": []}}));
    fake.delete(CLAIM_KIND, "n", "c", "Background");
    provisioner.backing(&name).await.unwrap();
    assert!(object::is_deleting(&fake.get(BACKING_KIND, NAMESPACE, &name).unwrap()));
}

#[tokio::test]
async fn growing_waits_for_the_engine() {
    let (fake, provisioner) = cluster(json!({}));
    let name = make_claim(&fake);
    let key = ObjectKey::new("n", "c");
    provisioner.claim(&key).await.unwrap();
    let grown = json!({
        "spec": {"volumeName": name, "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    fake.merge(CLAIM_KIND, "n", "c", &grown);
    provisioner.claim(&key).await.unwrap();
    let size = || text(&fake.get(BACKING_KIND, NAMESPACE, &name).unwrap(), "/spec/size").to_owned();
    let claim = || fake.get(CLAIM_KIND, "n", "c").unwrap();
    assert_eq!(size(), (2_i64 << 30).to_string());
    assert!(condition::is(&claim(), "Resizing", "True"));
    let engine = json!({
        "metadata": {"name": engine_name(&name)},
        "status": {"currentSize": (2_i64 << 30).to_string()},
    });
    fake.create("longhorn.io/engines", NAMESPACE, engine);
    provisioner.backing(&name).await.unwrap();
    assert_eq!(text(&claim(), "/status/capacity/storage"), "2Gi");
    assert!(!condition::is(&claim(), "Resizing", "True"));
    let volume = fake.get(VOLUME_KIND, "", &name).unwrap();
    assert_eq!(text(&volume, "/spec/capacity/storage"), "2Gi");
}

#[tokio::test]
async fn a_claim_that_may_be_bound_to_an_existing_volume_gets_no_other() {
    let (fake, provisioner) = cluster(json!({}));
    make_claim(&fake);
    let patch = json!({"metadata": {"annotations": {plan::ANNOUNCED: null}}});
    fake.merge(CLAIM_KIND, "n", "c", &patch);
    provisioner.claim(&ObjectKey::new("n", "c")).await.unwrap();
    assert!(fake.names(BACKING_KIND).is_empty() && fake.names(VOLUME_KIND).is_empty());
}

#[tokio::test]
async fn a_copy_from_another_namespace_needs_the_authority_of_its_data_volume() {
    let (fake, provisioner) = cluster(json!({}));
    fake.create("/namespaces", "", json!({"metadata": {"name": "m"}}));
    let csi = json!({"driver": hci::DRIVER, "volumeHandle": "v"});
    fake.create(VOLUME_KIND, "", json!({"metadata": {"name": "v"}, "spec": {"csi": csi}}));
    let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    let from = json!({"metadata": {"name": "from"}, "spec": {"volumeName": "v"}, "status": status});
    fake.create(CLAIM_KIND, "m", from);
    fake.bind("m", "from", "v");
    let dv = json!({"metadata": {"name": "c"}, "spec": {}});
    let uid = fake.create("cdi.kubevirt.io/datavolumes", "n", dv);
    make_claim(&fake);
    let owner = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "name": "c", "uid": uid, "controller": true});
    let patch = json!({"metadata": {
        "annotations": {populate::DRIVER_CLONE: "pvc/m/from"}, "ownerReferences": [owner],
    }});
    fake.merge(CLAIM_KIND, "n", "c", &patch);
    let key = ObjectKey::new("n", "c");
    provisioner.claim(&key).await.unwrap();
    assert!(fake.names(BACKING_KIND).is_empty());
    assert!(fake.any("/events", |event| text(event, "/message").contains("was not authorized")));
    let patch = json!({"metadata": {"annotations": {populate::AUTHORIZED: "pvc/m/from"}}});
    fake.merge("cdi.kubevirt.io/datavolumes", "n", "c", &patch);
    provisioner.claim(&key).await.unwrap();
    assert!(fake.any(BACKING_KIND, |backing| backing["spec"]["dataSource"] == "vol://v"));
}
