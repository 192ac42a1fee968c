//! Patches that a restore or a clone applies to the machine that it writes.
//!
//! A controller writes that machine, and controllers are trusted. Patches therefore reach only
//! the fields that refer to nothing outside the namespace, or to what is judged again when it is
//! used: neither the name and namespace of the machine, nor the claims and data volumes that are
//! made with it.

use serde_json::Value;

use super::{Causes, Write};
use crate::state::text;

/// Annotations that only controllers may set begin with this domain.
const OWN_DOMAIN: &str = "sheaf.io";
const CLAIM_TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";

pub(super) fn validate(write: &Write<'_>, causes: &mut Causes) {
    let patches = &write.object["spec"]["patches"];
    if write.trusted || write.old.is_some_and(|old| old["spec"]["patches"] == *patches) {
        return;
    }
    for (index, patch) in patches.as_array().into_iter().flatten().enumerate() {
        let field = format!("spec.patches[{index}]");
        let patch = patch.as_str().unwrap_or_default();
        let Ok(operation) = serde_json::from_str::<Value>(patch) else {
            causes.invalid(field, format!("patch is not valid JSON ({patch})"));
            continue;
        };
        let path = text(&operation, "/path");
        if !is_open(path) {
            let message = format!(
                "path {path:?} cannot be patched; labels, single annotations and fields of spec \
                 except dataVolumeTemplates can"
            );
            causes.invalid(field, message);
            continue;
        }
        if let Some(problem) = annotation_problem(&operation, path) {
            causes.invalid(field, problem);
        }
    }
}

/// The parts of a path, if it is absolute.
fn parts(path: &str) -> Option<Vec<String>> {
    let mut parts = path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    parts.next().filter(String::is_empty)?;
    Some(parts.collect())
}

/// Whether a user may patch this place of a machine.
fn is_open(path: &str) -> bool {
    let Some(parts) = parts(path) else { return false };
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["spec", field, ..] => *field != "dataVolumeTemplates",
        ["metadata", "labels", ..] => true,
        ["metadata", "annotations", key, ..] => !is_reserved(key),
        _ => false,
    }
}

/// Whether only controllers may set an annotation of a machine that they write.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_ours = domain == OWN_DOMAIN || domain.ends_with(&format!(".{OWN_DOMAIN}"));
    is_ours || key == CLAIM_TEMPLATES
}

/// Why an operation would give the instances of a machine an annotation of controllers, or take one.
fn annotation_problem(operation: &Value, path: &str) -> Option<String> {
    let from = operation["from"].as_str();
    let is_closed =
        |from: &&str| !is_open(from) || named(from).is_some() || leads_to_annotations(path);
    if let Some(from) = from.filter(is_closed) {
        return Some(format!("{path:?} cannot be patched with what is at {from:?}"));
    }
    let value = &operation["value"];
    let listed = if path.ends_with("/annotations") { reserved_key(value) } else { None };
    let in_value = listed.or_else(|| reserved_annotation(value)).map(str::to_owned);
    let key = named(path).or(in_value)?;
    Some(format!("annotation {key} may only be set by the controllers of the cluster"))
}

/// The reserved annotation that a path leads to.
fn named(path: &str) -> Option<String> {
    let parts = parts(path)?;
    let at = parts.iter().position(|part| part == "annotations")?;
    parts.into_iter().nth(at + 1).filter(|key| is_reserved(key))
}

/// Whether a place holds the annotations of instances, or is one of them.
fn leads_to_annotations(path: &str) -> bool {
    const ANNOTATIONS: &str = "/spec/template/metadata/annotations";
    let contains = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    contains(path, ANNOTATIONS) || contains(ANNOTATIONS, path)
}

fn reserved_key(annotations: &Value) -> Option<&str> {
    let mut keys = annotations.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    keys.find(|key| is_reserved(key))
}

/// A reserved annotation anywhere in a value.
fn reserved_annotation(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => reserved_key(&value["annotations"])
            .or_else(|| fields.values().find_map(reserved_annotation)),
        Value::Array(items) => items.iter().find_map(reserved_annotation),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_reach_nothing_that_leads_out_of_the_namespace() {
        for (path, expected) in [
            ("/spec/runStrategy", true),
            ("/spec/template/spec/domain/devices/interfaces/0/macAddress", true),
            ("/metadata/labels", true),
            ("/metadata/labels/mine", true),
            ("/metadata/annotations/example.org~1note", true),
            ("/spec/dataVolumeTemplates", false),
            ("/spec/dataVolumeTemplates/0/spec/storage/storageClassName", false),
            ("/metadata/annotations", false),
            ("/metadata/annotations/harvesterhci.io~1volumeClaimTemplates", false),
            ("/metadata/annotations/sheaf.io~1anything", false),
            ("/metadata/annotations/vm.sheaf.io~1anything", false),
            ("/metadata/namespace", false),
            ("/metadata/name", false),
            ("/metadata/ownerReferences", false),
            ("/metadata", false),
            ("/spec", false),
            ("/status/ready", false),
            ("", false),
            ("spec/runStrategy", false),
        ] {
            assert_eq!(is_open(path), expected, "{path:?}");
        }
    }

    /// The controller that applies a patch is trusted, so the machine is not judged again.
    #[test]
    fn patches_set_no_annotations_of_controllers() {
        let place = "/spec/template/metadata/annotations";
        let single = format!("{place}/sheaf.io~1resume-from");
        let forged = json!({"sheaf.io/resume-from": "x", "mine": "y"});
        for (operation, refused) in [
            (json!({"op": "add", "path": single, "value": "x"}), true),
            (json!({"op": "add", "path": place, "value": forged}), true),
            (
                json!({"op": "add", "path": "/spec/template/metadata",
                    "value": {"annotations": forged}}),
                true,
            ),
            (
                json!({"op": "replace", "path": "/spec/template",
                    "value": {"metadata": {"annotations": forged}}}),
                true,
            ),
            // A label has any name.
            (json!({"op": "copy", "from": "/metadata/labels", "path": place}), true),
            (json!({"op": "copy", "from": "/spec/x", "path": "/spec/template"}), true),
            (json!({"op": "move", "from": "/metadata/annotations", "path": "/spec/x"}), true),
            (json!({"op": "move", "from": "/spec/dataVolumeTemplates", "path": "/spec/x"}), true),
            (json!({"op": "move", "from": "/metadata/namespace", "path": "/spec/x"}), true),
            (json!({"op": "move", "from": single, "path": "/spec/x"}), true),
            (json!({"op": "add", "path": format!("{place}/mine"), "value": "x"}), false),
            (json!({"op": "add", "path": place, "value": {"mine": "x"}}), false),
            (json!({"op": "remove", "path": "/spec/template/spec/volumes/0"}), false),
            (
                json!({"op": "copy", "from": "/spec/template/spec/hostname",
                    "path": "/spec/template/spec/subdomain"}),
                false,
            ),
            (
                json!({"op": "add", "path": "/spec/template/spec/nodeSelector",
                    "value": {"node.sheaf.io/accelerator": "kvm"}}),
                false,
            ),
        ] {
            let path = operation["path"].as_str().unwrap();
            let problem = annotation_problem(&operation, path);
            assert_eq!(problem.is_some(), refused, "{operation}: {problem:?}");
        }
    }
}
