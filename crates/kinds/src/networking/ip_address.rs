//! IPAddresses: which service holds which address.

use crate::resource::{NameRule, Resource, Strategy};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ip"],
    strategy: Strategy { name: NameRule::PathSegment, ..Strategy::GENERIC },
    ..Resource::cluster("networking.k8s.io", "v1", "ipaddresses", "ipaddress", "IPAddress")
};
