//! CDI's annotations on claims: the wanted content of a claim, and whether it is complete.

use serde_json::Value;

use crate::object::{annotation, namespace, read};
use crate::record::claim::ClaimFields;

/// `Succeeded` once the claim has its content.
pub(crate) const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// The claim is filled from this one, `NAMESPACE/NAME`.
pub(crate) const CLONE_REQUEST: &str = "k8s.io/CloneRequest";
pub(crate) const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// Bind and fill the claim before a pod or machine consumes it.
pub(crate) const IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
/// The driver is to make the claim's volume as a copy of this object of another namespace,
/// `KIND/NAMESPACE/NAME`. Valid only on the claim of a DataVolume with the same in [`AUTHORIZED`].
pub(crate) const DRIVER_CLONE: &str = "sheaf.io/clone-source";
/// On a DataVolume, written by admission only: the source in another namespace that its creator
/// was allowed to copy.
pub(crate) const AUTHORIZED: &str = virt::admit::AUTHORIZED_SOURCE;

/// The kind of the source in `dataSourceRef` that the other annotations were taken from.
pub(crate) const POPULATOR: &str = "sheaf.io/populator";

const SOURCES: [&str; 4] = [
    CLONE_REQUEST,
    UPLOAD_TARGET,
    "cdi.kubevirt.io/storage.import.source",
    "cdi.kubevirt.io/storage.import.endpoint",
];

/// Whether a claim has its content, or needs none.
pub(crate) fn is_populated(claim: &Value) -> bool {
    let wants = SOURCES.iter().any(|key| annotation(claim, key).is_some());
    !wants || annotation(claim, POD_PHASE) == Some("Succeeded")
}

/// Whether a claim names one of CDI's sources, which has to be examined before it gets a volume.
pub(crate) fn waits_for_populator(claim: &Value) -> bool {
    let source = read::<ClaimFields<'_>>(claim).spec.data_source_ref;
    let known =
        matches!(source.kind, "VolumeImportSource" | "VolumeUploadSource" | "VolumeCloneSource");
    known
        && source.api_group == "cdi.kubevirt.io"
        && (source.namespace.is_empty() || source.namespace == namespace(claim))
        && annotation(claim, POPULATOR).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_populated_when_nothing_is_left_to_fill() {
        for (annotations, expected) in [
            (json!({}), true),
            (json!({UPLOAD_TARGET: ""}), false),
            (json!({CLONE_REQUEST: "n/c", POD_PHASE: "Running"}), false),
            (json!({CLONE_REQUEST: "n/c", POD_PHASE: "Succeeded"}), true),
            (json!({"cdi.kubevirt.io/storage.import.source": "http"}), false),
        ] {
            let claim = json!({"metadata": {"annotations": annotations}});
            assert_eq!(is_populated(&claim), expected, "{claim}");
        }
    }
}
