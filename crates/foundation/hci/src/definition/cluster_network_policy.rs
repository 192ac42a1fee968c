//! The kind of administrators' network policies.

use crd::record::Field as _;

use super::{AGE, Column, DefinitionScope, DefinitionVersion, KindDefinition, with_status};
use crate::cluster_network_policy::{ClusterNetworkPolicy, GROUP, KIND, PLURAL, VERSION};

const ALPHA2: &[DefinitionVersion] =
    &[DefinitionVersion { name: VERSION, stored: true, deprecated: None }];

pub(super) const CATALOG: &[KindDefinition] = &[KindDefinition {
    scope: DefinitionScope::Cluster,
    columns: &[
        Column("Tier", "string", ".spec.tier", "", 0),
        Column("Priority", "string", ".spec.priority", "", 0),
        AGE,
    ],
    ..with_status(GROUP, KIND, PLURAL, &["cnp"], ALPHA2, ClusterNetworkPolicy::schema)
}];
