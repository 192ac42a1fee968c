//! Admission of the networks and interfaces of an instance.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Causes;
use super::disk::is_pci_address;
use super::spec::CheckedSpec;
use crate::v1::{Interface, Network};

/// The address of the bridge that masquerades.
const RESERVED: &str = "02:00:00:00:00:00";

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    check_networks(judged, causes);
    let interfaces = &judged.devices().interfaces;
    for (index, interface) in interfaces.iter().enumerate() {
        check_state(judged, &at(judged, index), interface, causes);
    }
    for (index, interface) in interfaces.iter().enumerate() {
        check_binding(judged, &at(judged, index), interface, causes);
    }
    check_pairs(judged, causes);
    for (index, interface) in interfaces.iter().enumerate() {
        check_fields(judged, &at(judged, index), interface, causes);
    }
}

fn at(judged: &CheckedSpec<'_>, index: usize) -> String {
    judged.field(&format!("domain.devices.interfaces[{index}]"))
}

fn network<'a>(judged: &CheckedSpec<'a>, name: &str) -> Option<&'a Network> {
    judged.spec.networks.iter().find(|network| network.name == name)
}

fn on_pod_network(judged: &CheckedSpec<'_>, interface: &Interface) -> bool {
    network(judged, &interface.name).is_some_and(|network| network.pod.is_some())
}

fn is_default(network: &Network) -> bool {
    network.multus.as_ref().is_some_and(|multus| multus.default == Some(true))
}

fn check_networks(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let networks = &judged.spec.networks;
    let pods = networks.iter().filter(|network| network.pod.is_some()).count();
    let defaults = networks.iter().filter(|network| is_default(network)).count();
    if pods > 1 {
        let field = judged.field("interfaces");
        let message = format!("more than one interface is connected to a pod network in {field}");
        causes.duplicate(field, message);
    }
    if defaults > 1 {
        causes.invalid(judged.field("networks"), "Multus CNI should only have one default network");
    }
    if pods > 0 && defaults > 0 {
        causes.invalid(
            judged.field("networks"),
            "Pod network cannot be defined when Multus default network is defined",
        );
    }
    for (index, network) in networks.iter().enumerate() {
        let kinds =
            [network.pod.is_some(), network.multus.is_some(), network.resource_claim.is_some()];
        let problem = match kinds.into_iter().filter(|used| *used).count() {
            0 => "should have a network type",
            1 => continue,
            _ => "should have only one network type",
        };
        causes.required(judged.field(&format!("networks[{index}]")), problem);
    }
    let nameless = networks.iter().position(|network| {
        network.multus.as_ref().is_some_and(|multus| multus.network_name.is_empty())
    });
    if let Some(index) = nameless {
        causes.required(
            judged.field(&format!("networks[{index}]")),
            "CNI delegating plugin must have a networkName",
        );
    }
}

fn check_state(judged: &CheckedSpec<'_>, at: &str, interface: &Interface, causes: &mut Causes) {
    let (name, state) = (&interface.name, interface.state.as_deref().unwrap_or_default());
    let field = format!("{at}.state");
    if !matches!(state, "" | "absent" | "down" | "up") {
        let message = format!("logical {name} interface state value is unsupported: {state}");
        causes.invalid(field.clone(), message);
    }
    if interface.sriov.is_some() && matches!(state, "down" | "up") {
        let message =
            format!("{name:?} interface's state {state:?} is not supported for SR-IOV NICs");
        causes.invalid(field.clone(), message);
    }
    if state != "absent" {
        return;
    }
    if interface.bridge.is_none() {
        let message =
            format!("{name:?} interface's state {state:?} is supported only for bridge binding");
        causes.invalid(field.clone(), message);
    }
    let default = network(judged, name).is_some_and(|one| one.pod.is_some() || is_default(one));
    if default {
        let message =
            format!("{name:?} interface's state {state:?} is not supported on default networks");
        causes.invalid(field, message);
    }
}

