//! CSINodes.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        unconditional_update: false,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    ..Resource::cluster("storage.k8s.io", "v1", "csinodes", "csinode", "CSINode")
};
