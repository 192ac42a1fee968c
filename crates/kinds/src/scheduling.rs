//! PriorityClasses.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pc"],
    strategy: Strategy { generation: true, ..Strategy::GENERIC },
    ..Resource::cluster(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
    )
};
