//! LimitRanges.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["limits"],
    strategy: Strategy { create_on_update: true, ..Strategy::GENERIC },
    ..Resource::namespaced("", "v1", "limitranges", "limitrange", "LimitRange")
};