fn check_binding(judged: &CheckedSpec<'_>, at: &str, interface: &Interface, causes: &mut Causes) {
    let bindings = [
        interface.bridge.is_some(),
        interface.masquerade.is_some(),
        interface.sriov.is_some(),
        interface.passt_binding.is_some(),
        interface.binding.is_some(),
    ];
    if bindings.into_iter().filter(|used| *used).count() != 1 {
        let message = format!(
            "logical {} interface must have exactly one binding method or binding plugin",
            interface.name
        );
        causes.invalid(at, message);
    }
    let (name, pod) = (format!("{at}.name"), on_pod_network(judged, interface));
    if interface.masquerade.is_some() && !pod {
        causes.invalid(name.clone(), "Masquerade interface only implemented with pod network");
    }
    if interface.masquerade.is_some() && interface.mac_address.as_deref() == Some(RESERVED) {
        causes.invalid(
            format!("{at}.macAddress"),
            "The requested MAC address is reserved for the in-pod bridge. Please choose another one.",
        );
    }
    if interface.bridge.is_some() && pod && !judged.config.permits_bridge_on_pod_network() {
        causes.invalid(
            name.clone(),
            "Bridge on pod network configuration is not enabled under kubevirt-config",
        );
    }
    if interface.passt_binding.is_some() {
        if !judged.config.has("PasstBinding") {
            causes.invalid(name.clone(), "PasstBinding feature gate is not enabled");
        }
        if !pod {
            causes.invalid(name, "PasstBinding interface only implemented with pod network");
        }
    }
}

/// Each network has its interface and each interface its network.
fn check_pairs(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let (networks, interfaces) = (&judged.spec.networks, &judged.devices().interfaces);
    let mut seen = BTreeSet::new();
    for (index, network) in networks.iter().enumerate() {
        if !seen.insert(&network.name) {
            let message = format!(
                "Network with name {:?} already exists, every network must have a unique name",
                network.name
            );
            causes.duplicate(judged.field(&format!("networks[{index}].name")), message);
        }
    }
    if networks.iter().any(|network| network.resource_claim.is_some())
        && !judged.config.has("NetworkDevicesWithDRA")
    {
        causes.invalid(
            judged.field("networks"),
            "vmi.spec.networks contains DRA networks but NetworkDevicesWithDRA feature gate is not enabled",
        );
    }
    for (index, network) in networks.iter().enumerate() {
        if !interfaces.iter().any(|interface| interface.name == network.name) {
            let field = judged.field(&format!("networks[{index}].name"));
            let message = format!("{field} '{}' not found.", network.name);
            causes.required(field, message);
        }
    }
    let mut seen = BTreeSet::new();
    for (index, interface) in interfaces.iter().enumerate() {
        if !seen.insert(&interface.name) {
            causes.duplicate(
                format!("{}.name", at(judged, index)),
                "Only one interface can be connected to one specific network",
            );
        }
    }
    for (index, interface) in interfaces.iter().enumerate() {
        if network(judged, &interface.name).is_none() {
            let field = format!("{}.name", at(judged, index));
            let message = format!("{field} '{}' not found.", interface.name);
            causes.invalid(field, message);
        }
    }
}

const MODELS: &[&str] = &["e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio", ""];

fn check_fields(judged: &CheckedSpec<'_>, at: &str, interface: &Interface, causes: &mut Causes) {
    let name = format!("{at}.name");
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if interface.name.is_empty() || !interface.name.chars().all(allowed) {
        causes.invalid(
            name.clone(),
            "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)",
        );
    }
    let model = interface.model.as_deref().unwrap_or_default();
    if !MODELS.contains(&model) {
        let message = format!("interface {name} uses model {model} that is not supported.");
        causes.unsupported(format!("{at}.model"), message);
    }
    let mac = interface.mac_address.as_deref().unwrap_or_default();
    if let Some(problem) = mac_problem(mac) {
        let message = format!("interface {name} has {problem} ({mac}).");
        causes.invalid(format!("{at}.macAddress"), message);
    }
    let pci = interface.pci_address.as_deref().unwrap_or_default();
    if !pci.is_empty() && !is_pci_address(pci) {
        let message = format!("interface {name} has malformed PCI address ({pci}).");
        causes.invalid(format!("{at}.pciAddress"), message);
    }
    if on_pod_network(judged, interface) {
        check_ports(at, interface, causes);
    }
    check_port_ranges(judged, at, interface, causes);
    check_dhcp(judged, at, interface, causes);
}

pub(super) fn mac_problem(mac: &str) -> Option<&'static str> {
    if mac.is_empty() {
        return None;
    }
    let separator = if mac.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = mac.split(separator).collect();
    let hex = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match parts.len() {
        _ if !parts.iter().all(hex) => Some("malformed MAC address"),
        6 => None,
        8 | 20 => Some("too long MAC address"),
        _ => Some("malformed MAC address"),
    }
}

