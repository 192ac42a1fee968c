//! The shapes of KubeVirt's and CDI's API objects, with upstream's names.

pub mod atom;
pub mod cdi;
pub mod clone;
mod embed;
pub mod export;
pub mod instancetype;
pub mod migrations;
pub mod network;
pub mod pool;
pub mod record;
pub mod snapshot;
pub mod upload;
pub mod v1;
