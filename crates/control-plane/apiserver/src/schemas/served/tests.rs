use serde_json::json;

use super::*;

#[test]
fn a_new_object_has_an_empty_status_of_its_type() {
    for (group, kind, expected) in [
        ("storagemigration.k8s.io", "StorageVersionMigration", json!({})),
        ("apps", "ReplicaSet", json!({"replicas": 0})),
        ("networking.k8s.io", "Ingress", json!({"loadBalancer": {}})),
    ] {
        let row = kinds::builtin().iter().find(|row| row.group == group && row.kind == kind);
        let served = ServedKind::built_in(row.unwrap());
        let mut object = json!({
            "apiVersion": served.api_version(), "kind": kind, "metadata": {"name": "x"},
            "status": {"conditions": [{"type": "Mine"}]},
        });
        served.prepare_create(&mut object);
        assert_eq!(object["status"], expected, "{kind}");
    }
}
