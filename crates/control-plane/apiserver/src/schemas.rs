//! The kinds that are served: built-in or from definitions, their versions and conversion.

pub(crate) mod catalog;
pub(crate) mod cleanup;
pub(crate) mod conversion;
pub(crate) mod crd;
pub(crate) mod custom;
pub(crate) mod migration;
pub(crate) mod refresh;
pub(crate) mod served;
