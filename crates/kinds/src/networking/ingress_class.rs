//! IngressClasses.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy { generation: true, ..Strategy::GENERIC },
    ..Resource::cluster("networking.k8s.io", "v1", "ingressclasses", "ingressclass", "IngressClass")
};
