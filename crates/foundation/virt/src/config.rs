//! Settings of the KubeVirt object for the whole cluster, with upstream's values where it has
//! none.

use serde_json::Value;
use types::Quantity;

use crate::overhead_ratio::OverheadRatio;
use crate::state::{list, text};

/// Kubernetes' name of the architecture that this was compiled for.
pub const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// Features that are on unless they are switched off.
const ON: &[&str] = &[
    "DeclarativeHotplugVolumes",
    "DecentralizedLiveMigration",
    "ExternalNetResourceInjection",
    "GPUsWithDRA",
    "HostDevicesWithDRA",
    "ImageVolume",
    "KubevirtSeccompProfile",
    "NodeRestriction",
    "OptOutRoleAggregation",
    "PasstBinding",
    "RebootPolicy",
    "Snapshot",
    "Template",
    "WorkloadEncryptionSEV",
];

/// Features that cannot be switched off any more.
const ALWAYS: &[&str] = &[
    "AutoResourceLimits",
    "ClusterProfiler",
    "ExpandDisks",
    "GPU",
    "HotplugNICs",
    "InstancetypeReferencePolicy",
    "LiveMigration",
    "LiveUpdateNADRef",
    "MigrationPriorityQueue",
    "NUMA",
    "NetworkBindingPlugins",
    "PanicDevices",
    "PersistentReservation",
    "SRIOVLiveMigration",
    "VMExport",
    "VMLiveUpdateFeatures",
    "VMPersistentState",
    "VideoConfig",
    "VolumeMigration",
    "VolumesUpdateStrategy",
];

/// The configuration of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    configuration: Value,
    annotations: Value,
    default_architecture: String,
}

impl ClusterConfig {
    /// Reads the KubeVirt object; `architecture` is that of the server (`amd64`).
    pub fn new(kubevirt: &Value, architecture: &str) -> Self {
        Self {
            configuration: kubevirt["spec"]["configuration"].clone(),
            annotations: kubevirt["metadata"]["annotations"].clone(),
            default_architecture: architecture.to_owned(),
        }
    }

    /// Whether a feature is on: explicit wishes first, then its stage.
    pub fn has(&self, feature: &str) -> bool {
        let developer = &self.configuration["developerConfiguration"];
        let names = |field: &str| list(&developer[field]).iter().any(|name| name == feature);
        ALWAYS.contains(&feature)
            || names("featureGates")
            || (ON.contains(&feature) && !names("disabledFeatureGates"))
    }

    pub fn default_architecture(&self) -> &str {
        match text(&self.configuration, "/architectureConfiguration/defaultArchitecture") {
            "" if self.default_architecture.is_empty() => "amd64",
            "" => &self.default_architecture,
            architecture => architecture,
        }
    }

    pub fn machine_type(&self, architecture: &str) -> &str {
        let set = &self.configuration["architectureConfiguration"][architecture]["machineType"];
        match (set.as_str().unwrap_or_default(), architecture) {
            ("", "arm64") => "virt",
            ("", "s390x") => "s390-ccw-virtio",
            ("", _) => match text(&self.configuration, "/machineType") {
                "" => "q35",
                machine => machine,
            },
            (machine, _) => machine,
        }
    }

    /// Patterns of the machine types that a guest may have.
    pub fn emulated_machines(&self, architecture: &str) -> Vec<&str> {
        let set = &self.configuration["architectureConfiguration"][architecture];
        let set: Vec<&str> =
            list(&set["emulatedMachines"]).iter().filter_map(Value::as_str).collect();
        match architecture {
            _ if !set.is_empty() => set,
            "arm64" => vec!["virt*"],
            "s390x" => vec!["s390-ccw-virtio*"],
            _ => vec!["q35*", "pc-q35*"],
        }
    }

    pub fn cpu_model(&self) -> &str {
        match text(&self.configuration, "/cpuModel") {
            "" => "host-model",
            model => model,
        }
    }

    /// Processor time that a guest without a wish of its own is given, if it is not the usual.
    pub fn cpu_request(&self) -> Option<Quantity> {
        Quantity::from_json(self.configuration.get("cpuRequest")?).ok()
    }

    /// Virtual processors per reserved one.
    pub fn cpu_allocation_ratio(&self) -> i64 {
        let set = &self.configuration["developerConfiguration"]["cpuAllocationRatio"];
        set.as_i64().filter(|ratio| *ratio > 0).unwrap_or(10)
    }

    /// Memory of guests in percent of what is reserved for them.
    pub fn memory_overcommit(&self) -> i64 {
        let set = &self.configuration["developerConfiguration"]["memoryOvercommit"];
        set.as_i64().filter(|percent| *percent > 0).unwrap_or(100)
    }

