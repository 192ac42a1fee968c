//! Interfaces of hosts, with the texts of Harvester's network webhook.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde_json::Value;

use super::{refuse, validate_policy};
use crate::admit::{AdmissionResult, Refusal, Write, text};
use crate::harvester::network::HostNetworkConfig;
use crate::network::{GROUP, MANAGEMENT, host_interface_of, selects_host};

const KIND: &str = "hostnetworkConfig";
/// The longest name of an interface.
const LINK_NAME_LIMIT: usize = 15;

fn read(object: &Value) -> Option<HostNetworkConfig> {
    serde_json::from_value(object.clone()).ok()
}

pub(in crate::admit) fn validate(write: &Write<'_>) -> AdmissionResult {
    let (new, old) = (write.object.and_then(read), write.old.and_then(read));
    let no = |field, why: &str| Err(refuse(write, KIND, field, why));
    let Some(config) = new else {
        let is_underlay = old.and_then(|old| old.spec.underlay) == Some(true);
        return match is_underlay {
            true => no("spec.underlay", "underlay is enabled, disable underlay first"),
            false => Ok(()),
        };
    };
    // Statuses and finalizers of an object that is being deleted.
    if config.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    validate_policy(write, KIND)?;
    let spec = &config.spec;
    if let Some(old) = &old
        && (&old.spec.cluster_network, old.spec.vlan_id) != (&spec.cluster_network, spec.vlan_id)
    {
        let why = "cannot update clusterNetwork or vlanID field,instead delete the old \
                   hostnetworkconfig and create a new one";
        return no("spec", why);
    }
    let interface = host_interface_of(&spec.cluster_network, spec.vlan_id);
    if interface.len() > LINK_NAME_LIMIT {
        let length = interface.len();
        let why =
            format!("host network interface name {interface} length {length} is more than 15");
        return no("spec.clusterNetwork", &why);
    }
    network(write, &config)?;
    others(write, &config)?;
    if spec.mode == "static" { addresses(write, &config) } else { Ok(()) }
}

