//! The PCI bus of a device, as a guest sees it. Every device that is not part of the board is behind
//! a root port of its own, so a bus has one device, in slot 0.

use serde::{Deserialize, Serialize};

/// The highest bus that can be named: the board has slots for 176 root ports, and those of devices
/// without a named bus and of devices that are plugged in later come on top.
const HIGHEST: u8 = 0x80;

/// A bus behind a root port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PciBus(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the PCI address has to be 0000:BB:00.0, with a bus BB from 01 to {HIGHEST:02x}: each device is \
     behind a root port of its own"
)]
pub struct PciAddressError;

impl PciBus {
    /// Reads an address such as `0000:05:00.0`.
    pub fn from_address(address: &str) -> Result<Self, PciAddressError> {
        let bus = address.strip_prefix("0000:").and_then(|rest| rest.strip_suffix(":00.0"));
        let digits =
            |bus: &&str| bus.len() == 2 && bus.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bus = bus.filter(digits);
        let bus = bus.and_then(|bus| u8::from_str_radix(bus, 16).ok());
        bus.filter(|bus| (1..=HIGHEST).contains(bus)).map(Self).ok_or(PciAddressError)
    }

    /// The index of the root port.
    pub(crate) fn port(self) -> u32 {
        u32::from(self.0) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_behind_a_root_port_can_be_had() {
        for (address, port) in [
            ("0000:01:00.0", Some(0)),
            ("0000:0a:00.0", Some(9)),
            ("0000:80:00.0", Some(127)),
            ("0000:81:00.0", None),
            ("0000:00:05.0", None),
            ("0000:02:01.0", None),
            ("0000:02:00.1", None),
            ("0001:02:00.0", None),
            ("0000:+1:00.0", None),
            ("0000:1:00.0", None),
        ] {
            let found = PciBus::from_address(address).ok().map(PciBus::port);
            assert_eq!(found, port, "{address}");
        }
    }
}
