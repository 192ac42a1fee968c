//! Group `flowcontrol.apiserver.k8s.io`: stored and shown, the server has its own limits.

pub(crate) mod level;
pub(crate) mod schema;
