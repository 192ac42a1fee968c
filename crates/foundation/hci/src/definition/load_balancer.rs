//! Kinds of Harvester's load balancer controller.

use crd::record::Field as _;

use super::{AGE, BETA1, Column, DefinitionScope, KindDefinition, kind};
use crate::address_pool::GROUP;
use crate::harvester::load_balancer::{IpPool, LoadBalancer};

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("DESCRIPTION", "string", ".spec.description", "", 0),
            Column("WORKLOADTYPE", "string", ".spec.workloadType", "", 0),
            Column("IPAM", "string", ".spec.ipam", "", 0),
            Column("ADDRESS", "string", ".status.address", "", 0),
            AGE,
        ],
        ..kind(GROUP, "LoadBalancer", "loadbalancers", &["lb", "lbs"], BETA1, LoadBalancer::schema)
    },
    KindDefinition {
        columns: &[
            Column("DESCRIPTION", "string", ".spec.description", "", 0),
            Column("RANGES", "string", ".spec.ranges", "", 0),
            Column("Priority", "string", ".spec.selector.priority", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "IPPool", "ippools", &["pool", "pools"], BETA1, IpPool::schema)
    },
];
