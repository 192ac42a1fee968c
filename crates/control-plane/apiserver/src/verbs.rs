//! The verbs on objects: read, write, watch and subresources, with selectors and tables.

pub(crate) mod after;
pub(crate) mod call;
pub(crate) mod expiry;
pub(crate) mod item;
pub(crate) mod object;
pub(crate) mod read;
pub(crate) mod selection;
pub(crate) mod selector;
pub(crate) mod subresource;
pub(crate) mod table;
pub(crate) mod watch;
pub(crate) mod write;
