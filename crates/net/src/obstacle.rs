//! What on this host keeps guests' packets from passing although our own rules let them: other
//! people's firewalls, which we report and never touch.

use std::fmt;

use serde_json::Value;

use crate::name::LinkName;
use crate::nft;
use crate::observe::read_sysctl;
use crate::want::{Attachment, Want};

/// Something that blocks, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// A chain that drops what is forwarded unless it says otherwise.
    ForwardPolicy { family: String, table: String, chain: String, bridge: LinkName },
    /// A chain that drops what comes in, so that DHCP and DNS may not reach us.
    InputPolicy { family: String, table: String, chain: String, bridge: LinkName },
    /// The older iptables is in use, whose chains `nft` does not show.
    LegacyIptables { bridge: LinkName },
    /// Frames between ports of a foreign bridge pass through the rules for forwarded packets.
    BridgedTrafficFiltered { bridge: LinkName },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForwardPolicy { family, table, chain, bridge } if is_iptables(table) => write!(
                f,
                "chain {chain} of table {family} {table} drops forwarded packets by default; if \
                 guests cannot be reached: iptables -I {} -i {bridge} -j ACCEPT and the same \
                 with -o",
                if chain == "FORWARD" { "FORWARD" } else { "DOCKER-USER" },
            ),
            Self::ForwardPolicy { family, table, bridge, .. } if table == "firewalld" => write!(
                f,
                "firewalld (table {family} {table}) drops forwarded packets by default; if guests \
                 cannot be reached: firewall-cmd --permanent --zone=trusted \
                 --add-interface={bridge} && firewall-cmd --reload"
            ),
            Self::ForwardPolicy { family, table, chain, bridge } => write!(
                f,
                "chain {chain} of table {family} {table} drops forwarded packets by default; it \
                 must accept those from and to {bridge}"
            ),
            Self::InputPolicy { family, table, chain, bridge } => write!(
                f,
                "chain {chain} of table {family} {table} drops incoming packets by default; it must \
                 accept UDP ports 53 and 67 and TCP port 53 from {bridge}"
            ),
            Self::LegacyIptables { bridge } => write!(
                f,
                "the legacy iptables is in use, whose rules cannot be judged; if guests cannot be \
                 reached: iptables-legacy -I FORWARD -i {bridge} -j ACCEPT and the same with -o"
            ),
            Self::BridgedTrafficFiltered { bridge } => write!(
                f,
                "net.bridge.bridge-nf-call-iptables is on, so the host's rules for forwarded \
                 packets also judge frames within bridge {bridge}; set it to 0 if guests there \
                 cannot be reached"
            ),
        }
    }
}

/// Looks for what may block the traffic of `want`.
pub(crate) async fn obstacles(want: &Want) -> Result<Vec<Obstacle>, nft::NftError> {
    let bridge = &want.bridge.name;
    let mut found = dropping(&nft::ruleset().await?, &want.bridge.table, bridge);
    // The file lists the tables of the older iptables; it is empty or missing without them.
    let legacy = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if legacy.lines().any(|table| table == "filter") {
        found.push(Obstacle::LegacyIptables { bridge: bridge.clone() });
    }
    let blocks = found.iter().any(|one| !matches!(one, Obstacle::InputPolicy { .. }));
    let called = read_sysctl("net/bridge/bridge-nf-call-iptables").ok().flatten();
    if blocks && called.as_deref() == Some("1") {
        let mut foreign: Vec<_> = want
            .ports
            .iter()
            .filter_map(|port| match &port.attachment {
                Attachment::Bridge { name, .. } => Some(name.clone()),
                Attachment::Nat { .. } => None,
            })
            .collect();
        foreign.sort_unstable();
        foreign.dedup();
        found.extend(foreign.into_iter().map(|bridge| Obstacle::BridgedTrafficFiltered { bridge }));
    }
    Ok(found)
}

fn is_iptables(table: &str) -> bool {
    table == "filter"
}

/// Base chains of others that drop what no rule of theirs accepts: by policy, or by a last rule
/// without conditions as firewalld has it.
fn dropping(ruleset: &Value, ours: &str, bridge: &LinkName) -> Vec<Obstacle> {
    let items = ruleset["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for chain in items.iter().map(|item| &item["chain"]) {
        let (family, table, name) =
            (text(&chain["family"]), text(&chain["table"]), text(&chain["name"]));
        let judges_ip = ["ip", "inet"].contains(&family.as_str());
        if !judges_ip || table == ours || chain["type"] != "filter" {
            continue;
        }
        let of_chain = |rule: &&Value| {
            rule["family"] == family && rule["table"] == table && rule["chain"] == name
        };
        let last = items.iter().map(|item| &item["rule"]).filter(of_chain).next_back();
        if chain["policy"] != "drop" && !last.is_some_and(drops_everything) {
            continue;
        }
        let bridge = bridge.clone();
        match chain["hook"].as_str() {
            Some("forward") => {
                found.push(Obstacle::ForwardPolicy { family, table, chain: name, bridge });
            }
            Some("input") => {
                found.push(Obstacle::InputPolicy { family, table, chain: name, bridge });
            }
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
        let docker = check(json!([chain("filter", "FORWARD", "forward", "drop")]));
        assert_eq!(docker.len(), 1);
        assert!(docker[0].contains("iptables -I FORWARD -i sheaf0 -j ACCEPT"), "{docker:?}");
        let input = check(json!([chain("fw", "in", "input", "drop")]));
        assert!(input[0].contains("UDP ports 53 and 67"), "{input:?}");
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
