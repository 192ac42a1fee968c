//! ServiceCIDRs: where the addresses of services come from.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy::WITH_STATUS,
    ..Resource::cluster("networking.k8s.io", "v1", "servicecidrs", "servicecidr", "ServiceCIDR")
};
