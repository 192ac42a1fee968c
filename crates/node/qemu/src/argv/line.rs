//! A command line in the making, and the PCI ports that have been given away on it.

use std::ffi::OsString;

use serde_json::{Map, Value, json};

use crate::machine::DeviceLayout;

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

    /// The root port of one device, to be used as its bus; one that is added for it, unless all
    /// devices have their places.
    pub(crate) fn port(&mut self, device: &str) -> String {
        if let Some(layout) = &self.layout {
            let known = layout.devices.get(device).cloned();
            // QEMU refuses a bus that does not exist, and the machine is not started.
            return known.unwrap_or_else(|| format!("no-port-of-{device}"));
        }
        let name = format!("port{}", self.ports);
        self.add_port(&name);
        name
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
