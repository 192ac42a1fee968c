//! Virtual machines as QEMU processes: command lines, QMP, the guest agent, consoles, seeds.
//!
//! Knows nothing of Kubernetes; the agent translates objects into its types.
