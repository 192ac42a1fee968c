//! APIServices: groups of kinds served by another server.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    categories: &["api-extensions"],
    table: "apiregistration.k8s.io/apiservices",
    subresources: &[Subresource::STATUS],
    strategy: Strategy { unconditional_update: false, ..Strategy::WITH_STATUS },
    ..Resource::cluster("apiregistration.k8s.io", "v1", "apiservices", "apiservice", "APIService")
};
