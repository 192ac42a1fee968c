//! `sheaf network links`: the reports of LinkMonitors about the links of nodes.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use hci::harvester::network::{LinkMonitor, LinkStatus};
use serde_json::Value;

use super::super::link::ClusterClient;
use super::super::table;
use crate::cli::ClusterScope;

const MONITORS: &str = "/apis/network.harvesterhci.io/v1beta1/linkmonitors";
const HEADER: [&str; 7] = ["NODE", "LINK", "TYPE", "STATE", "MAC", "MASTER", "MONITORS"];

/// A link, with the names of the LinkMonitors that report it.
type MonitoredLink = (LinkStatus, Vec<String>);

pub(super) async fn list(place: &ClusterScope, node: Option<&str>) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    if let Some(node) = node
        && cluster.find(&format!("{}/{node}", super::NODES)).await?.is_none()
    {
        bail!("there is no node {node}; `sheaf node list` shows those that exist");
    }
    let links = links(&cluster.items(MONITORS).await?);
    super::super::print(&table::align(&rows(&links, node)))
}

/// The links of all monitors, by node and index.
fn links(monitors: &[Value]) -> BTreeMap<(String, i64), MonitoredLink> {
    let mut found: BTreeMap<(String, i64), MonitoredLink> = BTreeMap::new();
    for monitor in monitors {
        let Ok(monitor) = serde_json::from_value::<LinkMonitor>(monitor.clone()) else { continue };
        let name = monitor.metadata.name.unwrap_or_default();
        for (node, links) in monitor.status.unwrap_or_default().link_status {
            for link in links {
                let key = (node.clone(), link.index.unwrap_or_default());
                found.entry(key).or_insert_with(|| (link, Vec::new())).1.push(name.clone());
            }
        }
    }
    found
}

fn rows(links: &BTreeMap<(String, i64), MonitoredLink>, only: Option<&str>) -> Vec<Vec<String>> {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    let wanted = links.iter().filter(|((node, _), _)| only.is_none_or(|only| node == only));
    for ((node, _), (link, monitors)) in wanted {
        let master = link.master_index.filter(|index| *index != 0).map(|index| {
            let known = links.get(&(node.clone(), index));
            known.map_or_else(|| format!("#{index}"), |(link, _)| link.name.clone())
        });
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        rows.push(vec![
            node.clone(),
            link.name.clone(),
            text(&link.r#type),
            text(&link.state),
            text(&link.mac),
            master.unwrap_or_default(),
            monitors.join(","),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_of_several_monitors_are_shown_once() {
        let link = |index: i64, name: &str, kind: &str, master: i64| {
            json!({"name": name, "index": index, "type": kind, "state": "up",
                "mac": "02:00:00:00:00:01", "masterIndex": master})
        };
        let monitor = |name: &str, status: Value| json!({"metadata": {"name": name}, "spec": {}, "status": {"linkStatus": status}});
        let links = links(&[
            monitor("all", json!({"n1": [link(2, "eth1", "device", 5)]})),
            monitor("lan", json!({"n1": [link(5, "lan-bo", "bond", 6)]})),
            monitor(
                "nic",
                json!({"n1": [link(2, "eth1", "device", 5)], "n2": [link(2, "eth0", "device", 0)]}),
            ),
        ]);
        let text = |only| table::align(&rows(&links, only));
        assert_eq!(
            text(None),
            "NODE   LINK     TYPE     STATE   MAC                 MASTER   MONITORS\n\
             n1     eth1     device   up      02:00:00:00:00:01   lan-bo   all,nic\n\
             n1     lan-bo   bond     up      02:00:00:00:00:01   #6       lan\n\
             n2     eth0     device   up      02:00:00:00:00:01   -        nic\n"
        );
        assert_eq!(text(Some("n2")).lines().count(), 2);
    }
}
