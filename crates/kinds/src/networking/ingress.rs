//! Ingresses.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ing"],
    table: "ingress",
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress")
};
