//! The network of a node with real packets, inside namespaces that each test makes for itself.
//!
//! Needs root, `ip`, `nft`, `busybox` and `qemu-system-x86_64`; nothing outside the namespaces is
//! touched.

#![expect(clippy::unwrap_used, reason = "a test ends where something unexpected happens")]

mod announce;
mod balance;
mod filter;
mod hosts;
mod life;
mod measure;
mod overlay;
mod policies;
mod port_dhcp;
mod routers;
mod services;
mod tags;
mod tap_policies;
mod trial;
mod uplink;
mod world;
