//! Which process of a network namespace owns a bridge or the uplinks.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The right to change `what`, while the socket is kept; nothing if another process has it. An
/// abstract socket belongs to the network namespace, as links do, and is gone with its process.
pub(super) fn own(what: &str) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("sheaf-bridge-{what}"));
    name.and_then(|name| UnixListener::bind_addr(&name)).ok()
}
