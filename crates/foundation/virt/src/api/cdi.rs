//! `cdi.kubevirt.io/v1beta1`.

mod configuration;
mod data_volume;
mod source;

pub use configuration::*;
pub use data_volume::*;
pub use source::*;
