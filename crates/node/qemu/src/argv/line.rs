//! A command line in the making, and the PCI ports that have been given away on it.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde_json::{Map, Value, json};

use crate::machine::{DeviceLayout, PciBus};

/// Where devices without a port of their own sit. Ports fill the slots from 2 up; the chipset
/// itself is at 0 and 1f.
pub(super) mod slot {
    pub(in crate::argv) const VIDEO: &str = "1.0";
    pub(in crate::argv) const PANIC: &str = "18.0";
    /// Further controllers follow in the functions of this slot.
    pub(in crate::argv) const SATA: &str = "19";
    pub(in crate::argv) const WATCHDOG: &str = "1a.0";
    pub(in crate::argv) const SOUND: &str = "1b.0";
    pub(in crate::argv) const USB: &str = "1c.0";
}

const FIRST_SLOT: u32 = 2;
const PORTS_PER_SLOT: u32 = 8;

#[derive(Debug, Default)]
pub(crate) struct Line {
    args: Vec<OsString>,
    ports: u32,
    /// The first port that may be given to a device without a bus of its own.
    free: u32,
    /// Buses that devices were given by name.
    reserved: BTreeSet<PciBus>,
    /// Where devices are; nothing while they are placed one after another.
    layout: Option<DeviceLayout>,
}

impl Line {
    pub(crate) fn flag(&mut self, name: &str) {
        self.args.push(name.into());
    }

    pub(crate) fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.args.push(name.into());
        self.args.push(value.into());
    }

    pub(crate) fn json(&mut self, name: &str, value: &Value) {
        self.option(name, value.to_string());
    }

    pub(crate) fn device(&mut self, value: &Value) {
        self.json("-device", value);
    }

    pub(crate) fn object(&mut self, value: &Value) {
        self.json("-object", value);
    }

    /// Adds all root ports of a machine whose devices have their places already.
    pub(crate) fn lay_out(&mut self, layout: &DeviceLayout, spare: u8) {
        for index in 0..layout.ports {
            self.add_port(&format!("port{index}"));
        }
        self.spare_ports(spare);
        self.layout = Some(layout.clone());
    }

    /// Keeps buses for the devices that name them.
    pub(crate) fn reserve(&mut self, buses: impl Iterator<Item = PciBus>) {
        self.reserved.extend(buses);
    }

    /// The root port of one device, to be used as its bus; the next free one unless the device has
    /// a place in the layout of the machine or names the bus itself.
    pub(crate) fn port(&mut self, device: &str, bus: Option<PciBus>) -> String {
        if let Some(layout) = &self.layout {
            let known = layout.devices.get(device).cloned();
            // QEMU refuses a bus that does not exist, and the machine is not started.
            return known.unwrap_or_else(|| format!("no-port-of-{device}"));
        }
        let index = bus.map_or_else(|| self.next_free(), PciBus::port);
        while self.ports <= index {
            let name = format!("port{}", self.ports);
            self.add_port(&name);
        }
        format!("port{index}")
    }

    /// Ports are numbered from 0, the buses behind them from 1: firmware numbers buses in the order
    /// of the ports.
    fn next_free(&mut self) -> u32 {
        while self.reserved.iter().any(|bus| bus.port() == self.free) {
            self.free += 1;
        }
        self.free += 1;
        self.free - 1
    }

    /// The unit of a SCSI disk, if all devices have their places.
    pub(crate) fn lun(&self, device: &str) -> Option<u32> {
        self.layout.as_ref()?.luns.get(device).copied()
    }

    /// Adds ports for devices that are plugged in later.
    pub(crate) fn spare_ports(&mut self, count: u8) {
        if self.layout.is_some() {
            return;
        }
        for index in 0..count {
            self.add_port(&format!("hot{index}"));
        }
    }

    fn add_port(&mut self, name: &str) {
        let (slot, function) = (self.ports / PORTS_PER_SLOT, self.ports % PORTS_PER_SLOT);
        let mut port = json!({
            "driver": "pcie-root-port",
            "id": name,
            "bus": "pcie.0",
            "chassis": self.ports + 1,
            "port": self.ports,
            "addr": format!("{:x}.{function:x}", FIRST_SLOT + slot),
        });
        if function == 0 {
            port["multifunction"] = json!(true);
        }
        self.device(&port);
        self.ports += 1;
    }

    pub(crate) fn finish(self) -> Vec<OsString> {
        self.args
    }
}

/// A comma ends a value in QEMU's key=value syntax unless it is doubled.
pub(crate) fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

/// Adds `key` if there is a value for it.
pub(crate) fn set_some<T: Into<Value>>(object: &mut Value, key: &str, value: Option<T>) {
    if let Some(value) = value {
        object[key] = value.into();
    }
}

/// An empty JSON object to be filled key by key.
pub(crate) fn object() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_bus_is_kept_for_its_device_and_the_others_fill_the_gaps() {
        let bus = |number: u8| PciBus::from_address(&format!("0000:{number:02x}:00.0")).unwrap();
        let mut line = Line::default();
        line.reserve([bus(2), bus(6)].into_iter());
        let mut given = Vec::new();
        for (device, bus) in
            [("a", None), ("b", Some(bus(6))), ("c", None), ("d", Some(bus(2))), ("e", None)]
        {
            given.push(line.port(device, bus));
        }
        assert_eq!(given, ["port0", "port5", "port2", "port1", "port3"]);
        let ports: Vec<Value> = line
            .finish()
            .iter()
            .filter_map(|word| serde_json::from_str(word.to_str()?).ok())
            .collect();
        let names: Vec<&Value> = ports.iter().map(|port: &Value| &port["id"]).collect();
        assert_eq!(names, ["port0", "port1", "port2", "port3", "port4", "port5"]);
    }
}
