//! NetworkPolicies.

use crate::resource::{Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["netpol"],
    strategy: Strategy { generation: true, ..Strategy::GENERIC },
    ..Resource::namespaced(
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        "networkpolicy",
        "NetworkPolicy",
    )
};
