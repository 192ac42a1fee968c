//! The kinds of virtual machines, as KubeVirt and CDI name them: types, definitions, defaults,
//! rules, and what a request to start or stop means. No I/O, no clock.

pub mod api;
mod definition;

pub use api::v1;
pub use definition::definitions;
