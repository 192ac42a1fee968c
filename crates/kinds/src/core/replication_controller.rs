//! ReplicationControllers.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["rc"],
    categories: &["all"],
    table: "controllers",
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced(
        "",
        "v1",
        "replicationcontrollers",
        "replicationcontroller",
        "ReplicationController",
    )
};
