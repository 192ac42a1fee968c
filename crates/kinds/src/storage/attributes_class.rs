//! VolumeAttributesClasses.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["vac"],
    strategy: Strategy { returns_deleted: true, ..Strategy::GENERIC },
    ..Resource::cluster(
        "storage.k8s.io",
        "v1",
        "volumeattributesclasses",
        "volumeattributesclass",
        "VolumeAttributesClass",
    )
};
