//! `kubevirt.io/v1`.

mod cluster_device;
mod cluster_option;
mod configuration;
mod device;
mod disk;
mod domain;
mod instance;
mod machine;
mod migration;
mod network;
mod replica_set;
mod request;

pub use cluster_device::*;
pub use cluster_option::*;
pub use configuration::*;
pub use device::*;
pub use disk::*;
pub use domain::*;
pub use instance::*;
pub use machine::*;
pub use migration::*;
pub use network::*;
pub use replica_set::*;
pub use request::*;
