//! Networks of their own for replication and migrations: their cluster network exists, nodes find
//! addresses, and no two of them have the same. Texts are Harvester's where it has one.

use std::net::Ipv4Addr;

use serde_json::Value;

use crate::admit::{AdmissionResult, HARVESTER, Refusal, Write, text};
use crate::cluster::{HOST_ADDRESSES, WITNESS_ROLE};
use crate::network::GROUP;
use crate::node_network::{NetworkSetting, NodeNetwork};

/// `value` has been checked by itself.
pub(super) fn validate(write: &Write<'_>, value: &str) -> AdmissionResult {
    let Some(network) = NodeNetwork::of_setting(write.name) else { return Ok(()) };
    let before = write.old.map(|old| text(old, "/value")).unwrap_or_default();
    let Ok(Some(wanted)) = NetworkSetting::parse(value) else { return Ok(()) };
    if value == before {
        return Ok(());
    }
    let no = |message: String| Err(Refusal::invalid("value", message));
    if let Some(uplink) = &wanted.uplink {
        let name = uplink.cluster_network.as_str();
        if write.objects.get(GROUP, "clusternetworks", "", name).is_none() {
            return no(format!("cluster network {name} not found"));
        }
    }
    for other in NodeNetwork::ALL.into_iter().filter(|other| *other != network) {
        let setting = write.objects.get(HARVESTER, "settings", "", other.setting());
        let range = setting.and_then(|own| NetworkSetting::parse(text(&own, "/value")).ok()?);
        let range = range.map(|own| own.range);
        let is_shared =
            |own: &ipnet::Ipv4Net| own.contains(&wanted.range) || wanted.range.contains(own);
        if let Some(own) = range.filter(is_shared) {
            let (range, other) = (wanted.range, other.setting());
            return no(format!("range {range} overlaps with range {own} of the setting {other}"));
        }
    }
    let nodes = write.objects.list("", "nodes", "");
    let needed = nodes.iter().filter(|node| needs_address(node, &wanted)).count();
    if wanted.uplink.is_some() && wanted.hosts().take(needed).count() < needed {
        return no(format!(
            "allocatable IP address range is < {needed}, allocate sufficient range"
        ));
    }
    Ok(())
}

fn needs_address(node: &Value, wanted: &NetworkSetting) -> bool {
    let host = node["metadata"]["annotations"][HOST_ADDRESSES].as_str().unwrap_or_default();
    let mut host = host.split(',').filter_map(|own| own.parse::<Ipv4Addr>().ok());
    node["metadata"]["labels"][WITNESS_ROLE].is_null() && !host.any(|own| wanted.contains(own))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, uuid};

    /// The answer to a value of the storage network, in a cluster of three nodes.
    fn answer(value: &str) -> String {
        let node = |name: &str| ("", "nodes", json!({"metadata": {"name": name}}));
        let other = json!({"metadata": {"name": "vm-migration-network"},
            "value": r#"{"range":"10.8.0.0/24"}"#});
        let cluster = Cluster(vec![
            node("a"),
            node("b"),
            node("c"),
            (GROUP, "clusternetworks", json!({"metadata": {"name": "lan"}})),
            (HARVESTER, "settings", other),
        ]);
        let object = json!({"value": value});
        let write = Write {
            group: HARVESTER,
            resource: "settings",
            namespace: "",
            name: "storage-network",
            object: Some(&object),
            old: None,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        validate(&write, value).map_err(|refusal| refusal.message).err().unwrap_or_default()
    }

    #[test]
    fn a_network_that_nodes_could_not_use_is_refused() {
        for (value, expected) in [
            ("", ""),
            (r#"{"range":"10.9.0.0/24"}"#, ""),
            (r#"{"range":"10.9.0.0/24","clusterNetwork":"lan","vlan":7}"#, ""),
            (
                r#"{"range":"10.9.0.0/24","clusterNetwork":"wan","vlan":7}"#,
                "cluster network wan not found",
            ),
            (
                r#"{"range":"10.8.0.0/16"}"#,
                "range 10.8.0.0/16 overlaps with range 10.8.0.0/24 of the setting \
                 vm-migration-network",
            ),
            (
                r#"{"range":"10.9.0.0/30","clusterNetwork":"lan","vlan":7}"#,
                "allocatable IP address range is < 3, allocate sufficient range",
            ),
        ] {
            let answer = answer(value);
            assert_eq!(answer.is_empty(), expected.is_empty(), "{value}: {answer}");
            assert!(answer.ends_with(expected), "{value}: {answer}");
        }
    }
}
