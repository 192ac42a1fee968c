//! Changing a machine while it runs: disks, interfaces, media, processors, memory.
//!
//! Plugging undoes its first half when the second fails. Unplugging is done when QEMU reports that
//! the guest has released the device; a guest that does not answer is an error, and the device
//! stays. Both may be repeated: a state that is already reached is no error.

use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::{Qmp, QmpError};
use crate::argv::disk::BusPosition;
use crate::argv::{self, GROWTH_DEVICE};
use crate::machine::{Bus, Disk, DiskSource, LinkState, Nic};

/// How often a tray that the guest closes is opened again.
const TRAY_TRIES: u32 = 20;

/// Why a device is still there, or still not.
#[derive(Debug, thiserror::Error)]
pub enum UnplugError {
    #[error("cannot unplug {device}: the guest refused")]
    Refused { device: String },
    #[error("cannot unplug {device}: the guest did not release it within {} s", limit.as_secs_f32())]
    TimedOut { device: String, limit: Duration },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

impl Qmp {
    /// The ids of all devices that were named on the command line or plugged since.
    pub async fn device_ids(&self) -> Result<Vec<String>, QmpError> {
        let children: Vec<Value> =
            self.execute("qom-list", json!({ "path": "/machine/peripheral" })).await?;
        let ids = children.iter().filter_map(|child| child["name"].as_str());
        Ok(ids.filter(|id| *id != "type").map(str::to_owned).collect())
    }

    /// An empty port for a device, of those that `Devices::spare_ports` made.
    async fn free_port(&self, command: &str) -> Result<String, QmpError> {
        let buses: Vec<Value> = self.execute("query-pci", json!({})).await?;
        free_port(&buses).ok_or_else(|| QmpError::Refused {
            command: command.to_owned(),
            class: "GenericError".to_owned(),
            description: "no free PCI port is left for hot-plug".to_owned(),
        })
    }

    /// Gives a running machine another disk.
    pub async fn plug_disk(&self, disk: &Disk) -> Result<(), QmpError> {
        let command = format!("plug disk {}", disk.name);
        if self.device_ids().await?.contains(&disk.id()) {
            return Ok(());
        }
        let place = match disk.bus {
            Bus::Virtio => BusPosition::Pci(self.free_port(&command).await?),
            Bus::Scsi => BusPosition::AnyLun,
            Bus::Usb => BusPosition::Usb,
            Bus::Sata => {
                return Err(QmpError::Refused {
                    command,
                    class: "GenericError".to_owned(),
                    description: "the sata bus takes no disks while the guest runs".to_owned(),
                });
            }
        };
        self.add_nodes(disk).await?;
        if let DiskSource::VhostUser { socket } = &disk.source {
            let backend = json!({ "type": "socket", "data": {
                "addr": { "type": "unix", "data": { "path": socket } },
                "server": false,
                "reconnect": 1,
            }});
            self.run("chardev-add", json!({ "id": disk.storage_node(), "backend": backend }))
                .await?;
        }
        let device = argv::disk::device(disk, &place);
        let plugged = self.run("device_add", device).await;
        if plugged.is_err() {
            self.remove_nodes(disk).await?;
        }
        plugged
    }

    /// Takes a disk away from a running machine. `limit` is for the guest to let it go.
    pub async fn unplug_disk(&self, disk: &Disk, limit: Duration) -> Result<(), UnplugError> {
        self.unplug(&disk.id(), limit).await?;
        self.remove_nodes(disk).await?;
        Ok(())
    }

