//! Kinds of Harvester's DHCP controller. They are in the group of networks, in a version of their own.

use crd::record::Field as _;

use super::{AGE, ALPHA1, Column, KindDefinition, with_status};
use crate::dhcp::GROUP;
use crate::harvester::dhcp::{DhcpPool, MachineNetworkConfig};

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[
            Column("NETWORK", "string", ".spec.networkName", "", 0),
            Column("AVAILABLE", "integer", ".status.ipv4.available", "", 0),
            Column("USED", "integer", ".status.ipv4.used", "", 0),
            condition("REGISTERED", ".status.conditions[?(@.type=='Registered')].status"),
            condition("CACHEREADY", ".status.conditions[?(@.type=='CacheReady')].status"),
            condition("AGENTREADY", ".status.conditions[?(@.type=='AgentReady')].status"),
            AGE,
        ],
        ..with_status(GROUP, "IPPool", "ippools", &["ippl", "ippls"], ALPHA1, DhcpPool::schema)
    },
    KindDefinition {
        columns: &[
            Column("VMNAME", "string", ".spec.vmName", "", 0),
            condition("ALLOCATED", ".status.conditions[?(@.type=='Allocated')].status"),
            condition("DISABLED", ".status.conditions[?(@.type=='Disabled')].status"),
            condition("INSYNCED", ".status.conditions[?(@.type=='InSynced')].status"),
            AGE,
        ],
        ..with_status(
            GROUP,
            "VirtualMachineNetworkConfig",
            "virtualmachinenetworkconfigs",
            &["vmnetcfg", "vmnetcfgs"],
            ALPHA1,
            MachineNetworkConfig::schema,
        )
    },
];

const fn condition(name: &'static str, path: &'static str) -> Column {
    Column(name, "string", path, "", 0)
}
