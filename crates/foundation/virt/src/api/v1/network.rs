//! Networks, interfaces, and credentials for the guest.

use super::cluster_device::ClaimRequest;
use crate::api::atom::Empty;
use crate::api::record::record;

record! {
    Interface {
        /// Name of the interface, which must be the name of a network.
        name: String,
        /// Model of the interface: virtio (default), e1000, e1000e, ne2k_pci, pcnet or rtl8139.
        model: Option<String>,
        /// Connects the guest to the network with a bridge.
        bridge: Option<Empty>,
        /// Deprecated: the slirp binding was removed; not supported.
        slirp: Option<Empty>,
        /// Connects the guest with NAT behind the address of the node or pod.
        masquerade: Option<Empty>,
        /// Passes an SR-IOV function through to the guest; not supported.
        sriov: Option<Empty>,
        /// Connects the guest through macvtap; not supported.
        macvtap: Option<Empty>,
        /// Connects the guest through passt; not supported.
        passt: Option<Empty>,
        /// Connects the guest through passt; not supported.
        passt_binding: Option<Empty>,
        /// Connects the guest through a network binding plugin.
        binding: Option<PluginBinding>,
        /// Ports that are forwarded to the guest; all ports if empty.
        ports: Vec<Port>,
        /// Ranges of ports that are forwarded to the guest.
        port_ranges: Vec<PortRange> = {"x-kubernetes-list-type": "atomic"},
        /// MAC address of the interface, for example de:ad:00:00:be:ef.
        mac_address: Option<String>,
        /// Boot order of the interface, beginning with 1; unique among disks and interfaces.
        boot_order: Option<u64>,
        /// PCI address in the guest, for example 0000:81:01.0.
        pci_address: Option<String>,
        /// Additional options of the DHCP server.
        dhcp_options: Option<DHCPOptions>,
        /// Tag of the device in the metadata of the guest.
        tag: Option<String>,
        /// ACPI index, which gives the interface a predictable name in the guest.
        acpi_index: Option<i64>,
        /// State of the interface: up (default), down or absent, which removes it.
        state: Option<String>,
    }

    DHCPOptions {
        /// Name of the boot file (DHCP option 67).
        boot_file_name: Option<String>,
        /// Name of the TFTP server (DHCP option 66).
        tftp_server_name: Option<String>,
        /// Addresses of NTP servers (DHCP option 42).
        ntp_servers: Vec<String>,
        /// Private DHCP options (224 to 254).
        private_options: Vec<DHCPPrivateOptions>,
    }

    DHCPPrivateOptions {
        /// Number of the DHCP option, 224 to 254.
        option: i64,
        /// Value of the DHCP option.
        value: String,
    }

    PluginBinding {
        /// Name of the network binding plugin.
        name: String,
    }

    Port {
        /// Name of the port.
        name: Option<String>,
        /// Protocol of the port: TCP or UDP.
        protocol: Option<String>,
        /// Number of the port.
        port: i32,
    }

    PortRange {
        /// Protocol of the ports: TCP or UDP.
        protocol: String,
        /// First port of the range.
        start: i32,
        /// Last port of the range.
        end: i32,
    }

    AccessCredentialSecretSource {
        /// Name of the Secret.
        secret_name: String,
    }

    QemuGuestAgentSSHPublicKeyAccessCredentialPropagation {
        /// Users of the guest that get the keys.
        users: Vec<String> = {"x-kubernetes-list-type": "set", "required": true},
    }

    SSHPublicKeyAccessCredentialSource {
        /// Secret whose values are public keys.
        secret: Option<AccessCredentialSecretSource>,
    }

    SSHPublicKeyAccessCredentialPropagationMethod {
        /// Adds the keys through the config drive of cloud-init, at boot.
        config_drive: Option<Empty>,
        /// Adds the keys through the NoCloud disk of cloud-init, at boot.
        no_cloud: Option<Empty>,
        /// Adds the keys through the guest agent, while the guest runs.
        qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
    }

    SSHPublicKeyAccessCredential {
        /// Source of the SSH public keys.
        source: SSHPublicKeyAccessCredentialSource,
        /// Method that adds the keys to the guest.
        propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    }

    UserPasswordAccessCredentialSource {
        /// Secret with users as keys and passwords as values.
        secret: Option<AccessCredentialSecretSource>,
    }

    UserPasswordAccessCredentialPropagationMethod {
        /// Sets the passwords through the guest agent, while the guest runs.
        qemu_guest_agent: Option<Empty>,
    }

    UserPasswordAccessCredential {
        /// Source of the passwords.
        source: UserPasswordAccessCredentialSource,
        /// Method that sets the passwords in the guest.
        propagation_method: UserPasswordAccessCredentialPropagationMethod,
    }

    AccessCredential {
        /// SSH public keys that are added to users of the guest.
        ssh_public_key: Option<SSHPublicKeyAccessCredential>,
        /// Passwords that are set for users of the guest.
        user_password: Option<UserPasswordAccessCredential>,
    }

    Network {
        /// Name of the network, which interfaces refer to.
        name: String,
        /// Pod network, the default network of the cluster.
        pod: Option<PodNetwork>,
        /// Network of a NetworkAttachmentDefinition.
        multus: Option<MultusNetwork>,
        /// Network device of a ResourceClaim.
        resource_claim: Option<ClaimRequest>,
    }

    PodNetwork {
        /// Ignored: the guest network of the node determines the addresses.
        vm_network_cidr as "vmNetworkCIDR": Option<String>,
        /// Ignored: the guest network of the node determines the addresses.
        vm_i_pv6_network_cidr as "vmIPv6NetworkCIDR": Option<String>,
    }

    MultusNetwork {
        /// Name of the NetworkAttachmentDefinition, as NAME or NAMESPACE/NAME.
        network_name: String,
        /// Whether this network replaces the pod network.
        default: Option<bool>,
    }
}
