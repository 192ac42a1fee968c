//! RuntimeClasses.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { unconditional_update: false, create_on_update: true, ..Strategy::GENERIC },
    ..Resource::cluster("node.k8s.io", "v1", "runtimeclasses", "runtimeclass", "RuntimeClass")
};