    async fn add_nodes(&self, disk: &Disk) -> Result<(), QmpError> {
        // Left by an attempt that ended between the two halves.
        self.remove_nodes(disk).await?;
        self.show(disk).await?;
        for node in argv::disk::nodes(disk) {
            if let Err(error) = self.run("blockdev-add", node).await {
                self.remove_nodes(disk).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) async fn remove_nodes(&self, disk: &Disk) -> Result<(), QmpError> {
        if let DiskSource::VhostUser { .. } = disk.source {
            let removed = self.run("chardev-remove", json!({ "id": disk.storage_node() })).await;
            return ignore_missing(removed);
        }
        for node in [disk.node(), disk.storage_node()] {
            ignore_missing(self.run("blockdev-del", json!({ "node-name": node })).await)?;
        }
        self.hide(disk).await;
        Ok(())
    }

    /// Removes a device and waits until it is gone.
    pub async fn unplug(&self, device: &str, limit: Duration) -> Result<(), UnplugError> {
        let mut events = self.events();
        match self.run("device_del", json!({ "id": device })).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(()),
            // Asked before and not answered yet: wait like the first time.
            Err(QmpError::Refused { description, .. })
                if description.contains("already in the process of unplug") => {}
            Err(error) => return Err(error.into()),
        }
        let gone = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.deleted_device() == Some(device) => return Ok(()),
                    Ok(event) if event.unplug_refused() == Some(device) => {
                        return Err(UnplugError::Refused { device: device.to_owned() });
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => {
                        if !self.device_ids().await?.iter().any(|id| id == device) {
                            return Ok(());
                        }
                    }
                    Err(RecvError::Closed) => {
                        let command = "device_del".to_owned();
                        return Err(QmpError::Closed { command, source: None }.into());
                    }
                }
            }
        };
        tokio::select! {
            gone = tokio::time::timeout(limit, gone) => gone.unwrap_or_else(|_| {
                Err(UnplugError::TimedOut { device: device.to_owned(), limit })
            }),
            () = self.closed() => {
                let command = "device_del".to_owned();
                Err(QmpError::Closed { command, source: self.closed.borrow().clone() }.into())
            }
        }
    }

    /// Puts another medium into a drive, or none if the source is empty.
    pub async fn change_medium(&self, drive: &Disk) -> Result<(), QmpError> {
        let id = drive.id();
        self.take_medium(&id).await?;
        self.remove_nodes(drive).await?;
        if drive.source != DiskSource::Empty {
            self.add_nodes(drive).await?;
            let medium = json!({ "id": id, "node-name": drive.node() });
            self.with_open_tray(&id, "blockdev-insert-medium", medium).await?;
        }
        self.run("blockdev-close-tray", json!({ "id": id })).await
    }

    async fn take_medium(&self, id: &str) -> Result<(), QmpError> {
        let removed = self.with_open_tray(id, "blockdev-remove-medium", json!({ "id": id }));
        ignore_missing(removed.await)
    }

    /// A guest that manages its drive may close the tray again before we reach in.
    async fn with_open_tray(&self, id: &str, command: &str, with: Value) -> Result<(), QmpError> {
        let mut tries = TRAY_TRIES;
        loop {
            self.run("blockdev-open-tray", json!({ "id": id, "force": true })).await?;
            tries -= 1;
            match self.run(command, with.clone()).await {
                Err(QmpError::Refused { description, .. })
                    if tries > 0 && description.contains("is not open") => {}
                done => return done,
            }
        }
    }

    /// Gives a running machine another interface. `taps` and `vhosts` have one entry per queue.
    pub async fn plug_nic(
        &self,
        nic: &Nic,
        taps: Vec<OwnedFd>,
        vhosts: Vec<OwnedFd>,
    ) -> Result<(), QmpError> {
        if self.device_ids().await?.contains(&nic.id()) {
            return Ok(());
        }
        let bus = self.free_port(&format!("plug interface {}", nic.name)).await?;
        ignore_missing(self.run("netdev_del", json!({ "id": nic.host_id() })).await)?;
        let taps = self.hand_over(&format!("tap-{}", nic.name), taps).await?;
        let vhosts = self.hand_over(&format!("vhost-{}", nic.name), vhosts).await?;
        self.run("netdev_add", argv::nic::netdev_object(nic, &taps, &vhosts)).await?;
        let plugged = self.run("device_add", argv::nic::device(nic, &bus)).await;
        if plugged.is_err() {
            self.run("netdev_del", json!({ "id": nic.host_id() })).await?;
            return plugged;
        }
        match nic.link {
            LinkState::Up => Ok(()),
            LinkState::Down => self.set_link(&nic.id(), false).await,
        }
    }

