//! HorizontalPodAutoscalers: stored as `v2`, also seen as `v1`.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const V2: Resource = Resource {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        "HorizontalPodAutoscaler",
    )
};

pub(crate) const V1: Resource = Resource { version: "v1", ..V2 };
