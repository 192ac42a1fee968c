//! The configuration of devices, networks and memory in the KubeVirt object.

use crate::api::atom::{LabelSelector, Map, Quantity};
use crate::api::record::record;

record! {
    PermittedHostDevices {
        pci_host_devices: Vec<PciHostDevice> = {"x-kubernetes-list-type": "atomic"},
        mediated_devices: Vec<MediatedHostDevice> = {"x-kubernetes-list-type": "atomic"},
        usb: Vec<USBHostDevice> = {"x-kubernetes-list-type": "atomic"},
    }

    USBHostDevice {
        resource_name: String,
        selectors: Vec<USBSelector> = {"x-kubernetes-list-type": "atomic"},
        external_resource_provider: Option<bool>,
    }

    USBSelector {
        vendor: String,
        product: String,
    }

    PciHostDevice {
        pci_vendor_selector: String,
        resource_name: String,
        external_resource_provider: Option<bool>,
    }

    MediatedHostDevice {
        mdev_name_selector: String,
        resource_name: String,
        external_resource_provider: Option<bool>,
    }

    MediatedDevicesConfiguration {
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig> = {"x-kubernetes-list-type": "atomic"},
        enabled: Option<bool>,
    }

    NodeMediatedDeviceTypesConfig {
        node_selector: Map<String> = {"required": true},
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KSMConfiguration {
        node_label_selector: Option<LabelSelector>,
    }

    NetworkConfiguration {
        default_network_interface: Option<String>,
        permit_slirp_interface: Option<bool>,
        permit_bridge_interface_on_pod_network: Option<bool>,
        binding: Map<InterfaceBindingPlugin>,
    }

    InterfaceBindingPlugin {
        sidecar_image: Option<String>,
        network_attachment_definition: Option<String>,
        domain_attachment_type: Option<String>,
        migration: Option<InterfaceBindingMigration>,
        downward_api as "downwardAPI": Option<String>,
        compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    }

    ResourceRequirementsWithoutClaims {
        limits: Map<Quantity>,
        requests: Map<Quantity>,
    }

    InterfaceBindingMigration {
        method: Option<String>,
    }

    LiveUpdateConfiguration {
        max_hotplug_ratio: Option<u32>,
        max_cpu_sockets: Option<u32>,
        max_guest: Option<Quantity>,
    }

    PersistentReservationConfiguration {
        enabled: Option<bool> = {"nullable": true},
    }

    ClaimRequest {
        /// Resource claim that the device comes from.
        claim_name: Option<String>,
        /// Request in the resource claim.
        request_name: Option<String>,
    }
}
