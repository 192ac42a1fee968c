//! DaemonSets.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("apps", "v1", "daemonsets", "daemonset", "DaemonSet")
};
