//! Volumes of virtual machines, as far as claims are concerned.

use serde_json::Value;

use crate::object::read;

fields! {
    /// A machine that has volumes.
    struct VolumesOwner<'a> {
        spec: VolumesOwnerSpec<'a>,
    }

    struct VolumesOwnerSpec<'a> {
        volumes: Vec<VmVolume<'a>>,
    }

    struct VmVolume<'a> {
        persistent_volume_claim: VmClaim<'a>,
        data_volume: VmDataVolume<'a>,
        ephemeral: VmEphemeralVolume<'a>,
        memory_dump: VmClaim<'a>,
    }

    struct VmClaim<'a> {
        claim_name: &'a str,
    }

    struct VmDataVolume<'a> {
        name: &'a str,
    }

    struct VmEphemeralVolume<'a> {
        persistent_volume_claim: VmClaim<'a>,
    }
}

impl<'a> VmVolume<'a> {
    fn claim(&self) -> &'a str {
        let names = [
            self.persistent_volume_claim.claim_name,
            self.data_volume.name,
            self.ephemeral.persistent_volume_claim.claim_name,
            self.memory_dump.claim_name,
        ];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }
}

/// Whether an instance has a disk whose bytes are those of this claim.
pub(crate) fn has_disk_on(instance: &Value, claim: &str) -> bool {
    let volumes = read::<VolumesOwner<'_>>(instance).spec.volumes;
    let is_own = |volume: &VmVolume<'_>| {
        volume.persistent_volume_claim.claim_name == claim || volume.data_volume.name == claim
    };
    !claim.is_empty() && volumes.iter().any(is_own)
}

/// Whether an instance has a volume of this claim.
pub(crate) fn has_claim(instance: &Value, claim: &str) -> bool {
    let volumes = read::<VolumesOwner<'_>>(instance).spec.volumes;
    !claim.is_empty() && volumes.iter().any(|volume| volume.claim() == claim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_may_be_named_in_four_ways() {
        for volume in [
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            json!({"dataVolume": {"name": "c"}}),
            json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}),
            json!({"memoryDump": {"claimName": "c"}}),
        ] {
            let instance = json!({"spec": {"volumes": [{"containerDisk": {}}, volume]}});
            assert!(has_claim(&instance, "c") && !has_claim(&instance, "d"), "{instance}");
        }
        assert!(!has_claim(&json!({"spec": {"volumes": [{"dataVolume": {}}]}}), ""));
    }
}
