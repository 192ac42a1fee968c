//! The few requests the agent makes on objects whose types it takes as JSON.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;
use virt::claim_binding::{ClaimSide, VolumeSide, is_bound};

/// The manager that owns what the agent writes.
pub(crate) const MANAGER: &str = "sheaf-agent";

/// VirtualMachineInstances of all namespaces.
pub(crate) fn vmis(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &vmi_resource())
}

/// VirtualMachineInstances of one namespace.
pub(crate) fn vmis_in(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &vmi_resource())
}

fn vmi_resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    ApiResource::from_gvk_with_plural(&gvk, "virtualmachineinstances")
}

/// A merge patch with the agent as its manager.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: &Value) -> kube::Result<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(patch)).await
}

/// Whether a claim and a persistent volume are bound to each other.
pub(crate) fn are_bound(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let (status, spec) = (claim.status.as_ref(), claim.spec.as_ref());
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let text = |own: Option<&Option<String>>| own.and_then(|own| own.clone()).unwrap_or_default();
    is_bound(
        ClaimSide {
            uid: &text(Some(&claim.metadata.uid)),
            phase: &text(status.map(|own| &own.phase)),
            volume_name: &text(spec.map(|own| &own.volume_name)),
        },
        VolumeSide {
            name: &text(Some(&volume.metadata.name)),
            claim_uid: &text(reference.map(|own| &own.uid)),
        },
    )
}

/// Nothing instead of a "not found".
pub(crate) fn present<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Whether another client wrote the object first.
pub(crate) fn is_conflict(failure: &kube::Error) -> bool {
    matches!(failure, kube::Error::Api(status) if status.code == 409)
}
