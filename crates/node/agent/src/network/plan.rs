//! The rules that decide the network of an interface. Pure.

use std::collections::BTreeSet;

use hci::network::{NetworkConfig, SHARED, may_use};
use net::{DhcpOptions, InboundPolicy, Mac, PrivateOption, Protocol};
use serde_json::Value;
use virt::v1::Interface;

use super::ConnectError;
use crate::dhcp::BridgedInterface;
use crate::guest_name::{ZONE, names_below};
use crate::machine::{BridgeNetwork, Vmi};

/// As many queues as QEMU and the kernel take.
const MOST_QUEUES: u32 = 256;

/// Where an interface leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    /// To the node's own network.
    Pod,
    /// To a bridge of a cluster network or of the host.
    Bridge(BridgeNetwork),
}

/// The annotation of a NetworkAttachmentDefinition whose guests may be DHCP servers and routers,
/// with the value `allowed`.
const GUEST_SERVERS: &str = "/metadata/annotations/sheaf.io~1guest-servers";

/// The NetworkAttachmentDefinition that a network names: namespace and name.
pub(crate) fn definition_of<'a>(vmi: &'a Vmi, network_name: &'a str) -> (&'a str, &'a str) {
    network_name.split_once('/').unwrap_or((vmi.namespace.as_str(), network_name))
}

/// Where `interface` leads. `definition` is the NetworkAttachmentDefinition that its network
/// names: a guest gets to no bridge that an administrator has not named for it.
pub(crate) fn binding(
    vmi: &Vmi,
    interface: &Interface,
    definition: Option<&Value>,
) -> Result<Binding, ConnectError> {
    let unsupported =
        |what: String| Err(ConnectError::Unsupported { interface: interface.name.clone(), what });
    if interface.sriov.is_some() || interface.macvtap.is_some() {
        return unsupported("only masquerade and bridge are supported".into());
    }
    let network = vmi.spec.networks.iter().find(|network| network.name == interface.name);
    let Some(network) = network else {
        return unsupported("there is no network of this name in spec.networks".into());
    };
    let Some(multus) = &network.multus else { return Ok(Binding::Pod) };
    let (namespace, name) = definition_of(vmi, &multus.network_name);
    if !may_use(&vmi.namespace, namespace) {
        return unsupported(format!(
            "network {namespace}/{name} belongs to another namespace; use one of namespace {} or \
             of a shared namespace ({})",
            vmi.namespace,
            SHARED.join(", ")
        ));
    }
    let Some(definition) = definition else {
        return unsupported(format!(
            "there is no NetworkAttachmentDefinition {namespace}/{name}; an administrator has to \
             create it"
        ));
    };
    let config = NetworkConfig::read(definition).unwrap_or_default();
    if config.bridge.is_empty() {
        return unsupported(format!(
            "the NetworkAttachmentDefinition {namespace}/{name} names no bridge in spec.config"
        ));
    }
    match config.vlans() {
        Ok(vlans) => {
            let guest_servers = definition.pointer(GUEST_SERVERS) == Some(&"allowed".into());
            let network = bridge_network(config, vlans);
            Ok(Binding::Bridge(BridgeNetwork { guest_servers, ..network }))
        }
        Err(why) => unsupported(format!("network {namespace}/{name}: {why}")),
    }
}

fn bridge_network(config: NetworkConfig, vlans: BTreeSet<u16>) -> BridgeNetwork {
    let is_trunk = !config.vlan_trunk.is_empty();
    BridgeNetwork {
        vlan: if is_trunk { 0 } else { vlans.first().copied().unwrap_or(0) },
        trunk: if is_trunk { vlans } else { BTreeSet::new() },
        mtu: u16::try_from(config.mtu).ok().filter(|mtu| *mtu > 0),
        bridge: config.bridge,
        guest_servers: false,
    }
}

/// One per processor, if the machine asks for that.
pub(super) fn queues(vmi: &Vmi, interface: &Interface) -> u16 {
    let domain = &vmi.spec.domain;
    let virtio = matches!(interface.model.as_deref(), None | Some("" | "virtio"));
    if domain.devices.network_interface_multiqueue != Some(true) || !virtio {
        return 1;
    }
    let cpu = domain.cpu.as_ref();
    let part = |part: Option<u32>| part.filter(|count| *count > 0).unwrap_or(1);
    let count = cpu.map_or(1, |cpu| part(cpu.sockets) * part(cpu.cores) * part(cpu.threads));
    u16::try_from(count.min(MOST_QUEUES)).unwrap_or(1)
}

/// A list of ports limits what may come in; no list means everything.
pub(super) fn inbound(_: &Vmi, interface: &Interface) -> InboundPolicy {
    allowed_ports(interface)
}