    async fn hand_over(&self, name: &str, fds: Vec<OwnedFd>) -> Result<Vec<String>, QmpError> {
        let mut names = Vec::new();
        for (index, fd) in fds.into_iter().enumerate() {
            let name = format!("{name}-{index}");
            self.run_with_fds("getfd", json!({ "fdname": name }), vec![fd]).await?;
            names.push(name);
        }
        Ok(names)
    }

    /// Takes an interface away from a running machine.
    pub async fn unplug_nic(&self, nic: &Nic, limit: Duration) -> Result<(), UnplugError> {
        self.unplug(&nic.id(), limit).await?;
        ignore_missing(self.run("netdev_del", json!({ "id": nic.host_id() })).await)?;
        Ok(())
    }

    /// Fills processor sockets until `sockets` are filled; returns how many processors came.
    pub async fn fill_sockets(&self, sockets: u32) -> Result<usize, QmpError> {
        let slots = self.cpu_slots().await?;
        let empty =
            slots.iter().filter(|slot| !slot.is_filled() && slot.socket() < u64::from(sockets));
        let mut added = 0;
        for slot in empty {
            let part = |name: &str| slot.props[name].as_u64().unwrap_or(0);
            let id = format!("cpu-{}-{}-{}", part("socket-id"), part("core-id"), part("thread-id"));
            let mut device = slot.props.clone();
            device["driver"] = json!(slot.driver);
            device["id"] = json!(id);
            self.run("device_add", device).await?;
            added += 1;
        }
        Ok(added)
    }

    /// Asks the guest to use `bytes` of the memory that was set aside for growth.
    pub async fn request_growth(&self, bytes: u64) -> Result<(), QmpError> {
        let path = format!("/machine/peripheral/{GROWTH_DEVICE}");
        let property = "requested-size";
        self.run("qom-set", json!({ "path": path, "property": property, "value": bytes })).await
    }

    /// How much of the memory for growth the guest uses now.
    pub async fn growth(&self) -> Result<u64, QmpError> {
        let path = format!("/machine/peripheral/{GROWTH_DEVICE}");
        self.execute("qom-get", json!({ "path": path, "property": "size" })).await
    }
}

pub(super) fn ignore_missing(result: Result<(), QmpError>) -> Result<(), QmpError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// The first spare port with nothing behind it.
fn free_port(buses: &[Value]) -> Option<String> {
    let devices = buses.iter().filter_map(|bus| bus["devices"].as_array()).flatten();
    let mut free: Vec<&str> = devices
        .filter_map(|device| {
            let id = device["qdev_id"].as_str().filter(|id| id.starts_with("hot"))?;
            let behind = device["pci_bridge"]["devices"].as_array();
            behind.is_none_or(Vec::is_empty).then_some(id)
        })
        .collect();
    free.sort_by_key(|id| id[3..].parse::<u32>().unwrap_or(u32::MAX));
    free.first().map(|id| (*id).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_port_without_a_device_is_free() {
        let port = |id: &str, devices: Value| {
            json!({
                "qdev_id": id, "pci_bridge": { "bus": {}, "devices": devices },
            })
        };
        let buses = |ports: Vec<Value>| vec![json!({ "bus": 0, "devices": ports })];
        let taken = json!([{ "qdev_id": "ua-data" }]);
        let both = buses(vec![port("hot10", json!([])), port("hot2", json!([]))]);
        assert_eq!(free_port(&both).as_deref(), Some("hot2"));
        let one = buses(vec![
            port("port0", json!([])),
            port("hot0", taken.clone()),
            json!({ "qdev_id": "hot1", "pci_bridge": { "bus": {} } }),
        ]);
        assert_eq!(free_port(&one).as_deref(), Some("hot1"));
        assert_eq!(free_port(&buses(vec![port("hot0", taken)])), None);
    }
}
