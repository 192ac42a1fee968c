//! Deployments.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("apps", "v1", "deployments", "deployment", "Deployment")
};
