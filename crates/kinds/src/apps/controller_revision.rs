//! ControllerRevisions.

use crate::resource::Resource;

pub(crate) const RESOURCE: Resource = Resource::namespaced(
    "apps",
    "v1",
    "controllerrevisions",
    "controllerrevision",
    "ControllerRevision",
);
