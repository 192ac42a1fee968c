//! A Kubernetes API server: the wire protocol, generic over kinds, on a [`store`].
//!
//! A request's way through the crate:
//!
//! ```text
//!   http::server ─► service ─► access ─► http::route, schemas::catalog ─► verbs
//!                                  └─► fairness               └─► endpoints, aggregation
//! ```
//!
//! - `service.rs` is the only entrance; in-process clients use it as well.
//! - `access/`: authentication and authorization. `fairness/`: queues by flow.
//! - `schemas/`: which kinds exist now, those from CustomResourceDefinitions included. Built-in
//!   kinds are rows in crate `kinds`.
//! - `verbs/`: `item.rs` holds objects in memory as encoded bytes, which reads and watches send
//!   as they are; `write.rs` is the pipeline of every change; `write/patch.rs` applies a PATCH.
//! - `admission/`: defaults, checks, quotas, policies and webhooks of one change.
//! - `endpoints/`: discovery, OpenAPI, health, metrics. `setup/`: objects made at the start.
//! - `status.rs`: the one place that knows HTTP codes of failures.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

mod access;
mod admission;
mod aggregation;
mod api;
pub mod audit;
pub mod encryption;
mod endpoints;
pub mod extension;
mod fairness;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http;
mod outbound;
mod schemas;
mod service;
mod setup;
mod start;
mod status;
mod verbs;

pub use access::identity::{Authenticator, NetworkPeer, Transport};
pub use access::oidc;
pub use api::{Api, Authorization, FrontProxy, Settings};
pub use endpoints::version::{BuildVersion, KUBERNETES};
pub use fairness::InFlight;
pub use http::body::RequestBody;
pub use http::connections::ConnectionLimits;
pub use http::respond::{Body, HttpReply};
pub use http::server::{serve, serve_browsers};
pub use http::websocket::Upgrade;
pub use setup::bootstrap::BootstrapError;
pub use setup::service_ip::{Cidr, CidrError};
pub use start::StartError;
