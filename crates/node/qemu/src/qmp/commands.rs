//! The monitor commands that Sheaf uses, one method each.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::types::{BlockStats, CpuSlot, RunState, Vcpu};
use super::{Qmp, QmpError};

#[derive(Deserialize)]
struct VmRunStatus {
    status: String,
}

#[derive(Deserialize)]
struct Balloon {
    actual: u64,
}

impl Qmp {
    pub async fn run_state(&self) -> Result<RunState, QmpError> {
        let status: VmRunStatus = self.execute("query-status", json!({})).await?;
        Ok(RunState::from_name(&status.status))
    }

    /// Pauses the guest's processors.
    pub async fn pause(&self) -> Result<(), QmpError> {
        self.run("stop", json!({})).await
    }

    /// Lets the guest's processors run.
    pub async fn resume(&self) -> Result<(), QmpError> {
        self.run("cont", json!({})).await
    }

    pub async fn reset(&self) -> Result<(), QmpError> {
        self.run("system_reset", json!({})).await
    }

    /// Presses the guest's power button.
    pub async fn power_down(&self) -> Result<(), QmpError> {
        self.run("system_powerdown", json!({})).await
    }

    /// Ends the QEMU process.
    pub async fn quit(&self) -> Result<(), QmpError> {
        self.run("quit", json!({})).await
    }

    /// Makes QEMU write a picture of the first screen to `path`, in a folder that it may write.
    pub async fn screendump(&self, path: &Path) -> Result<(), QmpError> {
        self.run("screendump", json!({ "filename": path, "format": "png" })).await
    }

    /// The balloon's present size: how much memory the guest has.
    pub async fn balloon_size(&self) -> Result<u64, QmpError> {
        let balloon: Balloon = self.execute("query-balloon", json!({})).await?;
        Ok(balloon.actual)
    }

    /// Asks the guest to make do with `size` bytes.
    pub async fn balloon(&self, size: u64) -> Result<(), QmpError> {
        self.run("balloon", json!({ "value": size })).await
    }

    /// The guest's memory statistics, by QEMU's names (`stat-free-memory`, …).
    pub async fn balloon_statistics(&self) -> Result<Value, QmpError> {
        let path = format!("/machine/peripheral/{}", crate::argv::device::BALLOON);
        let stats: Value =
            self.execute("qom-get", json!({ "path": path, "property": "guest-stats" })).await?;
        Ok(stats["stats"].clone())
    }

    /// How often the guest is to report; QEMU forgets it over a restart.
    pub async fn set_balloon_interval(&self, seconds: u32) -> Result<(), QmpError> {
        let path = format!("/machine/peripheral/{}", crate::argv::device::BALLOON);
        let property = "guest-stats-polling-interval";
        self.run("qom-set", json!({ "path": path, "property": property, "value": seconds })).await
    }

    /// The threads that run the guest's processors.
    pub async fn vcpus(&self) -> Result<Vec<Vcpu>, QmpError> {
        self.execute("query-cpus-fast", json!({})).await
    }

    /// All places for processors, filled and empty, by socket.
    pub async fn cpu_slots(&self) -> Result<Vec<CpuSlot>, QmpError> {
        let mut slots: Vec<CpuSlot> = self.execute("query-hotpluggable-cpus", json!({})).await?;
        slots.sort_by_key(|slot| {
            let part = |name: &str| slot.props[name].as_u64().unwrap_or(0);
            (part("socket-id"), part("core-id"), part("thread-id"))
        });
        Ok(slots)
    }

    /// Counters of every disk, by device.
    pub async fn block_stats(&self) -> Result<Vec<BlockStats>, QmpError> {
        let all: Vec<Value> = self.execute("query-blockstats", json!({})).await?;
        Ok(all.iter().filter_map(block_stats).collect())
    }

    /// Notifies a disk that its storage has grown.
    pub async fn resize_block(&self, node: &str, size: u64) -> Result<(), QmpError> {
        self.run("block_resize", json!({ "node-name": node, "size": size })).await
    }

    /// Plugs or pulls the cable of an interface.
    pub async fn set_link(&self, device: &str, up: bool) -> Result<(), QmpError> {
        self.run("set_link", json!({ "name": device, "up": up })).await
    }

    /// Sets the password of the VNC server, valid for `seconds`.
    pub async fn set_vnc_password(&self, password: &str, seconds: u64) -> Result<(), QmpError> {
        self.run("set_password", json!({ "protocol": "vnc", "password": password })).await?;
        let time = format!("+{seconds}");
        self.run("expire_password", json!({ "protocol": "vnc", "time": time })).await
    }

    /// QEMU's version as `7.2.22`.
    pub async fn version(&self) -> Result<String, QmpError> {
        let version: Value = self.execute("query-version", json!({})).await?;
        let part = |name: &str| version["qemu"][name].as_u64().unwrap_or(0);
        Ok(format!("{}.{}.{}", part("major"), part("minor"), part("micro")))
    }
}

fn block_stats(device: &Value) -> Option<BlockStats> {
    // An id, or for virtio `/machine/peripheral/<id>/virtio-backend`.
    let path = device["qdev"].as_str()?;
    let id = path.trim_start_matches("/machine/peripheral/").split('/').next()?;
    let count = |name: &str| device["stats"][name].as_u64().unwrap_or(0);
    Some(BlockStats {
        device: id.to_owned(),
        read_bytes: count("rd_bytes"),
        write_bytes: count("wr_bytes"),
        read_operations: count("rd_operations"),
        write_operations: count("wr_operations"),
        flush_operations: count("flush_operations"),
        read_nanos: count("rd_total_time_ns"),
        write_nanos: count("wr_total_time_ns"),
        flush_nanos: count("flush_total_time_ns"),
    })
}
