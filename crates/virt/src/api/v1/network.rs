//! Networks, interfaces, and credentials for the guest.

use super::configuration::ClaimRequest;
use crate::api::atom::Empty;
use crate::api::record::record;

record! {
    Interface {
        /// The name of the network that the interface connects to.
        name: String,
        /// virtio (default), e1000, e1000e, ne2k_pci, pcnet or rtl8139.
        model: Option<String>,
        /// Connects the guest to the network as it is.
        bridge: Option<Empty>,
        slirp: Option<Empty>,
        /// Hides the guest behind the address of the node or pod.
        masquerade: Option<Empty>,
        sriov: Option<Empty>,
        macvtap: Option<Empty>,
        passt: Option<Empty>,
        passt_binding: Option<Empty>,
        binding: Option<PluginBinding>,
        /// The only ports that are forwarded; all if empty.
        ports: Vec<Port>,
        port_ranges: Vec<PortRange> = {"x-kubernetes-list-type": "atomic"},
        /// The address of the interface, for example de:ad:00:00:be:ef.
        mac_address: Option<String>,
        boot_order: Option<u64>,
        pci_address: Option<String>,
        dhcp_options: Option<DHCPOptions>,
        tag: Option<String>,
        acpi_index: Option<i64>,
        /// up (default), down or absent (removes the interface).
        state: Option<String>,
    }

    DHCPOptions {
        boot_file_name: Option<String>,
        tftp_server_name: Option<String>,
        ntp_servers: Vec<String>,
        private_options: Vec<DHCPPrivateOptions>,
    }

    DHCPPrivateOptions {
        option: i64,
        value: String,
    }

    PluginBinding {
        name: String,
    }

    Port {
        name: Option<String>,
        protocol: Option<String>,
        port: i32,
    }

    PortRange {
        protocol: String,
        start: i32,
        end: i32,
    }

    AccessCredentialSecretSource {
        secret_name: String,
    }

    QemuGuestAgentSSHPublicKeyAccessCredentialPropagation {
        users: Vec<String> = {"x-kubernetes-list-type": "set", "required": true},
    }

    SSHPublicKeyAccessCredentialSource {
        secret: Option<AccessCredentialSecretSource>,
    }

    SSHPublicKeyAccessCredentialPropagationMethod {
        config_drive: Option<Empty>,
        no_cloud: Option<Empty>,
        qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
    }

    SSHPublicKeyAccessCredential {
        source: SSHPublicKeyAccessCredentialSource,
        propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    }

    UserPasswordAccessCredentialSource {
        secret: Option<AccessCredentialSecretSource>,
    }

    UserPasswordAccessCredentialPropagationMethod {
        qemu_guest_agent: Option<Empty>,
    }

    UserPasswordAccessCredential {
        source: UserPasswordAccessCredentialSource,
        propagation_method: UserPasswordAccessCredentialPropagationMethod,
    }

    AccessCredential {
        ssh_public_key: Option<SSHPublicKeyAccessCredential>,
        user_password: Option<UserPasswordAccessCredential>,
    }

    Network {
        name: String,
        /// The default network.
        pod: Option<PodNetwork>,
        /// A network of a NetworkAttachmentDefinition.
        multus: Option<MultusNetwork>,
        resource_claim: Option<ClaimRequest>,
    }

    PodNetwork {
        vm_network_cidr as "vmNetworkCIDR": Option<String>,
        vm_i_pv6_network_cidr as "vmIPv6NetworkCIDR": Option<String>,
    }

    MultusNetwork {
        network_name: String,
        default: Option<bool>,
    }
}