    /// Factor for the memory that QEMU needs beside that of the guest.
    pub fn overhead_ratio(&self) -> OverheadRatio {
        OverheadRatio::parse(text(&self.configuration, "/additionalGuestMemoryOverheadRatio"))
    }

    /// Selects the namespaces whose instances are limited to the CPU time of their processors.
    pub fn auto_cpu_limit_selector(&self) -> Option<&Value> {
        self.configuration
            .get("autoCPULimitNamespaceLabelSelector")
            .filter(|selector| selector.is_object())
    }

    pub fn eviction_strategy(&self) -> Option<&str> {
        self.configuration["evictionStrategy"].as_str()
    }

    /// The binding of an interface that names none: `bridge` or `masquerade`.
    pub fn default_interface(&self) -> &str {
        match text(&self.configuration, "/network/defaultNetworkInterface") {
            "" => "bridge",
            interface => interface,
        }
    }

    pub fn permits_bridge_on_pod_network(&self) -> bool {
        self.configuration["network"]["permitBridgeInterfaceOnPodNetwork"] != false
    }

    /// Whether changes reach running guests where they can, instead of waiting for a restart.
    pub fn updates_live(&self) -> bool {
        self.configuration["vmRolloutStrategy"] != "Stage"
    }

    pub fn max_hotplug_ratio(&self) -> u32 {
        self.live("maxHotplugRatio").and_then(Value::as_u64).map_or(4, clamp)
    }

    /// 0 if it follows from the ratio.
    pub fn max_cpu_sockets(&self) -> u32 {
        self.live("maxCpuSockets").and_then(Value::as_u64).map_or(0, clamp)
    }

    pub fn max_guest(&self) -> Option<Quantity> {
        Quantity::from_json(self.live("maxGuest")?).ok()
    }

    /// Whether isolated emulator threads get an even number of processors.
    pub(crate) fn evens_emulator_threads(&self) -> bool {
        self.has("AlignCPUs") && self.annotations.get(EVEN_PARITY).is_some()
    }

    fn live(&self, field: &str) -> Option<&Value> {
        self.configuration["liveUpdateConfiguration"].get(field)
    }
}

pub(crate) const EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_silent_object_means_upstreams_values() {
        let config = ClusterConfig::new(&json!({}), "");
        assert_eq!(config.default_architecture(), "amd64");
        assert_eq!(config.machine_type("amd64"), "q35");
        assert_eq!(config.machine_type("arm64"), "virt");
        assert_eq!(config.emulated_machines("amd64"), ["q35*", "pc-q35*"]);
        assert_eq!(config.cpu_model(), "host-model");
        assert_eq!(config.default_interface(), "bridge");
        assert!(config.permits_bridge_on_pod_network() && config.updates_live());
        assert_eq!((config.max_hotplug_ratio(), config.max_cpu_sockets()), (4, 0));
        assert_eq!((config.cpu_allocation_ratio(), config.memory_overcommit()), (10, 100));
    }

    #[test]
    fn features_follow_wishes_and_stages() {
        let config = ClusterConfig::new(
            &json!({"spec": {"configuration": {"developerConfiguration": {
                "featureGates": ["HostDisk"],
                "disabledFeatureGates": ["RebootPolicy", "NUMA", "HostDisk"],
            }}}}),
            "amd64",
        );
        let table = [
            ("HostDisk", true),
            ("RebootPolicy", false),
            ("NUMA", true),
            ("PasstBinding", true),
            ("VSOCK", false),
        ];
        for (feature, on) in table {
            assert_eq!(config.has(feature), on, "{feature}");
        }
    }

    #[test]
    fn set_values_override_defaults() {
        let config = ClusterConfig::new(
            &json!({"spec": {"configuration": {
                "vmRolloutStrategy": "Stage",
                "evictionStrategy": "LiveMigrate",
                "cpuModel": "Haswell",
                "network": {"defaultNetworkInterface": "masquerade", "permitBridgeInterfaceOnPodNetwork": false},
                "liveUpdateConfiguration": {"maxHotplugRatio": 2, "maxCpuSockets": 8, "maxGuest": "8Gi"},
                "architectureConfiguration": {"amd64": {"machineType": "pc-q35-7.2", "emulatedMachines": ["pc*"]}},
            }}}),
            "amd64",
        );
        assert!(!config.updates_live() && !config.permits_bridge_on_pod_network());
        assert_eq!(config.eviction_strategy(), Some("LiveMigrate"));
        assert_eq!(config.default_interface(), "masquerade");
        assert_eq!((config.max_hotplug_ratio(), config.max_cpu_sockets()), (2, 8));
        assert_eq!(config.max_guest(), "8Gi".parse().ok());
        assert_eq!(config.machine_type("amd64"), "pc-q35-7.2");
        assert_eq!(config.emulated_machines("amd64"), ["pc*"]);
    }
}
