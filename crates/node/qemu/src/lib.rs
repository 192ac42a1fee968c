//! Virtual machines as QEMU processes: command lines, QMP, the guest agent, consoles, seeds.
//!
//! Knows nothing of Kubernetes; the agent translates objects into its types.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

pub mod argv;
pub mod console;
pub mod firmware;
pub mod guest_agent;
pub mod image;
pub mod isolation;
pub mod machine;
mod passable;
pub mod probe;
pub mod process;
pub mod qmp;
mod run_dir;
pub mod seed;
mod tpm;

pub use console::Console;
pub use guest_agent::GuestAgent;
pub use machine::Machine;
pub use passable::create_passable;
pub use process::{Exit, Launcher, RunDirState, RunningMachine, Spec};
pub use run_dir::RunDir;

#[cfg(test)]
mod tests;
