//! Virtual machines as QEMU processes: command lines, QMP, the guest agent, consoles, seeds.
//!
//! Knows nothing of Kubernetes; the agent translates objects into its types.

pub mod argv;
pub mod machine;
pub mod process;
pub mod qmp;
mod run_dir;

pub use machine::Machine;
pub use process::{Exit, Found, Launcher, Running, Spec};
pub use run_dir::RunDir;

#[cfg(test)]
mod tests;
