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
        }
    }
}

/// Whether a user may patch this place of a machine.
fn is_open(path: &str) -> bool {
    let mut parts = path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    if parts.next().is_none_or(|root| !root.is_empty()) {
        return false;
    }
    let parts: Vec<String> = parts.collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["spec", field, ..] => *field != "dataVolumeTemplates",
        ["metadata", "labels", ..] => true,
        ["metadata", "annotations", key, ..] => {
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let is_ours = domain == OWN_DOMAIN || domain.ends_with(&format!(".{OWN_DOMAIN}"));
            !is_ours && *key != CLAIM_TEMPLATES
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_open;

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
}
