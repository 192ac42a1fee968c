//! The configuration of devices, networks and memory in the KubeVirt object.

use crate::api::atom::{LabelSelector, Map, Quantity};
use crate::api::record::record;

record! {
    PermittedHostDevices {
        /// PCI devices that can be passed through.
        pci_host_devices: Vec<PciHostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// Mediated devices that can be passed through.
        mediated_devices: Vec<MediatedHostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// USB devices that can be passed through.
        usb: Vec<USBHostDevice> = {"x-kubernetes-list-type": "atomic"},
    }

    USBHostDevice {
        /// Name of the resource that virtual machines request.
        resource_name: String,
        /// Vendor and product IDs that select the devices.
        selectors: Vec<USBSelector> = {"x-kubernetes-list-type": "atomic"},
        /// Whether an external device plugin provides the resource.
        external_resource_provider: Option<bool>,
    }

    USBSelector {
        /// Vendor ID in hexadecimal digits.
        vendor: String,
        /// Product ID in hexadecimal digits.
        product: String,
    }

    PciHostDevice {
        /// Vendor and device ID of the PCI device, for example `10de:1eb8`.
        pci_vendor_selector: String,
        /// Name of the resource that virtual machines request.
        resource_name: String,
        /// Whether an external device plugin provides the resource.
        external_resource_provider: Option<bool>,
    }

    MediatedHostDevice {
        /// Type name of the mediated device.
        mdev_name_selector: String,
        /// Name of the resource that virtual machines request.
        resource_name: String,
        /// Whether an external device plugin provides the resource.
        external_resource_provider: Option<bool>,
    }

    MediatedDevicesConfiguration {
        /// Deprecated: use `mediatedDeviceTypes`.
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types of mediated devices that are created on nodes.
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types of mediated devices for selected nodes, which replace the general ones.
        node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig> = {"x-kubernetes-list-type": "atomic"},
        /// Whether mediated devices are created on nodes.
        enabled: Option<bool>,
    }

    NodeMediatedDeviceTypesConfig {
        /// Labels of the nodes that the types apply to.
        node_selector: Map<String> = {"required": true},
        /// Deprecated: use `mediatedDeviceTypes`.
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types of mediated devices that are created on these nodes.
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KSMConfiguration {
        /// Selector of the nodes with kernel same-page merging (KSM).
        node_label_selector: Option<LabelSelector>,
    }

    NetworkConfiguration {
        /// Default binding of the pod network: bridge or masquerade.
        default_network_interface: Option<String>,
        /// Deprecated: the slirp binding was removed.
        permit_slirp_interface: Option<bool>,
        /// Whether the bridge binding is permitted on the pod network.
        permit_bridge_interface_on_pod_network: Option<bool>,
        /// Network binding plugins, by name.
        binding: Map<InterfaceBindingPlugin>,
    }

    InterfaceBindingPlugin {
        /// Container image of the sidecar that configures the interface.
        sidecar_image: Option<String>,
        /// NetworkAttachmentDefinition that is added to the pod: NAMESPACE/NAME.
        network_attachment_definition: Option<String>,
        /// Attachment of the guest to the interface: tap or managedTap.
        domain_attachment_type: Option<String>,
        /// Options of live migrations with the binding.
        migration: Option<InterfaceBindingMigration>,
        /// Device information that the sidecar gets: device-info.
        downward_api as "downwardAPI": Option<String>,
        /// Resources of the sidecar container.
        compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    }

    ResourceRequirementsWithoutClaims {
        /// Maximum amount of each resource.
        limits: Map<Quantity>,
        /// Amount of each resource that is reserved.
        requests: Map<Quantity>,
    }

    InterfaceBindingMigration {
        /// Method of the migration; only link-refresh.
        method: Option<String>,
    }

    LiveUpdateConfiguration {
        /// Ratio of the maximum to the initial CPUs and memory of a guest.
        max_hotplug_ratio: Option<u32>,
        /// Maximum number of CPU sockets with hot-plugged ones.
        max_cpu_sockets: Option<u32>,
        /// Maximum memory of a guest with hot-plugged memory.
        max_guest: Option<Quantity>,
    }

    PersistentReservationConfiguration {
        /// Whether guests can use SCSI persistent reservations.
        enabled: Option<bool> = {"nullable": true},
    }

    ClaimRequest {
        /// Name of the ResourceClaim that provides the device.
        claim_name: Option<String>,
        /// Name of the request in the ResourceClaim.
        request_name: Option<String>,
    }
}
