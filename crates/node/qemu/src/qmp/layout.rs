//! Where the devices of a running machine are: QEMU's answer, whatever was plugged in or out.
//!
//! The QOM tree is asked and not `query-pci`, which sees nothing behind a port before the firmware
//! has numbered the buses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Qmp, QmpError};
use crate::machine::{Bus, DeviceLayout, Machine};

const PERIPHERAL: &str = "/machine/peripheral";

impl Qmp {
    /// The layout that another QEMU needs to take `machine` in.
    pub async fn layout(&self, machine: &Machine) -> Result<DeviceLayout, QmpError> {
        let mut buses = BTreeMap::new();
        for id in self.device_ids().await? {
            let bus: Value = self.property(&id, "parent_bus").await?;
            buses.insert(id, bus.as_str().unwrap_or_default().to_owned());
        }
        let mut luns = BTreeMap::new();
        for disk in machine.disks.iter().filter(|disk| disk.bus == Bus::Scsi) {
            luns.insert(disk.id(), self.property(&disk.id(), "lun").await?);
        }
        Ok(layout(&buses, luns))
    }

    async fn property<T: serde::de::DeserializeOwned>(
        &self,
        device: &str,
        property: &str,
    ) -> Result<T, QmpError> {
        let path = format!("{PERIPHERAL}/{device}");
        self.execute("qom-get", json!({ "path": path, "property": property })).await
    }
}

/// Reads the bus of each device: `/machine/peripheral/port3/port3` is that of the port `port3`.
fn layout(buses: &BTreeMap<String, String>, luns: BTreeMap<String, u32>) -> DeviceLayout {
    let is_port = |name: &str, prefix: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let ports = buses.keys().filter(|id| is_port(id, "port")).count();
    let mut devices = BTreeMap::new();
    for (id, bus) in buses {
        let port = bus.strip_prefix(PERIPHERAL).and_then(|path| path[1..].split('/').next());
        if let Some(port) = port.filter(|port| is_port(port, "port") || is_port(port, "hot")) {
            devices.insert(id.clone(), port.to_owned());
        }
    }
    DeviceLayout { ports: u32::try_from(ports).unwrap_or(u32::MAX), devices, luns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_behind_the_port_whose_bus_it_is_on() {
        let buses: BTreeMap<String, String> = [
            ("port0", "/machine/q35/pcie.0"),
            ("port1", "/machine/q35/pcie.0"),
            ("hot0", "/machine/q35/pcie.0"),
            ("hot1", "/machine/q35/pcie.0"),
            ("scsi0", "/machine/peripheral/port1/port1"),
            ("ua-late", "/machine/peripheral/hot1/hot1"),
            ("ua-unit", "/machine/peripheral/scsi0/virtio-backend/scsi0.0"),
            ("ua-portable", "/machine/unattached/device[7]/ide.0"),
            ("agent", "/machine/peripheral/channels/channels.0"),
            ("com1", ""),
        ]
        .map(|(id, bus)| (id.to_owned(), bus.to_owned()))
        .into();
        let luns = BTreeMap::from([("ua-unit".to_owned(), 3)]);
        let found = layout(&buses, luns.clone());
        let devices = [("scsi0", "port1"), ("ua-late", "hot1")];
        let devices = devices.map(|(id, port)| (id.to_owned(), port.to_owned())).into();
        assert_eq!(found, DeviceLayout { ports: 2, devices, luns });
    }
}
