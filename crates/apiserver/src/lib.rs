//! A Kubernetes API server: the wire protocol, generic over kinds, on a [`store`].
//!
//! A request's way through the crate:
//!
//! ```text
//!   server ─► service ─► identity, authorize ─► route, catalog ─► read | watch | write
//!                                                              └─► subresource, review
//! ```
//!
//! - `service.rs` is the only entrance; in-process clients use it as well.
//! - `catalog.rs`, `served.rs`: which kinds exist now. `crd.rs`, `custom.rs`: those from
//!   CustomResourceDefinitions. Built-in kinds are rows in crate `kinds`.
//! - `item.rs`: objects in memory are encoded bytes; reads and watches send them as they are.
//! - `write.rs`: the pipeline of every change; `write/patch.rs` is where a PATCH is applied.
//! - `status.rs`: the one place that knows HTTP codes of failures.

mod admission;
mod after;
mod aggregation;
mod api;
mod api_services;
pub mod audit;
mod authorize;
mod body;
mod bootstrap;
mod bootstrap_objects;
mod call;
mod catalog;
mod cleanup;
mod component_status;
mod conversion;
mod crd;
mod custom;
mod decode;
mod discovery;
pub mod encryption;
mod expiry;
pub mod extension;
mod fairness;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod identity;
mod item;
mod matching;
mod migration;
mod negotiate;
mod object;
pub mod oidc;
mod openapi;
mod options;
mod outbound;
mod page;
mod pretty;
mod read;
mod refresh;
mod respond;
mod review;
mod rights;
mod route;
mod selection;
mod selector;
mod served;
mod server;
mod server_lease;
mod service;
mod service_ip;
mod start;
mod status;
mod subresource;
mod table;
mod traffic;
mod verb_result;
mod version;
mod warnings;
mod watch;
mod webhook;
mod websocket;
mod write;

pub use api::{Api, Authorization, FrontProxy, Settings};
pub use body::RequestBody;
pub use bootstrap::BootstrapError;
pub use fairness::InFlight;
pub use identity::{Authenticator, Transport};
pub use respond::{Body, HttpReply};
pub use server::serve;
pub use service_ip::{Cidr, CidrError};
pub use start::StartError;
pub use version::{BuildVersion, KUBERNETES};
pub use websocket::Upgrade;
