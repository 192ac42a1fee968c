//! Networks, interfaces, and credentials for the guest.

use super::cluster_device::ClaimRequest;
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
        /// Removed upstream; not supported.
        slirp: Option<Empty>,
        /// Hides the guest behind the address of the node or pod.
        masquerade: Option<Empty>,
        /// Pass an SR-IOV function through; not supported.
        sriov: Option<Empty>,
        /// Connect through macvtap; not supported.
        macvtap: Option<Empty>,
        /// Connect through passt; not supported.
        passt: Option<Empty>,
        /// Connect through passt; not supported.
        passt_binding: Option<Empty>,
        /// Connect through a network binding plugin.
        binding: Option<PluginBinding>,
        /// The only ports that are forwarded; all if empty.
        ports: Vec<Port>,
        /// Ranges of ports that accept connections.
        port_ranges: Vec<PortRange> = {"x-kubernetes-list-type": "atomic"},
        /// The address of the interface, for example de:ad:00:00:be:ef.
        mac_address: Option<String>,
        /// Order among the devices to boot from, beginning with 1.
        boot_order: Option<u64>,
        /// PCI address in the guest, for example 0000:81:01.0.
        pci_address: Option<String>,
        /// Further options of the DHCP server.
        dhcp_options: Option<DHCPOptions>,
        /// Tag for the guest, in its device metadata.
        tag: Option<String>,
        /// Index that gives the interface a predictable name in the guest.
        acpi_index: Option<i64>,
        /// up (default), down or absent (removes the interface).
        state: Option<String>,
    }

    DHCPOptions {
        /// Boot file (option 67).
        boot_file_name: Option<String>,
        /// TFTP server (option 66).
        tftp_server_name: Option<String>,
        /// Time servers (option 42).
        ntp_servers: Vec<String>,
        /// Private options (224 to 254).
        private_options: Vec<DHCPPrivateOptions>,
    }

    DHCPPrivateOptions {
        /// Number of the option, 224 to 254.
        option: i64,
        /// Value of the option.
        value: String,
    }

    PluginBinding {
        /// Name of the plugin.
        name: String,
    }

    Port {
        /// Name of the port.
        name: Option<String>,
        /// TCP or UDP.
        protocol: Option<String>,
        /// Number of the port.
        port: i32,
    }

    PortRange {
        /// TCP or UDP.
        protocol: String,
        /// First port.
        start: i32,
        /// Last port.
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
        /// Through cloud-init's config drive, at boot.
        config_drive: Option<Empty>,
        /// Through cloud-init's NoCloud disk, at boot.
        no_cloud: Option<Empty>,
        /// Through the guest agent, while the guest runs.
        qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
    }

    SSHPublicKeyAccessCredential {
        /// Where the credentials come from.
        source: SSHPublicKeyAccessCredentialSource,
        /// How they get into the guest.
        propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    }

    UserPasswordAccessCredentialSource {
        /// Secret with users as keys and passwords as values.
        secret: Option<AccessCredentialSecretSource>,
    }

    UserPasswordAccessCredentialPropagationMethod {
        /// Through the guest agent, while the guest runs.
        qemu_guest_agent: Option<Empty>,
    }

    UserPasswordAccessCredential {
        /// Where the credentials come from.
        source: UserPasswordAccessCredentialSource,
        /// How they get into the guest.
        propagation_method: UserPasswordAccessCredentialPropagationMethod,
    }

    AccessCredential {
        /// SSH public keys of users.
        ssh_public_key: Option<SSHPublicKeyAccessCredential>,
        /// Passwords of users.
        user_password: Option<UserPasswordAccessCredential>,
    }

    Network {
        /// Name that interfaces refer to.
        name: String,
        /// The default network.
        pod: Option<PodNetwork>,
        /// A network of a NetworkAttachmentDefinition.
        multus: Option<MultusNetwork>,
        /// Device of a resource claim.
        resource_claim: Option<ClaimRequest>,
    }

    PodNetwork {
        /// Ignored: the node's guest network decides.
        vm_network_cidr as "vmNetworkCIDR": Option<String>,
        /// Ignored: the node's guest network decides.
        vm_i_pv6_network_cidr as "vmIPv6NetworkCIDR": Option<String>,
    }

    MultusNetwork {
        /// NetworkAttachmentDefinition, as NAME or NAMESPACE/NAME.
        network_name: String,
        /// This network replaces the pod network.
        default: Option<bool>,
    }
}
