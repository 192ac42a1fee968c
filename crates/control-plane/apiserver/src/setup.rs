//! Objects that the server makes and keeps itself: bootstrap roles, its lease, service addresses.

pub(crate) mod api_services;
pub(crate) mod bootstrap;
pub(crate) mod bootstrap_objects;
pub(crate) mod server_lease;
pub(crate) mod service_ip;
