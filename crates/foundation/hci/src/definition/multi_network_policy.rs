//! The kind of network policies for interfaces on networks beside the guest network.

use crd::record::Field as _;

use super::{AGE, BETA1, Column, KindDefinition, kind};
use crate::multi_network_policy::{GROUP, KIND, MultiNetworkPolicy, PLURAL};

const NETWORKS: &str = r".metadata.annotations.k8s\.v1\.cni\.cncf\.io/policy-for";

pub(super) const CATALOG: &[KindDefinition] = &[KindDefinition {
    columns: &[Column("Networks", "string", NETWORKS, "", 0), AGE],
    ..kind(GROUP, KIND, PLURAL, &["multi-policy"], BETA1, MultiNetworkPolicy::schema)
}];
