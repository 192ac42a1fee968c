//! Requests of the object to move volumes. Pure.

use virt::reason::VolumesChange;
use virt::v1::{PersistentVolumeClaimVolumeSource, Volume};

use super::plan::Side;
use crate::machine::Vmi;

/// An entry of `status.migratedVolumes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MoveRequest {
    pub(super) volume: String,
    pub(super) source: String,
    pub(super) target: String,
}

impl MoveRequest {
    pub(super) fn claim(&self, side: Side) -> &str {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }
}

/// The volumes that move, by the status of the object.
pub(super) fn requests(vmi: &Vmi) -> Vec<MoveRequest> {
    let all = vmi.status["migratedVolumes"].as_array();
    let read = |entry: &serde_json::Value| {
        Some(MoveRequest {
            volume: entry["volumeName"].as_str()?.to_owned(),
            source: entry["sourcePVCInfo"]["claimName"].as_str()?.to_owned(),
            target: entry["destinationPVCInfo"]["claimName"].as_str()?.to_owned(),
        })
    };
    all.into_iter().flatten().filter_map(read).collect()
}

/// Whether the object says that guests may be on either claim.
pub(super) fn is_announced(vmi: &Vmi) -> bool {
    let conditions = vmi.status["conditions"].as_array();
    conditions.into_iter().flatten().any(|own| {
        own["type"] == "VolumesChange" && own["reason"] == VolumesChange::Switching.as_str()
    })
}

/// Whether a volume moves to another claim now.
pub(in crate::vmi) fn is_moving(vmi: &Vmi, volume: &str) -> bool {
    requests(vmi).iter().any(|request| request.volume == volume)
}

/// The claim that a volume names.
pub(super) fn claim_name(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
    claim.or(volume.data_volume.as_ref().map(|source| source.name.as_str()))
}

/// A volume with another claim behind it.
pub(super) fn with_claim(volume: &Volume, claim: &str) -> Volume {
    if claim_name(volume) == Some(claim) {
        return volume.clone();
    }
    let source = PersistentVolumeClaimVolumeSource {
        claim_name: claim.to_owned(),
        ..PersistentVolumeClaimVolumeSource::default()
    };
    Volume { name: volume.name.clone(), persistent_volume_claim: Some(source), ..Volume::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    #[test]
    fn moves_are_read_from_the_status() {
        let mut vmi = vmi(json!({"domain": {"devices": {}}}));
        vmi.status["migratedVolumes"] = json!([
            {"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
                "destinationPVCInfo": {"claimName": "new"}},
            {"volumeName": "half", "sourcePVCInfo": {"claimName": "old"}},
        ]);
        let [request] = requests(&vmi).try_into().unwrap();
        assert_eq!((request.claim(Side::Source), request.claim(Side::Target)), ("old", "new"));
        assert!(is_moving(&vmi, "root") && !is_moving(&vmi, "half"));
        for (reason, expected) in [("CopyingVolumes", false), ("SwitchingVolumes", true)] {
            vmi.status["conditions"] = json!([{"type": "VolumesChange", "reason": reason}]);
            assert_eq!(is_announced(&vmi), expected);
        }
    }

    #[test]
    fn another_claim_takes_the_place_of_a_data_volume() {
        let volume: Volume =
            serde_json::from_value(json!({"name": "root", "dataVolume": {"name": "d"}})).unwrap();
        assert_eq!(with_claim(&volume, "d"), volume);
        let other = with_claim(&volume, "e");
        assert_eq!((other.name.as_str(), claim_name(&other)), ("root", Some("e")));
        assert!(other.data_volume.is_none());
    }
}
