//! The kinds of virtual machines, as KubeVirt and CDI name them: types, definitions, defaults,
//! rules, and what a request to start or stop means. No I/O, no clock.

pub mod api;
pub mod condition;
mod definition;
pub mod lifecycle;
pub mod printable_status;
mod refusal;
pub mod run_strategy;
mod state;

pub use api::v1;
pub use definition::definitions;
pub use refusal::{About, Refusal};
pub use state::{Phase, Request, RunStrategy, has_run, is_migrating};
