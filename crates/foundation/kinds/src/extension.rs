//! Kinds that add other kinds.

pub(crate) mod api_service;
pub(crate) mod definition;
