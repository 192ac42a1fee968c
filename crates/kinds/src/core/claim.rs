//! PersistentVolumeClaims.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pvc"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { returns_deleted: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced(
        "",
        "v1",
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
    )
};
