//! The contract of the store, tested from outside.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod contract;
mod crash;
mod etcd;
mod etcd_server;
#[path = "../../../../../tests/harness/port.rs"]
mod port;
mod proxy;
mod seal;
mod sqlite;
mod world;
