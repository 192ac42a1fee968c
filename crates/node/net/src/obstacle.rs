//! Firewall rules of this host that drop guests' packets although our own rules accept them: they
//! belong to other software, and we report and never change them.

use std::collections::BTreeSet;
use std::fmt;

use ipnet::Ipv4Net;
use rtnetlink::Handle;
use serde_json::Value;

use crate::name::LinkName;
use crate::nft;
use crate::observe::{self, ObserveError, read_sysctl};
use crate::overlay;
use crate::want::{Attachment, DesiredNetwork, Port};

/// Something that blocks, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkObstacle {
    /// A chain that drops what is forwarded unless it says otherwise.
    ForwardPolicy { chain: ForeignChain, bridge: LinkName },
    /// A chain that drops what comes in, so that DHCP and DNS may not reach us.
    InputPolicy { chain: ForeignChain, bridge: LinkName },
    /// The older iptables is in use, whose chains `nft` does not show.
    LegacyIptables { bridge: LinkName },
    /// Frames between ports of a foreign bridge pass through the rules for forwarded packets.
    BridgedTrafficFiltered { bridge: LinkName },
    /// Another interface has an address in the guests' network.
    Overlap { address: Ipv4Net, network: Ipv4Net },
}

/// A chain in a table of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChain {
    pub family: String,
    pub table: String,
    pub name: String,
    pub keeper: Firewall,
}

/// The software that manages a table, and hence how an exception is made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firewall {
    Docker,
    Iptables,
    Firewalld,
    Other,
}

impl fmt::Display for ForeignChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {} of table {} {}", self.name, self.family, self.table)
    }
}

impl fmt::Display for NetworkObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForwardPolicy { chain, bridge } => {
                write!(
                    f,
                    "{chain} drops forwarded packets by default; if guests cannot be reached"
                )?;
                match chain.keeper {
                    Firewall::Docker => write!(
                        f,
                        ": iptables -I DOCKER-USER -i {bridge} -j ACCEPT and iptables -I \
                         DOCKER-USER -o {bridge} -j ACCEPT"
                    ),
                    Firewall::Iptables => write!(
                        f,
                        ": iptables -I FORWARD -i {bridge} -j ACCEPT and iptables -I FORWARD -o \
                         {bridge} -j ACCEPT"
                    ),
                    Firewall::Firewalld => write!(
                        f,
                        ": firewall-cmd --permanent --zone=trusted --add-interface={bridge} and \
                         firewall-cmd --reload"
                    ),
                    Firewall::Other => {
                        write!(f, ", let it accept what comes from and goes to {bridge}")
                    }
                }
            }
            Self::InputPolicy { chain, bridge } => write!(
                f,
                "{chain} drops incoming packets by default; if guests get no address, let it accept \
                 UDP ports 53 and 67 and TCP port 53 from {bridge}"
            ),
            Self::LegacyIptables { bridge } => write!(
                f,
                "the legacy iptables is in use, whose rules cannot be judged; if guests cannot be \
                 reached: iptables-legacy -I FORWARD -i {bridge} -j ACCEPT and iptables-legacy -I \
                 FORWARD -o {bridge} -j ACCEPT"
            ),
            Self::BridgedTrafficFiltered { bridge } => write!(
                f,
                "net.bridge.bridge-nf-call-iptables is on, so the host's rules for forwarded \
                 packets also judge frames within bridge {bridge}; set it to 0 if guests there \
                 cannot be reached"
            ),
            Self::Overlap { address, network } => write!(
                f,
                "this node has the address {address} in the guests' network {network}; choose \
                 another network for the guests"
            ),
        }
    }
}

/// Searches for rules that may block the traffic of `want`.
pub(crate) async fn obstacles(
    netlink: &Handle,
    want: &DesiredNetwork,
) -> Result<Vec<NetworkObstacle>, ObserveError> {
    let bridge = &want.bridge.name;
    let ruleset = nft::ruleset().await.map_err(|source| ObserveError::Rules { source })?;
    let mut found = dropping(&ruleset, &want.bridge.table, bridge);
    // The file lists the tables of the older iptables; it is empty or missing without them.
    let legacy = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if legacy.lines().any(|table| table == "filter") {
        found.push(NetworkObstacle::LegacyIptables { bridge: bridge.clone() });
    }
    let blocks = found.iter().any(|one| !matches!(one, NetworkObstacle::InputPolicy { .. }));
    let called = read_sysctl("net/bridge/bridge-nf-call-iptables")?;
    if blocks && called.as_deref() == Some("1") {
        let foreign: BTreeSet<_> = want.ports.iter().filter_map(foreign_bridge).collect();
        let filtered =
            |bridge: &LinkName| NetworkObstacle::BridgedTrafficFiltered { bridge: bridge.clone() };
        found.extend(foreign.into_iter().map(filtered));
    }
    let mut ours = Vec::new();
    for name in [bridge, &overlay::device(&want.bridge)] {
        ours.extend(observe::link(netlink, name).await?.map(|link| link.index));
    }
    let network = want.bridge.gateway.trunc();
    for (index, address) in observe::addresses(netlink).await? {
        let overlaps = network.contains(&address.addr()) || address.contains(&network.addr());
        if !ours.contains(&index) && overlaps && address.prefix_len() > 0 {
            found.push(NetworkObstacle::Overlap { address, network });
        }
    }
    Ok(found)
}

