//! The configuration that a machine is to have. Pure.

use serde_json::{Value, json};

use super::pooled_networks;
use super::record::config_spec;
use crate::copied_spec::items_mut;
use crate::object::{
    controlled_by, controller, is_controlled_by, is_deleting, is_merged, name, namespace, read,
    version,
};
use crate::record::fields;
use crate::record::instance::InstanceFields;

/// As many interfaces as the schema allows.
const MOST: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ConfigChange {
    Create(Value),
    Patch(Value),
    /// An object of its name belongs to another machine.
    Foreign(String),
}

fields! {
    /// The spec of an instance.
    struct TemplateSpec<'a> {
        domain: DomainFields<'a>,
    }

    struct DomainFields<'a> {
        devices: DeviceFields<'a>,
    }

    struct DeviceFields<'a> {
        interfaces: Vec<InterfaceFields<'a>>,
    }

    struct InterfaceFields<'a> {
        name: &'a str,
        mac_address: &'a str,
    }
}

/// The spec of a machine's instances, which is read as a whole by [`hci::dhcp`].
pub(super) fn template(machine: &Value) -> &Value {
    &machine["spec"]["template"]["spec"]
}

/// Whether the MAC address of an interface is known from the instance only.
pub(super) fn lacks_mac(machine: &Value) -> bool {
    let devices = read::<TemplateSpec<'_>>(template(machine)).domain.devices;
    devices.interfaces.iter().any(|own| own.mac_address.is_empty())
}

/// Interfaces on networks with a pool: network and MAC address.
fn pooled(machine: &Value, vmi: Option<&Value>, pools: &[Value]) -> Vec<(String, String)> {
    let mut spec = template(machine).clone();
    let seen: InstanceFields<'_> = vmi.map(read).unwrap_or_default();
    for interface in items_mut(&mut spec, "/domain/devices/interfaces") {
        let own: InterfaceFields<'_> = read(interface);
        let seen = seen.status.interfaces.iter().find(|seen| seen.name == own.name);
        if own.mac_address.is_empty()
            && let Some(seen) = seen
        {
            interface["macAddress"] = json!(seen.mac);
        }
    }
    let networks = pooled_networks(pools);
    let mut found = hci::dhcp::interfaces(namespace(machine), &spec);
    found.retain(|(network, _)| {
        let network = hci::dhcp::network_of(network);
        // A machine does not start on networks of other namespaces, and takes no address there.
        networks.contains(&network) && hci::network::may_use(namespace(machine), network.0)
    });
    found.truncate(MOST);
    found
}

/// The change that makes the configuration of a machine follow its interfaces. An address that a
/// user wished for an interface stays.
pub(super) fn plan(
    machine: &Value,
    vmi: Option<&Value>,
    pools: &[Value],
    config: Option<&Value>,
) -> Option<ConfigChange> {
    if is_deleting(machine) {
        return None;
    }
    let before = config.map(config_spec).unwrap_or_default();
    let wished = |network: &str, mac: &str| {
        let same = |entry: &str| hci::dhcp::is_same_network(entry, network);
        let mut entries = before.network_configs.iter();
        entries.find(|own| same(own.network_name) && own.mac() == mac)?.ip_address
    };
    let entries: Vec<Value> = pooled(machine, vmi, pools)
        .into_iter()
        .map(|(network, mac)| {
            let mut entry = json!({"networkName": network, "macAddress": mac});
            if let Some(address) = wished(&network, &mac) {
                entry["ipAddress"] = address.into();
            }
            entry
        })
        .collect();
    let owner = || json!([controlled_by(machine, "kubevirt.io/v1", "VirtualMachine")]);
    let own = name(machine);
    let Some(config) = config else {
        let is_needed = !entries.is_empty();
        let mut object = json!({
            "apiVersion": format!("{}/{}", hci::dhcp::GROUP, hci::dhcp::VERSION),
            "kind": "VirtualMachineNetworkConfig",
            "metadata": {"name": own, "ownerReferences": owner()},
            "spec": {"vmName": own, "networkConfigs": entries},
        });
        // Longer names are none that a label can have.
        if own.len() <= 63 {
            object["metadata"]["labels"] = json!({hci::dhcp::VM_NAME_KEY: own});
        }
        return is_needed.then_some(ConfigChange::Create(object));
    };
    if before.vm_name != own || controller(config).is_some() && !is_controlled_by(config, machine) {
        let named = before.vm_name;
        return (!entries.is_empty() && named != own).then(|| {
            ConfigChange::Foreign(format!(
                "VirtualMachineNetworkConfig {own} is for the machine {named:?}, so that this \
                 machine gets no address; delete it"
            ))
        });
    }
    let mut patch = json!({"spec": {"networkConfigs": entries}});
    if controller(config).is_none() {
        patch["metadata"]["ownerReferences"] = owner();
    }
    if is_merged(config, &patch) || is_deleting(config) {
        return None;
    }
    let metadata = &mut patch["metadata"];
    for (key, value) in version(config) {
        metadata[key] = value;
    }
    Some(ConfigChange::Patch(patch))
}