/// The cluster network exists, and nodes have it.
fn network(write: &Write<'_>, config: &HostNetworkConfig) -> AdmissionResult {
    let name = &config.spec.cluster_network;
    let no = |why: String| Err(refuse(write, KIND, "spec.clusterNetwork", &why));
    if write.objects.get(GROUP, "clusternetworks", "", name).is_none() {
        return no(format!(
            "it refers to a none-existing cluster network {name} or error clusternetworks.{GROUP} \
             \"{name}\" not found"
        ));
    }
    if name == MANAGEMENT || write.old.is_some() {
        return Ok(());
    }
    let statuses = write.objects.list(GROUP, "vlanstatuses", "").into_iter();
    let own: Vec<Value> =
        statuses.filter(|status| text(status, "/status/clusterNetwork") == name).collect();
    if own.is_empty() {
        return no(format!("vlan status not present for cluster network {name}"));
    }
    let is_ready = |status: &&Value| {
        let conditions = status["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|own| own["type"] == "ready" && own["status"] == "True");
        ready.next().is_some()
    };
    match own.iter().find(|status| !is_ready(status)) {
        Some(status) => no(format!("vs {} status is not Ready", text(status, "/metadata/name"))),
        None => Ok(()),
    }
}

/// One interface for each VLAN, and one for the tunnels of overlays.
fn others(write: &Write<'_>, config: &HostNetworkConfig) -> AdmissionResult {
    let spec = &config.spec;
    let all = write.objects.list(GROUP, "hostnetworkconfigs", "");
    let all = all.iter().filter_map(read);
    for other in all.filter(|other| other.metadata.name.as_deref() != Some(write.name)) {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        let (network, vlan) = (&other.spec.cluster_network, other.spec.vlan_id);
        if (network, vlan) == (&spec.cluster_network, spec.vlan_id) {
            let why = format!(
                "hostnetworkconfig {name} already exists for cluster network {network} with vlanID {vlan}"
            );
            return Err(refuse(write, KIND, "spec.vlanID", &why));
        }
        if spec.underlay == Some(true) && other.spec.underlay == Some(true) {
            let why = format!(
                "hostnetworkconfig {name} already exists for cluster network {network} vlanid \
                 {vlan} with underlay enabled"
            );
            return Err(refuse(write, KIND, "spec.underlay", &why));
        }
    }
    Ok(())
}

/// Every node has an address, and all are in one subnet.
fn addresses(write: &Write<'_>, config: &HostNetworkConfig) -> AdmissionResult {
    let no = |why: String| -> Refusal { refuse(write, KIND, "spec.ips", &why) };
    let mut subnets: Vec<IpNet> = Vec::new();
    for (node, address) in &config.spec.ips {
        let parsed = address.parse::<IpNet>();
        let subnet = parsed.map_err(|_| no(format!("Invalid CIDR format: {address} of {node}")))?;
        subnets.push(subnet.trunc());
    }
    subnets.sort();
    subnets.dedup();
    if subnets.len() > 1 {
        let list: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        return Err(no(format!("static IPs are not in the same subnet: {}", list.join(", "))));
    }
    let nodes = write.objects.list("", "nodes", "");
    let labels = |node: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
    };
    let mut selected = nodes.iter().filter(|node| selects_host(config, &labels(node)));
    let missing = selected.find(|node| !config.spec.ips.contains_key(text(node, "/metadata/name")));
    match missing {
        Some(node) => {
            Err(no(format!("static IP not found for node {}", text(node, "/metadata/name"))))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, uuid};

    fn config(name: &str, network: &str, vlan: i64, ips: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"clusterNetwork": network, "vlanID": vlan,
            "mode": "static", "ips": ips, "nodeSelector": {"matchLabels": {"rack": "a"}}}})
    }

    fn judged(object: Option<&Value>, old: Option<&Value>) -> String {
        let status = |name: &str, network: &str, ready: &str| {
            json!({"metadata": {"name": name}, "status": {"clusterNetwork": network,
                "conditions": [{"type": "ready", "status": ready}]}})
        };
        let node =
            |name: &str, rack: &str| json!({"metadata": {"name": name, "labels": {"rack": rack}}});
        let network = |name: &str| json!({"metadata": {"name": name}});
        let cluster = Cluster(vec![
            ("", "nodes", node("one", "a")),
            ("", "nodes", node("two", "b")),
            (GROUP, "clusternetworks", network("mgmt")),
            (GROUP, "clusternetworks", network("lan")),
            (GROUP, "clusternetworks", network("dmz")),
            (GROUP, "clusternetworks", network("down")),
            (GROUP, "vlanstatuses", status("lan-one", "lan", "True")),
            (GROUP, "vlanstatuses", status("down-one", "down", "False")),
            (
                GROUP,
                "hostnetworkconfigs",
                config("first", "lan", 7, json!({"one": "198.51.100.1/24"})),
            ),
        ]);
        let some = object.or(old).unwrap();
        let write = Write {
            group: GROUP,
            resource: "hostnetworkconfigs",
            namespace: "",
            name: text(some, "/metadata/name"),
            object,
            old,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        let message = validate(&write).map_or_else(|refusal| refusal.message, |()| String::new());
        message.rsplit(" because ").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn host_interfaces_are_refused_in_the_words_of_harvester() {
        let one = || json!({"one": "198.51.100.1/24"});
        for (object, why) in [
            (config("h", "lan", 100, one()), ""),
            (config("h", "mgmt", 100, one()), ""),
            (
                config("h", "nine", 100, one()),
                "it refers to a none-existing cluster network nine or error clusternetworks.network.harvesterhci.io \"nine\" not found",
            ),
            (config("h", "dmz", 100, one()), "vlan status not present for cluster network dmz"),
            (config("h", "down", 100, one()), "vs down-one status is not Ready"),
            (
                config("h", "lan", 7, one()),
                "hostnetworkconfig first already exists for cluster network lan with vlanID 7",
            ),
            (
                config("h", "lan", 100, json!({"two": "198.51.100.1/24"})),
                "static IP not found for node one",
            ),
            (
                config("h", "lan", 100, json!({"one": "198.51.100.1"})),
                "Invalid CIDR format: 198.51.100.1 of one",
            ),
            (
                config("h", "lan", 100, json!({"one": "198.51.100.1/24", "two": "203.0.113.1/24"})),
                "static IPs are not in the same subnet: 198.51.100.0/24, 203.0.113.0/24",
            ),
            (
                config("h", "longnetwork", 4094, one()),
                "host network interface name longnetwork-br.4094 length 19 is more than 15",
            ),
        ] {
            assert_eq!(judged(Some(&object), None), why);
        }
        let (old, new) = (config("h", "lan", 100, one()), config("h", "lan", 101, one()));
        assert!(
            judged(Some(&new), Some(&old)).starts_with("cannot update clusterNetwork or vlanID")
        );
        let mut underlay = old.clone();
        underlay["spec"]["underlay"] = true.into();
        assert_eq!(judged(None, Some(&underlay)), "underlay is enabled, disable underlay first");
        assert_eq!(judged(None, Some(&old)), "");
        underlay["metadata"]["annotations"] = json!({"sheaf.io/network-confirm": "x"});
        assert!(judged(Some(&underlay), None).contains("must be auto, manual or never"));
    }
}
