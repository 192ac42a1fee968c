//! Replies of QEMU, as far as they are used here; unknown ones stay raw.

use serde::Deserialize;
use serde_json::Value;

/// Something that happened in QEMU, as it said it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
    /// QEMU's clock, in microseconds since 1970.
    pub micros: i64,
}

impl Event {
    /// The device of a `DEVICE_DELETED`. QEMU sends it twice, and once without an id.
    pub fn deleted_device(&self) -> Option<&str> {
        (self.name == "DEVICE_DELETED").then(|| self.data["device"].as_str()).flatten()
    }

    /// The device of which the guest said that it would not let it go.
    pub fn unplug_refused(&self) -> Option<&str> {
        let refused =
            ["DEVICE_UNPLUG_GUEST_ERROR", "MEM_UNPLUG_ERROR"].contains(&self.name.as_str());
        refused.then(|| self.data["device"].as_str()).flatten()
    }

    pub fn shutdown(&self) -> Option<ShutdownReason> {
        (self.name == "SHUTDOWN").then(|| ShutdownReason::from_name(&self.data["reason"]))
    }

    /// Whether the machine may be in another run state after this.
    pub fn changes_state(&self) -> bool {
        const CHANGES: &[&str] = &[
            "STOP",
            "RESUME",
            "RESET",
            "SHUTDOWN",
            "SUSPEND",
            "WAKEUP",
            "GUEST_PANICKED",
            "WATCHDOG",
            "BLOCK_IO_ERROR",
            "MIGRATION",
        ];
        CHANGES.contains(&self.name.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownReason {
    GuestShutdown,
    /// A reboot of a machine whose reboots are shutdowns.
    GuestReset,
    GuestPanic,
    /// A signal, `quit`, or a failure of QEMU itself.
    Host,
}

impl ShutdownReason {
    fn from_name(name: &Value) -> Self {
        match name.as_str() {
            Some("guest-shutdown") => Self::GuestShutdown,
            Some("guest-reset") => Self::GuestReset,
            Some("guest-panic") => Self::GuestPanic,
            _ => Self::Host,
        }
    }
}

/// QEMU's run state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// Never started since the process came up.
    Prelaunch,
    Running,
    Paused,
    /// Stopped by a failed request of a disk whose policy is to stop.
    IoError,
    /// The guest has powered off; the process waits for the command to quit.
    Shutdown,
    GuestPanicked,
    Suspended,
    /// Waiting for the state of another QEMU.
    InMigrate,
    FinishMigrate,
    /// The guest runs elsewhere now.
    PostMigrate,
    Watchdog,
    Other(String),
}

impl RunState {
    pub fn from_name(name: &str) -> Self {
        match name {
            "prelaunch" => Self::Prelaunch,
            "running" => Self::Running,
            "paused" => Self::Paused,
            "io-error" => Self::IoError,
            "shutdown" => Self::Shutdown,
            "guest-panicked" => Self::GuestPanicked,
            "suspended" => Self::Suspended,
            "inmigrate" => Self::InMigrate,
            "finish-migrate" => Self::FinishMigrate,
            "postmigrate" => Self::PostMigrate,
            "watchdog" => Self::Watchdog,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// A virtual processor and the host thread that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Vcpu {
    pub cpu_index: u32,
    pub thread_id: i32,
}

/// A place for a virtual processor, filled or not.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CpuSlot {
    #[serde(rename = "type")]
    pub driver: String,
    /// The properties of `device_add` that fill exactly this slot.
    pub props: Value,
    #[serde(rename = "qom-path")]
    pub qom_path: Option<String>,
}

impl CpuSlot {
    pub fn is_filled(&self) -> bool {
        self.qom_path.is_some()
    }

    pub fn socket(&self) -> u64 {
        self.props["socket-id"].as_u64().unwrap_or(0)
    }
}

/// I/O counters of a disk since QEMU started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStats {
    /// The device's id, `ua-<name>`.
    pub device: String,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_operations: u64,
    pub write_operations: u64,
    pub flush_operations: u64,
    pub read_nanos: u64,
    pub write_nanos: u64,
    pub flush_nanos: u64,
}
