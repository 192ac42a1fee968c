//! Instances of virtual machines, for the controllers of other objects.

fields! {
    pub(crate) struct InstanceFields<'a> {
        spec: InstanceSpec<'a>,
        status: InstanceStatus<'a>,
    }

    pub(crate) struct InstanceSpec<'a> {
        eviction_strategy: &'a str,
        hostname: &'a str,
        subdomain: &'a str,
        networks: Vec<NetworkFields<'a>>,
    }

    pub(crate) struct NetworkFields<'a> {
        name: &'a str,
        pod: Option<serde::de::IgnoredAny>,
    }

    pub(crate) struct InstanceStatus<'a> {
        phase: &'a str,
        node_name: &'a str,
        evacuation_node_name: &'a str,
        migration_state: MigrationStateFields<'a>,
        interfaces: Vec<InterfaceStatus<'a>>,
    }

    pub(crate) struct MigrationStateFields<'a> {
        migration_uid: &'a str,
        source_node: &'a str,
        end_timestamp: &'a str,
        completed: bool,
        failed: bool,
        target_node: &'a str,
    }

    pub(crate) struct InterfaceStatus<'a> {
        name: &'a str,
        mac: Option<&'a str>,
        ip_address: &'a str,
    }
}

impl InstanceStatus<'_> {
    /// Whether the machine has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, "Succeeded" | "Failed")
    }
}
