//! Services.

use crate::resource::{NameRule, Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["svc"],
    categories: &["all"],
    table: "services/specs",
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        name: NameRule::Label,
        create_on_update: true,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    ..Resource::namespaced("", "v1", "services", "service", "Service")
};
