//! The shapes of KubeVirt's and CDI's API objects, with upstream's names.

pub mod backup;
pub mod cdi;
pub mod clone;
pub mod export;
pub mod instancetype;
pub mod migrations;
pub mod network;
pub mod pool;
pub mod snapshot;
pub mod template;
pub mod upload;
pub mod v1;

pub use crd::{atom, record};
