//! PodTemplates.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { generation: true, returns_deleted: true, ..Strategy::GENERIC },
    ..Resource::namespaced("", "v1", "podtemplates", "podtemplate", "PodTemplate")
};
