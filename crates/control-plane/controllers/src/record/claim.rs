//! Claims, persistent volumes and storage classes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::quantity::WrittenQuantity;

fields! {
    pub(crate) struct ClaimFields<'a> {
        spec: ClaimSpec<'a>,
        status: ClaimStatus<'a>,
    }

    pub(crate) struct ClaimSpec<'a> {
        volume_name: &'a str,
        storage_class_name: &'a str,
        volume_mode: &'a str,
        access_modes: Vec<&'a str>,
        selector: Option<LabelSelector>,
        resources: ClaimResources,
        data_source: ContentReference<'a>,
        data_source_ref: ContentReference<'a>,
    }

    pub(crate) struct ClaimResources {
        requests: StorageAmount,
    }

    /// The storage among the resources of a claim or a volume.
    pub(crate) struct StorageAmount {
        storage: WrittenQuantity,
    }

    /// The object that a claim is filled from.
    pub(crate) struct ContentReference<'a> {
        api_group: &'a str,
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
    }

    pub(crate) struct ClaimStatus<'a> {
        phase: &'a str,
        capacity: StorageAmount,
    }

    pub(crate) struct PersistentVolumeFields<'a> {
        spec: PersistentVolumeSpec<'a>,
        status: PersistentVolumeStatus<'a>,
    }

    pub(crate) struct PersistentVolumeSpec<'a> {
        capacity: StorageAmount,
        access_modes: Vec<&'a str>,
        volume_mode: &'a str,
        storage_class_name: &'a str,
        persistent_volume_reclaim_policy: &'a str,
        claim_ref: ClaimReference<'a>,
        csi: CsiVolume<'a>,
    }

    /// The claim that a volume is promised to.
    pub(crate) struct ClaimReference<'a> {
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
    }

    pub(crate) struct CsiVolume<'a> {
        driver: &'a str,
        volume_handle: &'a str,
    }

    pub(crate) struct PersistentVolumeStatus<'a> {
        phase: &'a str,
    }

    pub(crate) struct StorageClassFields<'a> {
        provisioner: &'a str,
        volume_binding_mode: &'a str,
        reclaim_policy: &'a str,
        mount_options: Vec<&'a str>,
        parameters: BTreeMap<&'a str, &'a str>,
    }
}

impl ClaimSpec<'_> {
    /// The storage that is asked for.
    pub(crate) fn storage(&self) -> &WrittenQuantity {
        &self.resources.requests.storage
    }
}

/// A volume mode, which is `Filesystem` where none is given.
pub(crate) fn volume_mode_or_default(mode: &str) -> &str {
    if mode.is_empty() { "Filesystem" } else { mode }
}

impl StorageClassFields<'_> {
    /// Whether volumes of the class are made once a pod or machine uses their claim.
    pub(crate) fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode == "WaitForFirstConsumer"
    }

    /// A parameter, empty if there is none.
    pub(crate) fn parameter(&self, key: &str) -> &str {
        self.parameters.get(key).copied().unwrap_or_default()
    }
}
