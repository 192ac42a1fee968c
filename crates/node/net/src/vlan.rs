//! VLANs of the ports of a bridge.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A VLAN that frames can be tagged with: 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct VlanId(u16);

impl From<VlanId> for u64 {
    fn from(vlan: VlanId) -> Self {
        vlan.0.into()
    }
}

/// A number that is no VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("VLAN {number} must be between 1 and 4094")]
pub struct VlanIdError {
    pub number: u64,
}

impl VlanId {
    /// The VLAN of frames that are untagged outside.
    pub const UNTAGGED: Self = Self(1);

    pub fn number(self) -> u16 {
        self.0
    }
}

impl TryFrom<u64> for VlanId {
    type Error = VlanIdError;

    fn try_from(number: u64) -> Result<Self, VlanIdError> {
        let fits = (1..=4094).contains(&number).then(|| u16::try_from(number).ok()).flatten();
        fits.map(Self).ok_or(VlanIdError { number })
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a port handles the frames of one VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VlanRole {
    /// They are tagged on the port.
    Tagged,
    /// They leave untagged, and frames that come in untagged belong to it.
    Native,
    /// They leave untagged, but nothing that comes in untagged belongs to it.
    UntaggedOut,
    /// Frames that come in untagged belong to it, and leave tagged.
    UntaggedIn,
}

/// The VLANs of a port, and what it does with each. A port with none carries nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortVlan(BTreeMap<VlanId, VlanRole>);

impl PortVlan {
    /// One VLAN, whose frames are untagged on the port.
    pub fn access(vlan: VlanId) -> Self {
        Self(BTreeMap::from([(vlan, VlanRole::Native)]))
    }

    /// The network whose frames are untagged outside too.
    pub fn untagged() -> Self {
        Self::access(VlanId::UNTAGGED)
    }

    /// Tagged VLANs beside the untagged network.
    pub fn trunk(tagged: impl IntoIterator<Item = VlanId>) -> Self {
        let mut vlans: BTreeMap<_, _> =
            tagged.into_iter().map(|vlan| (vlan, VlanRole::Tagged)).collect();
        vlans.insert(VlanId::UNTAGGED, VlanRole::Native);
        Self(vlans)
    }

    /// Whether the port has one VLAN only, untagged.
    pub fn is_access(&self) -> bool {
        self.0.len() == 1 && self.0.values().all(|role| *role == VlanRole::Native)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (VlanId, VlanRole)> + '_ {
        self.0.iter().map(|(vlan, role)| (*vlan, *role))
    }

    pub fn role(&self, vlan: VlanId) -> Option<VlanRole> {
        self.0.get(&vlan).copied()
    }

    pub(crate) fn insert(&mut self, vlan: VlanId, role: VlanRole) {
        self.0.insert(vlan, role);
    }

    #[cfg(test)]
    pub(crate) fn remove(&mut self, vlan: VlanId) {
        self.0.remove(&vlan);
    }

    /// The VLANs that are not as in `wanted` and must go before anything is added.
    pub(crate) fn excess<'a>(&'a self, wanted: &'a Self) -> impl Iterator<Item = VlanId> + 'a {
        self.iter().filter(|(vlan, role)| wanted.role(*vlan) != Some(*role)).map(|(vlan, _)| vlan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_a_tag_can_hold_are_vlans() {
        let fits = |number: u64| VlanId::try_from(number).is_ok();
        assert_eq!([0, 1, 4094, 4095, 65_537].map(fits), [false, true, true, false, false]);
    }

    #[test]
    fn a_vlan_with_another_role_goes_first() {
        let vlan = |number: u64| VlanId::try_from(number).unwrap();
        let was = PortVlan::access(vlan(10));
        let wanted = PortVlan::trunk([vlan(10), vlan(11)]);
        assert_eq!(was.excess(&wanted).collect::<Vec<_>>(), [vlan(10)]);
        assert_eq!(wanted.excess(&wanted).count(), 0);
        assert!(was.is_access() && !wanted.is_access() && !PortVlan::default().is_access());
    }
}
