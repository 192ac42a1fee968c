//! Whether this process may make a network here, tried before anything is changed, so that the
//! caller can fall back to user-mode networking and say why.

use std::fs::OpenOptions;
use std::io;

use rustix::thread::{CapabilitySet, capabilities};

use crate::nft::{self, NftError};
use crate::tap;

/// Why the node cannot have a network of its own.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("this process lacks CAP_NET_ADMIN; run it as root or grant the capability")]
    Capability,
    #[error("cannot open {}; load the module tun or create the device", tap::DEVICE)]
    Tun { source: io::Error },
    #[error("nftables cannot be used")]
    Nftables { source: NftError },
    #[error("cannot write the kernel's network settings")]
    Sysctl { source: io::Error },
}

/// Checks what a network needs: the right to change it, taps, nftables and sysctls.
pub async fn available() -> Result<(), Unavailable> {
    let held = capabilities(None).map_err(|_| Unavailable::Capability)?;
    if !held.effective.contains(CapabilitySet::NET_ADMIN) {
        return Err(Unavailable::Capability);
    }
    let open = |path: &str| OpenOptions::new().write(true).open(path);
    open(tap::DEVICE).map_err(|source| Unavailable::Tun { source })?;
    // A container may have the capability and yet see /proc/sys read-only.
    open("/proc/sys/net/ipv4/ip_forward").map_err(|source| Unavailable::Sysctl { source })?;
    nft::ruleset().await.map(drop).map_err(|source| Unavailable::Nftables { source })
}
