//! The persistent volume that a claim is bound to.
//!
//! Any user who may create a claim chooses its `spec.volumeName`, so that name alone proves
//! nothing. The volume's `claimRef` is written by the cluster: the two must agree.

use serde_json::Value;

use crate::state::text;

/// The claim's side of a binding.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClaimSide<'a> {
    pub uid: &'a str,
    pub phase: &'a str,
    pub volume_name: &'a str,
}

/// The persistent volume's side of a binding.
#[derive(Debug, Clone, Copy, Default)]
pub struct VolumeSide<'a> {
    pub name: &'a str,
    pub claim_uid: &'a str,
}

/// Whether claim and volume are bound to each other.
pub fn is_bound(claim: ClaimSide<'_>, volume: VolumeSide<'_>) -> bool {
    claim.phase == "Bound"
        && !claim.uid.is_empty()
        && !claim.volume_name.is_empty()
        && claim.volume_name == volume.name
        && claim.uid == volume.claim_uid
}

/// The same for whole objects.
pub fn are_bound(claim: &Value, volume: &Value) -> bool {
    let claim = ClaimSide {
        uid: text(claim, "/metadata/uid"),
        phase: text(claim, "/status/phase"),
        volume_name: text(claim, "/spec/volumeName"),
    };
    let volume = VolumeSide {
        name: text(volume, "/metadata/name"),
        claim_uid: text(volume, "/spec/claimRef/uid"),
    };
    is_bound(claim, volume)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_has_the_volume_that_refers_to_it() {
        for (uid, phase, named, claim_uid, expected) in [
            ("u", "Bound", "v", "u", true),
            ("u", "Pending", "v", "u", false),
            ("u", "Bound", "other", "u", false),
            // A tenant named the volume of another tenant's claim.
            ("u", "Bound", "v", "victim", false),
            ("u", "Bound", "v", "", false),
            ("", "Bound", "v", "", false),
        ] {
            let claim = json!({"metadata": {"uid": uid}, "spec": {"volumeName": named},
                "status": {"phase": phase}});
            let volume =
                json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"uid": claim_uid}}});
            assert_eq!(are_bound(&claim, &volume), expected, "{claim} {volume}");
        }
    }
}
