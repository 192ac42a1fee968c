//! The base of every other crate, and nothing more: printing an error with its causes, reading the
//! clock, supervising tasks, counting their work, limiting what one user has open, keeping the last
//! lines of the log, waiting a little longer after each failure, and TLS without authentication.
//!
//! It knows neither Kubernetes nor HTTP nor a store, and depends on no crate of
//! this workspace.

mod backoff;
mod chain;
pub mod clock;
mod keyed_limit;
mod recent_log;
mod tasks;
pub mod tls;
mod workload;

pub use backoff::Backoff;
pub use chain::Chain;
pub use keyed_limit::{KeyedLimit, KeyedSlot};
pub use recent_log::RecentLog;
pub use tasks::{Stop, Tasks};
pub use workload::{Durations, Workload, Workloads};
