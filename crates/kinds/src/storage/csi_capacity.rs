//! CSIStorageCapacities.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { unconditional_update: false, ..Strategy::GENERIC },
    ..Resource::namespaced(
        "storage.k8s.io",
        "v1",
        "csistoragecapacities",
        "csistoragecapacity",
        "CSIStorageCapacity",
    )
};
