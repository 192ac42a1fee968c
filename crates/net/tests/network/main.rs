//! The network of a node with real packets, inside namespaces that each test makes for itself.
//!
//! Needs root, `ip`, `nft` and `busybox`; nothing outside the namespaces is touched.

mod filter;
mod life;
mod measure;
mod services;
mod world;
