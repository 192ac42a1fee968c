//! StorageClasses.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["sc"],
    strategy: Strategy { returns_deleted: true, ..Strategy::GENERIC },
    ..Resource::cluster("storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass")
};
