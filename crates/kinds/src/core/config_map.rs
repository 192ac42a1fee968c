//! ConfigMaps.

use crate::resource::Resource;

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["cm"],
    ..Resource::namespaced("", "v1", "configmaps", "configmap", "ConfigMap")
};
