//! Endpoints: the addresses behind a service, in their old form.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ep"],
    table: "services/endpoints",
    strategy: Strategy { create_on_update: true, ..Strategy::GENERIC },
    ..Resource::namespaced("", "v1", "endpoints", "endpoints", "Endpoints")
};
