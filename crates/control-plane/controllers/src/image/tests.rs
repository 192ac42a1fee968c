use super::*;
use crate::fake::Fake;

const IMAGE_KIND: &str = "harvesterhci.io/virtualmachineimages";
const BACKING_KIND: &str = "longhorn.io/backingimages";
const CLASS_KIND: &str = "storage.k8s.io/storageclasses";

#[tokio::test]
async fn an_image_gets_data_and_class_and_takes_them_along() {
    let fake = Fake::new();
    for name in ["n", NAMESPACE] {
        fake.create("/namespaces", "", json!({"metadata": {"name": name}}));
    }
    let node = json!({
        "metadata": {"name": "one"},
        "spec": {"allowScheduling": true, "disks": {"disk": {"allowScheduling": true}}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "diskStatus": {"disk": {"diskUUID": "d", "conditions": [
                {"type": "Schedulable", "status": "True"},
            ]}},
        },
    });
    fake.create("longhorn.io/nodes", NAMESPACE, node);
    let image = json!({
        "metadata": {"name": "i"},
        "spec": {"displayName": "i", "sourceType": "upload", "storageClassParameters": {}},
    });
    let uid = fake.create(IMAGE_KIND, "n", image);
    let importer = ImageReconciler::new(fake.client(), Dependents::default());
    let key = ObjectKey::new("n", "i");
    for _ in 0..3 {
        importer.image(&key).await.unwrap();
    }
    let backing = format!("vmi-{uid}");
    assert_eq!(fake.names(BACKING_KIND), std::slice::from_ref(&backing));
    assert_eq!(fake.names(CLASS_KIND), [format!("lh-{uid}")]);
    importer.backing(&backing).await.unwrap();
    let made = fake.get(BACKING_KIND, NAMESPACE, &backing).unwrap();
    assert!(made["spec"]["diskFileSpecMap"]["d"].is_object(), "{made}");

    fake.delete(IMAGE_KIND, "n", "i", "Background");
    importer.image(&key).await.unwrap();
    assert!(fake.names(CLASS_KIND).is_empty());
    assert_eq!(fake.names(IMAGE_KIND), ["i"], "it waits for its data to go");
    importer.backing(&backing).await.unwrap();
    assert_eq!(fake.names(BACKING_KIND), std::slice::from_ref(&backing), "a node has it");
    fake.merge(BACKING_KIND, NAMESPACE, &backing, &json!({"metadata": {"finalizers": []}}));
    importer.image(&key).await.unwrap();
    assert!(fake.names(IMAGE_KIND).is_empty());
}
