//! FlowSchemas.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::cluster(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "flowschemas",
        "flowschema",
        "FlowSchema",
    )
};
