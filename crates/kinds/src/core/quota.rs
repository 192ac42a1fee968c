//! ResourceQuotas.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["quota"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { returns_deleted: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("", "v1", "resourcequotas", "resourcequota", "ResourceQuota")
};
