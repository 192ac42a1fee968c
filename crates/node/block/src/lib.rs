//! The replicated block engine: volumes that survive the loss of disks, processes and nodes.
//!
//! Replica stores, the replication protocol and the front-ends to a guest. Knows nothing of
//! Kubernetes; the agent translates objects into its types.

#![allow(clippy::too_many_lines, reason = "TODO(#14): split the functions that are too long")]

mod checksum;
pub mod crypt;
pub mod grant;
pub mod ids;
pub mod nbd;
pub mod repl;
pub mod run;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod storage;
pub mod store;
mod vhost;
pub mod wire;
