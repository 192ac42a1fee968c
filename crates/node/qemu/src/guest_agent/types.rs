//! Reports of guest agents. Fields that an agent leaves out are empty.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Info {
    pub version: String,
    pub supported_commands: Vec<SupportedCommand>,
}

impl Info {
    /// Whether the agent knows and allows a command.
    pub fn supports(&self, command: &str) -> bool {
        self.supported_commands.iter().any(|known| known.name == command && known.enabled)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SupportedCommand {
    pub name: String,
    pub enabled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct OsInfo {
    pub id: String,
    pub name: String,
    pub pretty_name: String,
    pub version: String,
    pub version_id: String,
    pub kernel_release: String,
    pub kernel_version: String,
    pub machine: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct User {
    pub user: String,
    pub domain: String,
    /// Seconds since 1970.
    pub login_time: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct FileSystem {
    pub name: String,
    pub mountpoint: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub used_bytes: Option<u64>,
    pub total_bytes: Option<u64>,
    pub disk: Vec<GuestDisk>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct GuestDisk {
    pub serial: String,
    pub bus_type: String,
    pub dev: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Interface {
    pub name: String,
    pub hardware_address: String,
    pub ip_addresses: Vec<Address>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Address {
    pub ip_address: String,
    #[serde(default)]
    pub prefix: u8,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Timezone {
    pub zone: String,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// How a command in the guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// The exit status, or none if a signal ended it.
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A mount point whose unused blocks were discarded, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TrimmedPath {
    pub path: String,
    /// Bytes.
    #[serde(default)]
    pub trimmed: Option<u64>,
    #[serde(default)]
    pub error: Option<String>,
}
