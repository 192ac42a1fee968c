//! CustomResourceDefinitions, as objects; their schemas are judged in `schema`.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    table: "apiextensions.k8s.io/customresourcedefinitions",
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::WITH_STATUS },
    ..Resource::cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
    )
};
