//! The core group.

pub(crate) mod claim;
pub(crate) mod component_status;
pub(crate) mod config_map;
pub(crate) mod endpoints;
pub(crate) mod limit_range;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod pod_template;
pub(crate) mod quota;
pub(crate) mod replication_controller;
pub(crate) mod resource;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod service_account;
pub(crate) mod volume;

use crate::resource::{CREATE_ONLY, Resource};

/// Puts a pod on a node; an order, not an object.
pub(crate) const BINDING: Resource = Resource {
    verbs: CREATE_ONLY,
    table: "",
    ..Resource::namespaced("", "v1", "bindings", "binding", "Binding")
};
