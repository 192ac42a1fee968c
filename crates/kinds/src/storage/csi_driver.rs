//! CSIDrivers.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        generation: true,
        unconditional_update: false,
        returns_deleted: true,
        ..Strategy::GENERIC
    },
    ..Resource::cluster("storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver")
};
