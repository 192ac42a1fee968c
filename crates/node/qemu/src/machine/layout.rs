//! Where the devices of a running machine are, for another QEMU that is to be the same machine.
//!
//! A machine that is started places its devices one after another. Once devices were plugged in or
//! out, that order would give other addresses; a [`DeviceLayout`] names them instead.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The buses and addresses of a machine's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceLayout {
    /// Root ports that were made for devices at the start: `port0` and up. Spare ones are counted
    /// by `Devices::spare_ports`.
    pub ports: u32,
    /// The root port of each PCI device, by the device's id.
    pub devices: BTreeMap<String, String>,
    /// The logical unit of each SCSI disk, by the device's id.
    pub luns: BTreeMap<String, u32>,
}
