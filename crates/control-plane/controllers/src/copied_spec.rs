//! Changes to the spec of a machine that is copied: of a snapshot, into a template, into a pool.
//!
//! A copy keeps every field of the original, also those that this version does not know, so it is
//! changed in place, as JSON. Where a part is missing there is nothing to change.

use serde_json::Value;

/// A list in a copied object; empty if there is none.
pub(crate) fn items_mut<'a>(object: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    match object.pointer_mut(pointer) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

/// A text in a copied object.
pub(crate) fn text_mut<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut String> {
    match object.pointer_mut(pointer) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// The volumes in the spec of a VirtualMachine.
pub(crate) fn volumes_mut(spec: &mut Value) -> Option<&mut Vec<Value>> {
    spec.pointer_mut("/template/spec/volumes").and_then(Value::as_array_mut)
}

/// Removes what identifies one machine: MAC addresses, and UUID and serial number of the firmware.
/// Two machines of one MAC address cannot be in one network.
pub(crate) fn remove_identity(spec: &mut Value) {
    for interface in items_mut(spec, "/template/spec/domain/devices/interfaces") {
        remove(interface, "macAddress");
    }
    if let Some(firmware) = spec.pointer_mut("/template/spec/domain/firmware") {
        remove(firmware, "uuid");
        remove(firmware, "serial");
    }
}

/// Removes a field of an object.
pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_loses_what_identifies_the_original_and_nothing_else() {
        let mut spec = json!({"template": {"spec": {"domain": {
            "devices": {"interfaces": [{"name": "a", "macAddress": "02:00:00:00:00:01"}, {"name": "b"}]},
            "firmware": {"uuid": "u", "serial": "s", "bootloader": {"efi": {}}}}}}});
        remove_identity(&mut spec);
        let domain = &spec["template"]["spec"]["domain"];
        assert_eq!(domain["devices"]["interfaces"], json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!(domain["firmware"], json!({"bootloader": {"efi": {}}}));
    }

    #[test]
    fn missing_parts_are_not_made() {
        let mut spec = json!({"template": {}});
        remove_identity(&mut spec);
        assert!(volumes_mut(&mut spec).is_none() && text_mut(&mut spec, "/a/b").is_none());
        assert!(items_mut(&mut spec, "/template/spec/volumes").is_empty());
        assert_eq!(spec, json!({"template": {}}));
    }
}
