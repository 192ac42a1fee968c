//! Why what an object requests of the host's network cannot be set up on this node.

use std::num::TryFromIntError;

use net::{BondModeError, LinkNameError, VlanIdError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostNetworkRequestError {
    #[error(transparent)]
    Name(#[from] LinkNameError),
    #[error(transparent)]
    Mode(#[from] BondModeError),
    #[error("MTU: {0}")]
    Mtu(TryFromIntError),
    #[error("linkAttributes.hardwareAddr {0:?} must be six bytes in base64")]
    Mac(String),
    #[error("vlanID {0} must be between 1 and 4094")]
    NegativeVlan(i32),
    #[error(transparent)]
    Vlan(#[from] VlanIdError),
    #[error("static IP not found for node {0}")]
    NoAddress(String),
    #[error("{0:?} must be an address with the length of its network, as 192.0.2.7/24")]
    Address(String),
}
