//! The kinds of virtual machines, as KubeVirt and CDI name them: types, definitions, defaults,
//! rules, and what a request to start or stop means. No I/O, no clock.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

pub mod admit;
pub mod api;
mod bootstrap;
pub mod claim_binding;
pub mod condition;
mod config;
pub mod default;
mod definition;
#[allow(clippy::too_many_lines, reason = "TODO(#14): split the functions that are too long")]
pub mod diagnosis;
pub mod eviction;
pub mod instancetype;
pub mod launcher;
pub mod lifecycle;
pub mod memory;
pub mod node_access;
mod overhead_ratio;
pub mod printable_status;
pub mod reason;
mod refusal;
pub mod restart_required;
pub mod run_strategy;
mod shipped;
mod state;
pub mod template;

pub use api::v1;
pub use bootstrap::{KUBEVIRT, OPERATOR, VERSION, first_objects};
pub use config::{ARCHITECTURE, ClusterConfig};
pub use definition::definitions;
pub use eviction::{LAUNCHER, SHUT_DOWN_BY};
pub use overhead_ratio::{OVERHEAD_RATIO, OverheadRatio};
pub use refusal::{Refusal, RefusalSubject};
pub use shipped::shipped_objects;
pub use state::{InstancePhase, RunStrategy, StateChangeRequest, has_run, is_migrating};

/// On an instance: the guest is to discard the unused blocks of its file systems, by a request of
/// this time.
pub const FILESYSTEM_TRIM_AT: &str = "sheaf.io/filesystem-trim-at";