fn check_ports(at: &str, interface: &Interface, causes: &mut Causes) {
    let mut names = BTreeSet::new();
    for (index, port) in interface.ports.iter().enumerate() {
        let name = port.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            continue;
        }
        let field = format!("{at}.ports[{index}].name");
        if !names.insert(name) {
            causes.duplicate(field.clone(), format!("Duplicate name of the port: {name}"));
        }
        if !kinds::syntax::port_name(name).is_empty() {
            causes.invalid(field, format!("Invalid name of the port: {name}"));
        }
    }
    for (index, port) in interface.ports.iter().enumerate() {
        let field = format!("{at}.ports[{index}]");
        if port.port == 0 {
            causes.required(format!("{field}.port"), "Port field is mandatory.");
        }
        if !(0..65536).contains(&port.port) {
            causes.invalid(format!("{field}.port"), "Port field must be in range 0 < x < 65536.");
        }
        if !matches!(port.protocol.as_deref(), None | Some("" | "TCP" | "UDP")) {
            causes
                .invalid(format!("{field}.protocol"), "Unknown protocol, only TCP or UDP allowed");
        }
    }
}

fn check_port_ranges(
    judged: &CheckedSpec<'_>,
    at: &str,
    interface: &Interface,
    causes: &mut Causes,
) {
    if interface.port_ranges.is_empty() {
        return;
    }
    let name = format!("{at}.name");
    if !judged.config.has("PortRangesSpec") {
        causes.invalid(
            name,
            "portRanges is specified on interface but the PortRangesSpec feature gate is not enabled",
        );
        return;
    }
    if !interface.ports.is_empty() {
        causes.invalid(name.clone(), "Cannot define both ports and portRanges on interface");
    }
    if interface.masquerade.is_none() {
        causes.invalid(name, "portRanges are only supported on masquerade interfaces");
    }
    for (index, range) in interface.port_ranges.iter().enumerate() {
        let field = format!("{at}.portRanges[{index}]");
        let valid = |port: i32| (1..65536).contains(&port);
        if !matches!(range.protocol.as_str(), "TCP" | "UDP") {
            causes
                .invalid(format!("{field}.protocol"), "Unknown protocol, only TCP or UDP allowed");
        } else if !valid(range.start) {
            causes.invalid(
                format!("{field}.start"),
                "Start must be a valid port number, 0 < x < 65536",
            );
        } else if !valid(range.end) {
            causes
                .invalid(format!("{field}.end"), "End must be a valid port number, 0 < x < 65536");
        } else if range.start > range.end {
            causes.invalid(format!("{field}.start"), "Start must be less than or equal to end");
        }
    }
}

fn check_dhcp(judged: &CheckedSpec<'_>, at: &str, interface: &Interface, causes: &mut Causes) {
    let Some(options) = &interface.dhcp_options else { return };
    let numbers: BTreeSet<i64> = options.private_options.iter().map(|one| one.option).collect();
    if numbers.len() < options.private_options.len() {
        causes
            .invalid(judged.at, "Found Duplicates: you have provided duplicate DHCPPrivateOptions");
    }
    for option in &options.private_options {
        if !(224..=254).contains(&option.option) {
            causes.invalid(
                judged.at,
                "provided DHCPPrivateOptions are out of range, must be in range 224 to 254",
            );
        }
    }
    for (index, server) in options.ntp_servers.iter().enumerate() {
        if server.parse::<Ipv4Addr>().is_err() {
            causes.invalid(
                format!("{at}.dhcpOptions.ntpServers[{index}]"),
                "NTP servers must be a list of valid IPv4 addresses.",
            );
        }
    }
}

/// Bindings that are gone; objects that have them from before may keep them.
pub(super) fn check_discontinued(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    for (index, interface) in judged.devices().interfaces.iter().enumerate() {
        let gone = [
            ("slirp", interface.slirp, "Slirp interface support"),
            ("passt", interface.passt, "Passt network binding"),
            ("macvtap", interface.macvtap, "Macvtap network binding"),
        ];
        for (field, used, what) in gone {
            if used.is_some() {
                causes.invalid(
                    format!("{}.{field}", at(judged, index)),
                    format!("{what} has been discontinued since v1.3"),
                );
            }
        }
    }
}
