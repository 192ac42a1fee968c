//! EndpointSlices.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { generation: true, ..Strategy::GENERIC },
    ..Resource::namespaced(
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        "endpointslice",
        "EndpointSlice",
    )
};
