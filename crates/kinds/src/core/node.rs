//! Nodes.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["no"],
    table: "minions",
    subresources: &[Subresource::STATUS],
    strategy: Strategy::WITH_STATUS,
    ..Resource::cluster("", "v1", "nodes", "node", "Node")
};
