//! Events: one storage seen as core `v1` and as `events.k8s.io/v1`.

use crate::resource::{Resource, Strategy};

pub(crate) const CORE: Resource = Resource {
    short_names: &["ev"],
    strategy: Strategy { create_on_update: true, ..Strategy::GENERIC },
    ..Resource::namespaced("", "v1", "events", "event", "Event")
};

pub(crate) const EVENTS: Resource = Resource { group: "events.k8s.io", ..CORE };
