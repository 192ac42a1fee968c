//! Secrets.

use crate::resource::Resource;

pub(crate) const RESOURCE: Resource = Resource::namespaced("", "v1", "secrets", "secret", "Secret");
