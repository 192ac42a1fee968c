//! A volume as its users have it: real clients, real processes, and what happens to them.
//!
//! Every test runs the laboratory of `examples/lab.rs` in a directory of its own. Acknowledged
//! data is compared afterwards, through the volume and on each replica alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backup;
mod base_image;
mod campaign;
mod clients;
mod cluster;
mod cut;
mod damage;
mod encrypted;
mod faults;
mod grants;
mod guest;
mod handover;
mod harm;
mod killed;
mod lab;
mod live_metadata;
mod liveness;
mod nbd;
mod node;
mod odd;
mod replaced;
mod rollback;
mod shadow;
mod snapshot_damage;
mod storage;
mod supervised;
mod wire;
