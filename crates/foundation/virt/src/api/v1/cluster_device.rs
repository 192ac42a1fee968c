//! The configuration of devices, networks and memory in the KubeVirt object.

use crate::api::atom::{LabelSelector, Map, Quantity};
use crate::api::record::record;

record! {
    PermittedHostDevices {
        /// PCI devices.
        pci_host_devices: Vec<PciHostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// Mediated devices.
        mediated_devices: Vec<MediatedHostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// USB devices.
        usb: Vec<USBHostDevice> = {"x-kubernetes-list-type": "atomic"},
    }

    USBHostDevice {
        /// Resource that machines request.
        resource_name: String,
        /// The devices.
        selectors: Vec<USBSelector> = {"x-kubernetes-list-type": "atomic"},
        /// Another device plugin announces the devices.
        external_resource_provider: Option<bool>,
    }

    USBSelector {
        /// Vendor ID in hexadecimal digits.
        vendor: String,
        /// Product ID in hexadecimal digits.
        product: String,
    }

    PciHostDevice {
        /// Vendor and device ID, `10de:1eb8`.
        pci_vendor_selector: String,
        /// Resource that machines request.
        resource_name: String,
        /// Another device plugin announces the devices.
        external_resource_provider: Option<bool>,
    }

    MediatedHostDevice {
        /// Type name of the mediated device.
        mdev_name_selector: String,
        /// Resource that machines request.
        resource_name: String,
        /// Another device plugin announces the devices.
        external_resource_provider: Option<bool>,
    }

    MediatedDevicesConfiguration {
        /// Deprecated: use `mediatedDeviceTypes`.
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types that nodes create.
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types that some nodes create instead.
        node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig> = {"x-kubernetes-list-type": "atomic"},
        /// Whether nodes create mediated devices.
        enabled: Option<bool>,
    }

    NodeMediatedDeviceTypesConfig {
        /// Labels of the nodes.
        node_selector: Map<String> = {"required": true},
        /// Deprecated: use `mediatedDeviceTypes`.
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Types that these nodes create.
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KSMConfiguration {
        /// Labels of nodes that merge equal pages.
        node_label_selector: Option<LabelSelector>,
    }

    NetworkConfiguration {
        /// Binding of guests that have no interface: bridge or masquerade.
        default_network_interface: Option<String>,
        /// Deprecated: slirp interfaces do not exist any more.
        permit_slirp_interface: Option<bool>,
        /// Whether the pod network may be bridged into guests.
        permit_bridge_interface_on_pod_network: Option<bool>,
        /// Further bindings by name.
        binding: Map<InterfaceBindingPlugin>,
    }

    InterfaceBindingPlugin {
        /// Image of a container that prepares the guest.
        sidecar_image: Option<String>,
        /// Attachment that the pod gets, NAMESPACE/NAME.
        network_attachment_definition: Option<String>,
        /// How the guest is attached: tap or managedTap.
        domain_attachment_type: Option<String>,
        /// Live migration of guests with the binding.
        migration: Option<InterfaceBindingMigration>,
        /// What the container learns of the device.
        downward_api as "downwardAPI": Option<String>,
        /// Resources of the container.
        compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    }

    ResourceRequirementsWithoutClaims {
        /// Most of each resource that is used.
        limits: Map<Quantity>,
        /// How much of each resource is reserved.
        requests: Map<Quantity>,
    }

    InterfaceBindingMigration {
        /// How the link moves: link-refresh.
        method: Option<String>,
    }

    LiveUpdateConfiguration {
        /// How many times its size a running guest can grow to.
        max_hotplug_ratio: Option<u32>,
        /// Most sockets of a running guest.
        max_cpu_sockets: Option<u32>,
        /// Most memory of a running guest.
        max_guest: Option<Quantity>,
    }

    PersistentReservationConfiguration {
        /// Whether guests may use them.
        enabled: Option<bool> = {"nullable": true},
    }

    ClaimRequest {
        /// Resource claim that the device comes from.
        claim_name: Option<String>,
        /// Request in the resource claim.
        request_name: Option<String>,
    }
}
