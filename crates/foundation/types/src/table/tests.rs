use super::*;

#[test]
fn every_message_of_every_table_parses() {
    let mut messages = 0;
    for table in Table::all() {
        for slot in table.slots() {
            assert!(!slot.fields().iter().any(|(name, _)| name.is_empty()), "{}", slot.name);
            for pair in slot.fields().windows(2) {
                assert_ne!(pair[0].0, pair[1].0, "{} has a field twice", slot.name);
            }
            messages += 1;
        }
    }
    assert!(messages > 600, "{messages}");
}

#[test]
fn inlined_fields_are_found_by_name() {
    let volume = find("", "v1", "Pod").unwrap().table.slot("Volume").unwrap();
    assert_eq!(volume.field("configMap").unwrap().name, "configMap");
    assert!(volume.field("volumeSource").is_none());
}

#[test]
fn kinds_are_found_as_upstream_registers_them() {
    let known = |group, version, kind| find(group, version, kind).is_some();
    assert!(known("", "v1", "ConfigMap"));
    assert!(known("", "v1", "ConfigMapList"));
    assert!(known("apps", "v1", "DeleteOptions"));
    assert!(known("kubevirt.io", "v1", "DeleteOptions"));
    assert!(known("meta.k8s.io", "v1", "PartialObjectMetadata"));
    assert!(known("meta.k8s.io", "v1beta1", "PartialObjectMetadataList"));
    assert!(!known("", "v1", "ConfigMapKeySelector"), "not a kind");
    assert!(!known("", "v2", "ConfigMap"));
}
