//! Leases.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { unconditional_update: false, create_on_update: true, ..Strategy::GENERIC },
    ..Resource::namespaced("coordination.k8s.io", "v1", "leases", "lease", "Lease")
};
