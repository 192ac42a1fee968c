//! PersistentVolumes.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pv"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { returns_deleted: true, ..Strategy::WITH_STATUS },
    ..Resource::cluster("", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume")
};