fn foreign_bridge(port: &Port) -> Option<&LinkName> {
    match &port.attachment {
        Attachment::Bridge { name, .. } => Some(name),
        Attachment::Nat { .. } => None,
    }
}

/// Base chains of others that drop what no rule of theirs accepts: by policy, or by a last rule
/// without conditions as firewalld has it. A table that names our bridge has been taught about it.
fn dropping(ruleset: &Value, ours: &str, bridge: &LinkName) -> Vec<NetworkObstacle> {
    let items = ruleset["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let quoted = format!("\"{bridge}\"");
    let mut found = Vec::new();
    for chain in items.iter().map(|item| &item["chain"]) {
        let (family, table, name) =
            (text(&chain["family"]), text(&chain["table"]), text(&chain["name"]));
        let judges_ip = ["ip", "inet"].contains(&family.as_str());
        if !judges_ip || table == ours || chain["type"] != "filter" {
            continue;
        }
        let in_table = |item: &&Value| item["family"] == family && item["table"] == table;
        let rules = || items.iter().map(|item| &item["rule"]).filter(in_table);
        let last = rules().rfind(|rule| rule["chain"] == name);
        let drops = chain["policy"] == "drop" || last.is_some_and(drops_everything);
        if !drops || rules().any(|rule| rule["expr"].to_string().contains(&quoted)) {
            continue;
        }
        let mut chains = items.iter().map(|item| &item["chain"]).filter(in_table);
        let keeper = match table.as_str() {
            _ if chains.any(|chain| chain["name"] == "DOCKER-USER") => Firewall::Docker,
            "filter" => Firewall::Iptables,
            "firewalld" => Firewall::Firewalld,
            _ => Firewall::Other,
        };
        let (foreign, bridge) = (ForeignChain { family, table, name, keeper }, bridge.clone());
        match chain["hook"].as_str() {
            Some("forward") => {
                found.push(NetworkObstacle::ForwardPolicy { chain: foreign, bridge })
            }
            Some("input") => found.push(NetworkObstacle::InputPolicy { chain: foreign, bridge }),
            _ => {}
        }
    }
    found
}

/// Whether a rule has no condition and a final verdict against the packet.
fn drops_everything(rule: &Value) -> bool {
    let steps = rule["expr"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |step: &Value, what: &str| step.get(what).is_some();
    steps.iter().all(|step| ["drop", "reject", "counter", "log"].iter().any(|what| is(step, what)))
        && steps.iter().any(|step| is(step, "drop") || is(step, "reject"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(items: Value) -> Vec<String> {
        let ruleset = json!({ "nftables": items });
        let found = dropping(&ruleset, "sheaf", &"sheaf0".parse().unwrap());
        found.iter().map(ToString::to_string).collect()
    }

    fn chain(table: &str, name: &str, hook: &str, policy: &str) -> Value {
        json!({"chain": {"family": "ip", "table": table, "name": name, "type": "filter",
            "hook": hook, "prio": 0, "policy": policy}})
    }

    #[test]
    fn other_peoples_drop_policies_are_reported_and_our_own_are_not() {
        assert!(check(json!([chain("sheaf", "forward", "forward", "drop")])).is_empty());
        assert!(check(json!([chain("filter", "FORWARD", "forward", "accept")])).is_empty());
        let plain = check(json!([chain("filter", "FORWARD", "forward", "drop")]));
        assert_eq!(plain.len(), 1);
        assert!(plain[0].contains("iptables -I FORWARD -i sheaf0 -j ACCEPT"), "{plain:?}");
        let input = check(json!([chain("fw", "in", "input", "drop")]));
        assert!(input[0].contains("UDP ports 53 and 67"), "{input:?}");
    }

    #[test]
    fn docker_is_recognised_and_trusted_once_it_knows_our_bridge() {
        let user = json!({"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER"}});
        let base = || chain("filter", "FORWARD", "forward", "drop");
        let docker = check(json!([base(), user]));
        assert!(docker[0].contains("iptables -I DOCKER-USER -i sheaf0"), "{docker:?}");
        let rule = |link: &str| {
            json!({"rule": {"family": "ip", "table": "filter", "chain": "DOCKER-USER", "expr": [
                {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": link}},
                {"accept": null}]}})
        };
        assert_eq!(check(json!([base(), user, rule("sheaf01")])).len(), 1);
        assert!(check(json!([base(), user, rule("sheaf0")])).is_empty());
    }

    #[test]
    fn a_last_rule_that_rejects_everything_counts_as_a_policy() {
        let rule = |expr: Value| {
            json!({"rule": {"family": "ip", "table": "firewalld", "chain": "filter_FORWARD",
                "expr": expr}})
        };
        let base = || chain("firewalld", "filter_FORWARD", "forward", "accept");
        let some = json!({"match": {"op": "==", "left": 1, "right": 1}});
        let last = rule(json!([{"reject": {"type": "icmpx"}}]));
        assert!(check(json!([base(), rule(json!([some, {"drop": null}]))])).is_empty());
        let found = check(json!([base(), last]));
        assert!(found[0].contains("--add-interface=sheaf0"), "{found:?}");
    }
}
