//! Harvester's kinds of networks.

use crd::record::Field as _;

use super::{AGE, BETA1, Column, DefinitionScope, KindDefinition, kind, with_status};
use crate::harvester::network::{
    ClusterNetwork, HostNetworkConfig, LinkMonitor, VlanConfig, VlanStatus,
};
use crate::network::GROUP;

const NETWORK: Column = Column("CLUSTERNETWORK", "string", ".spec.clusterNetwork", "", 0);
const DESCRIPTION: Column = Column("DESCRIPTION", "string", ".spec.description", "", 0);

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[AGE],
        scope: DefinitionScope::Cluster,
        ..kind(
            GROUP,
            "ClusterNetwork",
            "clusternetworks",
            &["cn", "cns"],
            BETA1,
            ClusterNetwork::schema,
        )
    },
    KindDefinition {
        columns: &[NETWORK, DESCRIPTION, AGE],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "VlanConfig", "vlanconfigs", &["vc", "vcs"], BETA1, VlanConfig::schema)
    },
    KindDefinition {
        columns: &[
            Column("CLUSTERNETWORK", "string", ".status.clusterNetwork", "", 0),
            Column("VLANCONFIG", "string", ".status.vlanConfig", "", 0),
            Column("NODE", "string", ".status.node", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "VlanStatus", "vlanstatuses", &["vs", "vss"], BETA1, VlanStatus::schema)
    },
    KindDefinition {
        columns: &[AGE],
        scope: DefinitionScope::Cluster,
        ..kind(GROUP, "LinkMonitor", "linkmonitors", &["lm", "lms"], BETA1, LinkMonitor::schema)
    },
    KindDefinition {
        columns: &[
            NETWORK,
            Column("VLANID", "integer", ".spec.vlanID", "", 0),
            Column("MODE", "string", ".spec.mode", "", 0),
            AGE,
        ],
        scope: DefinitionScope::Cluster,
        ..with_status(
            GROUP,
            "HostNetworkConfig",
            "hostnetworkconfigs",
            &["hnc", "hncs"],
            BETA1,
            HostNetworkConfig::schema,
        )
    },
];