fn allowed_ports(interface: &Interface) -> InboundPolicy {
    if interface.masquerade.is_none() || interface.ports.is_empty() {
        return InboundPolicy::All;
    }
    let ports = interface.ports.iter().filter_map(|port| {
        let protocol = match port.protocol.as_deref() {
            None | Some("" | "TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(_) => return None,
        };
        Some((protocol, u16::try_from(port.port).ok()?))
    });
    InboundPolicy::Only(ports.collect::<BTreeSet<_>>())
}

/// The ports of an instance that may be reached on the guest network of its node.
pub(crate) fn inbound_ports(instance: &Value) -> InboundPolicy {
    let interfaces = instance["spec"]["domain"]["devices"]["interfaces"].clone();
    let interfaces: Vec<Interface> = serde_json::from_value(interfaces).unwrap_or_default();
    let interface = interfaces.iter().find(|own| own.masquerade.is_some());
    interface.map_or(InboundPolicy::All, allowed_ports)
}

pub(super) fn dhcp_options(vmi: &Vmi, interface: &Interface) -> DhcpOptions {
    let namespace = &vmi.namespace;
    let domain = match vmi.spec.subdomain.as_deref() {
        Some(subdomain) if !subdomain.is_empty() => format!("{subdomain}.{namespace}.svc.{ZONE}"),
        _ => format!("{namespace}.vm.{ZONE}"),
    };
    let mut options = DhcpOptions {
        hostname: Some(vmi.hostname().to_owned()),
        search: search(&domain, namespace),
        domain: Some(domain),
        ..DhcpOptions::default()
    };
    let Some(wanted) = &interface.dhcp_options else { return options };
    options.tftp_server = wanted.tftp_server_name.clone().filter(|text| !text.is_empty());
    options.bootfile = wanted.boot_file_name.clone().filter(|text| !text.is_empty());
    options.ntp = wanted.ntp_servers.iter().filter_map(|server| server.parse().ok()).collect();
    options.private = wanted
        .private_options
        .iter()
        .filter_map(|option| {
            let code = u8::try_from(option.option).ok()?;
            Some(PrivateOption { code, value: option.value.clone() })
        })
        .collect();
    options
}

/// An interface on a network that may have a pool of addresses. Names of the guest network mean nothing
/// there; other options that cannot be sent are left out.
pub(super) fn bridged(
    vmi: &Vmi,
    interface: &Interface,
    mac: Mac,
    mtu: Option<u16>,
) -> Option<BridgedInterface> {
    let network = vmi.spec.networks.iter().find(|network| network.name == interface.name)?;
    let (namespace, name) = definition_of(vmi, &network.multus.as_ref()?.network_name);
    let own = dhcp_options(vmi, interface);
    let options = DhcpOptions { domain: None, search: vec![], mtu, ..own };
    let options = options.check().map(|()| options.clone()).unwrap_or_default();
    Some(BridgedInterface { network: format!("{namespace}/{name}"), mac, options })
}

/// Where short names are searched: those beside the guest, services as a pod finds them, and
/// guests of the namespace.
fn search(domain: &str, namespace: &str) -> Vec<String> {
    let guests = format!("{namespace}.vm.{ZONE}");
    let services = [format!("{namespace}.svc.{ZONE}"), format!("svc.{ZONE}"), ZONE.to_owned()];
    let own = (domain != guests).then(|| domain.to_owned());
    own.into_iter().chain(services).chain([guests]).collect()
}

/// The DNS names of a guest.
pub(super) fn names_of(vmi: &Vmi) -> Vec<String> {
    names_below(&vmi.namespace, vmi.hostname(), vmi.spec.subdomain.as_deref())
}

/// The prefix of taps and the name of the table that go with a bridge of this name.
pub(super) fn names(bridge: &str) -> (String, String) {
    let plain: String = bridge.chars().filter(char::is_ascii_alphanumeric).collect();
    // An interface's name has 15 bytes, and a tap's needs room to differ.
    let short: String = plain.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
    (format!("s{short}-"), format!("sheaf_{plain}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    fn with_network(network: Value) -> (Vmi, Interface) {
        let vmi = vmi(json!({
            "domain": {"devices": {"interfaces": [{"name": "a", "bridge": {}}]}},
            "networks": [network],
        }));
        let interface = vmi.spec.domain.devices.interfaces[0].clone();
        (vmi, interface)
    }

    #[test]
    fn an_interface_leads_to_the_pod_network_or_to_a_named_bridge() {
        let (pod, interface) = with_network(json!({"name": "a", "pod": {}}));
        assert_eq!(binding(&pod, &interface, None).unwrap(), Binding::Pod);
        let multus = json!({"name": "a", "multus": {"networkName": "default/br1"}});
        let (multus, interface) = with_network(multus);
        let missing = binding(&multus, &interface, None).unwrap_err().to_string();
        assert!(missing.contains("no NetworkAttachmentDefinition default/br1"), "{missing}");
        let empty = json!({"spec": {"config": r#"{"type":"bridge"}"#}});
        let unnamed = binding(&multus, &interface, Some(&empty)).unwrap_err().to_string();
        assert!(unnamed.contains("names no bridge"), "{unnamed}");
        let definition = json!({"spec": {"config": r#"{"type":"bridge","bridge":"vmbr7"}"#}});
        let named = binding(&multus, &interface, Some(&definition)).unwrap();
        let plain = BridgeNetwork { bridge: "vmbr7".into(), ..BridgeNetwork::default() };
        assert_eq!(named, Binding::Bridge(plain.clone()));
        let mut routed = definition.clone();
        routed["metadata"]["annotations"] = json!({"sheaf.io/guest-servers": "allowed"});
        let named = binding(&multus, &interface, Some(&routed)).unwrap();
        assert_eq!(named, Binding::Bridge(BridgeNetwork { guest_servers: true, ..plain.clone() }));
        let with = |config: &str| {
            let definition = json!({"spec": {"config": config}});
            binding(&multus, &interface, Some(&definition)).map_err(|why| why.to_string())
        };
        let tagged = BridgeNetwork { vlan: 7, mtu: Some(9000), ..plain.clone() };
        let config = r#"{"bridge":"vmbr7","vlan":7,"mtu":9000}"#;
        assert_eq!(with(config), Ok(Binding::Bridge(tagged.clone())));
        let trunk = BridgeNetwork { trunk: BTreeSet::from([5, 6, 9]), ..plain.clone() };
        let config = r#"{"bridge":"vmbr7","vlanTrunk":[{"minID":5,"maxID":6},{"id":9}]}"#;
        assert_eq!(with(config), Ok(Binding::Bridge(trunk.clone())));
        let wrong = with(r#"{"bridge":"vmbr7","vlan":5000}"#).unwrap_err();
        assert!(wrong.contains("vlan 5000 is out of range"), "{wrong}");
        let ports = [plain, tagged, trunk].map(|network| network.port_vlans().is_access());
        assert_eq!(ports, [true, true, false]);
        for (network, is_allowed) in [
            ("br1", true),
            ("harvester-public/br1", true),
            ("victim/br1", false),
            ("default-2/br1", false),
            ("/br1", false),
        ] {
            let network = json!({"name": "a", "multus": {"networkName": network}});
            let (guest, interface) = with_network(network.clone());
            let bound = binding(&guest, &interface, Some(&definition));
            assert_eq!(bound.is_ok(), is_allowed, "{network}: {bound:?}");
        }
        let (other, interface) = with_network(json!({"name": "b", "pod": {}}));
        assert!(binding(&other, &interface, None).is_err());
    }

    #[test]
    fn ports_limit_what_comes_in() {
        let interface: Interface = serde_json::from_value(json!({
            "name": "a", "masquerade": {}, "ports": [{"port": 22}, {"port": 53, "protocol": "UDP"}],
        }))
        .unwrap();
        let vmi = vmi(json!({"domain": {}}));
        let want = BTreeSet::from([(Protocol::Tcp, 22), (Protocol::Udp, 53)]);
        assert_eq!(inbound(&vmi, &interface), InboundPolicy::Only(want));
    }

    #[test]
    fn guests_are_found_by_name() {
        let vmi = vmi(json!({"domain": {}, "hostname": "web", "subdomain": "front"}));
        assert_eq!(names_of(&vmi), ["web.ns.vm.cluster.local", "web.front.ns.svc.cluster.local"]);
    }

    #[test]
    fn short_names_are_those_of_services_and_guests() {
        let services = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"];
        let own = "front.ns.svc.cluster.local";
        let guests = "ns.vm.cluster.local";
        let plain = [&services[..], &[guests]].concat();
        let below = [&[own], &services[..], &[guests]].concat();
        let interface: Interface = serde_json::from_value(json!({"name": "a"})).unwrap();
        for (spec, search) in
            [(json!({"domain": {}}), plain), (json!({"domain": {}, "subdomain": "front"}), below)]
        {
            assert_eq!(dhcp_options(&vmi(spec), &interface).search, search);
        }
    }

    #[test]
    fn taps_of_two_bridges_differ() {
        assert_eq!(names("sheaf-test1"), ("sest1-".into(), "sheaf_sheaftest1".into()));
    }
}
