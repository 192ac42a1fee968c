//! Everything served beside objects: discovery, OpenAPI, health, metrics, version.

pub(crate) mod component_status;
pub(crate) mod discovery;
pub(crate) mod health;
pub(crate) mod openapi;
pub(crate) mod traffic;
pub(crate) mod version;
