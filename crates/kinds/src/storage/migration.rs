//! StorageVersionMigrations.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy { unconditional_update: false, ..Strategy::WITH_STATUS },
    ..Resource::cluster(
        "storagemigration.k8s.io",
        "v1",
        "storageversionmigrations",
        "storageversionmigration",
        "StorageVersionMigration",
    )
};
