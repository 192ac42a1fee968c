//! The last answers of a guest and its QEMU.

use std::collections::BTreeMap;

use qemu::guest_agent::Interface;
use virt::v1::VirtualMachineInstanceGuestOSInfo as OsInfo;

/// The last answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GuestInfo {
    pub(crate) silent: bool,
    pub(crate) agent: AgentState,
    pub(crate) os: OsInfo,
    pub(crate) interfaces: Vec<Interface>,
    /// Addresses that were seen on bridges of the host, by interface.
    pub(crate) learned: BTreeMap<String, String>,
    pub(crate) readiness: Readiness,
    pub(crate) machine_type: String,
    pub(crate) topology: Option<Topology>,
    /// Memory that was added since the start, in bytes.
    pub(crate) growth: u64,
    pub(crate) frozen: bool,
    pub(crate) credentials: CredentialsState,
    /// Why the guest must not live on.
    pub(crate) condemned: Option<String>,
}

impl Default for GuestInfo {
    fn default() -> Self {
        Self {
            silent: false,
            agent: AgentState::Absent,
            os: OsInfo::default(),
            interfaces: Vec::new(),
            learned: BTreeMap::new(),
            readiness: Readiness::Ready,
            machine_type: String::new(),
            topology: None,
            growth: 0,
            frozen: false,
            credentials: CredentialsState::Unused,
            condemned: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// The readiness probe has not succeeded.
    Unready(String),
    /// QEMU does not answer.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentState {
    Absent,
    Connected,
    /// It answers, but lacks commands that are needed.
    Unsupported(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) sockets: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

/// Whether access credentials have reached the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CredentialsState {
    /// There are none to send.
    Unused,
    Synchronized,
    Failed {
        why: String,
    },
}

impl CredentialsState {
    pub(crate) fn failed(failure: &(dyn std::error::Error + 'static)) -> Self {
        Self::Failed { why: base::Chain(failure).to_string() }
    }
}
