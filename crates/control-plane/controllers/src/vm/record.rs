//! The fields of a virtual machine and its instance that decide its next step.

use serde::de::IgnoredAny;

use crate::record::fields;

fields! {
    pub(crate) struct VmFields<'a> {
        spec: VmSpecFields<'a>,
        status: VmStatusFields<'a>,
    }

    pub(crate) struct VmSpecFields<'a> {
        running: Option<bool>,
        run_strategy: &'a str,
        update_volumes_strategy: &'a str,
    }

    pub(crate) struct VmStatusFields<'a> {
        printable_status: &'a str,
        state_change_requests: Vec<StateChangeFields<'a>>,
    }

    pub(crate) struct StateChangeFields<'a> {
        action: &'a str,
    }

    /// An instance by the record of what it was started from.
    pub(crate) struct StartedInstance<'a> {
        status: StartedInstanceStatus<'a>,
    }

    pub(crate) struct StartedInstanceStatus<'a> {
        virtual_machine_revision_name: &'a str,
    }

    /// A volume, as far as it is a claim.
    pub(crate) struct VolumeFields<'a> {
        name: &'a str,
        persistent_volume_claim: ClaimSource<'a>,
        data_volume: DataVolumeSource<'a>,
    }

    pub(crate) struct ClaimSource<'a> {
        claim_name: &'a str,
        hotpluggable: bool,
    }

    pub(crate) struct DataVolumeSource<'a> {
        name: &'a str,
        hotpluggable: bool,
    }

    /// An instance by its disks and the claims that it holds.
    pub(crate) struct DiskOwner<'a> {
        spec: DiskOwnerSpec<'a>,
        status: DiskOwnerStatus<'a>,
    }

    pub(crate) struct DiskOwnerSpec<'a> {
        domain: DiskOwnerDomain<'a>,
    }

    pub(crate) struct DiskOwnerDomain<'a> {
        devices: DiskDevices<'a>,
    }

    pub(crate) struct DiskDevices<'a> {
        disks: Vec<DiskFields<'a>>,
        filesystems: Vec<DiskFields<'a>>,
    }

    pub(crate) struct DiskFields<'a> {
        name: &'a str,
        shareable: bool,
        cdrom: Option<IgnoredAny>,
        lun: Option<IgnoredAny>,
    }

    pub(crate) struct DiskOwnerStatus<'a> {
        volume_status: Vec<HeldVolume<'a>>,
    }

    pub(crate) struct HeldVolume<'a> {
        persistent_volume_claim_info: ClaimInfo<'a>,
    }

    pub(crate) struct ClaimInfo<'a> {
        claim_name: &'a str,
    }

    /// A volume that moves to another claim.
    pub(crate) struct MigratedVolume<'a> {
        volume_name: &'a str,
        source_pvc_info as "sourcePVCInfo": ClaimInfo<'a>,
        destination_pvc_info as "destinationPVCInfo": ClaimInfo<'a>,
    }
}

impl<'a> VolumeFields<'a> {
    /// The PersistentVolumeClaim of a volume: its own, or that of its DataVolume.
    pub(crate) fn claim(&self) -> Option<&'a str> {
        let names = [self.persistent_volume_claim.claim_name, self.data_volume.name];
        names.into_iter().find(|name| !name.is_empty())
    }

    pub(crate) fn is_pluggable(&self) -> bool {
        self.data_volume.hotpluggable || self.persistent_volume_claim.hotpluggable
    }
}

impl<'a> MigratedVolume<'a> {
    pub(crate) fn source(&self) -> &'a str {
        self.source_pvc_info.claim_name
    }

    pub(crate) fn target(&self) -> &'a str {
        self.destination_pvc_info.claim_name
    }
}
