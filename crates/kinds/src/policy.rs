//! PodDisruptionBudgets.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pdb"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, unconditional_update: false, ..Strategy::WITH_STATUS },
    ..Resource::namespaced(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
    )
};
