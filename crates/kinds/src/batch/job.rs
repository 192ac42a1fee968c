//! Jobs.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("batch", "v1", "jobs", "job", "Job")
};
