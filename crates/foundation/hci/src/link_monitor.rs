//! LinkMonitors: which links of which nodes they report, and those that every cluster has. Pure.

use std::collections::BTreeMap;

use schema::{Pattern, PatternError};
use serde_json::{Value, json};

use crate::harvester::network::{LinkMonitorSpec, LinkStatus};
use crate::network::{GROUP, VERSION, selects};

pub const PLURAL: &str = "linkmonitors";
/// The LinkMonitor of all network cards.
pub const CARDS: &str = "nic";
/// The type of network cards.
pub const CARD_TYPE: &str = "device";

/// A rule of a LinkMonitor that is no regular expression.
#[derive(Debug, thiserror::Error)]
#[error("{field} is no regular expression")]
pub struct LinkRuleError {
    pub field: &'static str,
    pub source: PatternError,
}

/// The links that a LinkMonitor reports.
#[derive(Debug, Clone)]
pub struct LinkRule {
    node_selector: BTreeMap<String, String>,
    kind: Pattern,
    name: Pattern,
}

impl LinkRule {
    pub fn read(spec: &LinkMonitorSpec) -> Result<Self, LinkRuleError> {
        let rule = spec.target_link_rule.clone().unwrap_or_default();
        let parse = |field: &'static str, text: Option<String>| {
            let parsed = text.unwrap_or_default().parse::<Pattern>();
            parsed.map_err(|source| LinkRuleError { field, source })
        };
        Ok(Self {
            node_selector: spec.node_selector.clone(),
            kind: parse("spec.targetLinkRule.typeRule", rule.type_rule)?,
            name: parse("spec.targetLinkRule.nameRule", rule.name_rule)?,
        })
    }

    /// Whether links of a node with these labels are reported.
    pub fn selects_node(&self, labels: &BTreeMap<String, String>) -> bool {
        selects(&self.node_selector, labels)
    }

    /// The links that match, in the order of their indexes; `links` are without loopback.
    pub fn matching(&self, links: &[LinkStatus]) -> Vec<LinkStatus> {
        let fits = |link: &&LinkStatus| {
            let kind = link.r#type.as_deref().unwrap_or_default();
            self.kind.is_match(kind) && self.name.is_match(&link.name)
        };
        let mut found: Vec<LinkStatus> = links.iter().filter(fits).cloned().collect();
        found.sort_by_key(|link| link.index);
        found
    }
}

/// The LinkMonitor of all network cards, from which clients choose those of an uplink.
pub fn card_monitor() -> Value {
    monitor(CARDS, &json!({"typeRule": CARD_TYPE}))
}

/// The LinkMonitor of the bridge and the bond of a cluster network.
pub fn network_monitor(cluster_network: &str) -> Value {
    monitor(cluster_network, &json!({"nameRule": format!("{cluster_network}(-br|-bo)")}))
}

fn monitor(name: &str, rule: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "LinkMonitor",
        "metadata": {"name": name},
        "spec": {"targetLinkRule": rule},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: i64, name: &str, kind: &str) -> LinkStatus {
        LinkStatus {
            name: name.to_owned(),
            index: Some(index),
            r#type: Some(kind.to_owned()),
            ..LinkStatus::default()
        }
    }

    fn names(monitor: &Value) -> Vec<String> {
        let links = [
            link(7, "lan-br", "bridge"),
            link(2, "eth0", "device"),
            link(6, "lan-bo", "bond"),
            link(3, "eth1", "device"),
            link(9, "vlan-br", "bridge"),
        ];
        let spec = serde_json::from_value(monitor["spec"].clone()).unwrap();
        let rule = LinkRule::read(&spec).unwrap();
        rule.matching(&links).into_iter().map(|link| link.name).collect()
    }

    #[test]
    fn rules_are_unanchored_and_empty_ones_match_all() {
        assert_eq!(names(&card_monitor()), ["eth0", "eth1"]);
        // Unanchored, as upstream has it: the bridge of `vlan` matches the rule of `lan`, too.
        assert_eq!(names(&network_monitor("lan")), ["lan-bo", "lan-br", "vlan-br"]);
        assert_eq!(names(&json!({"spec": {}})).len(), 5);
        let both = json!({"spec": {"targetLinkRule": {"typeRule": "bridge", "nameRule": "^lan"}}});
        assert_eq!(names(&both), ["lan-br"]);
    }

    #[test]
    fn nodes_are_selected_by_labels_and_witnesses_never_are() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let spec =
            LinkMonitorSpec { node_selector: labels(&[("rack", "a")]), ..Default::default() };
        let rule = LinkRule::read(&spec).unwrap();
        assert!(rule.selects_node(&labels(&[("rack", "a"), ("x", "y")])));
        assert!(!rule.selects_node(&labels(&[("rack", "b")])));
        let witness = labels(&[("rack", "a"), ("node-role.harvesterhci.io/witness", "true")]);
        assert!(!rule.selects_node(&witness));
    }

    #[test]
    fn a_rule_that_is_no_expression_names_its_field() {
        let spec = json!({"targetLinkRule": {"nameRule": "eth(0"}});
        let failure = LinkRule::read(&serde_json::from_value(spec).unwrap()).unwrap_err();
        assert_eq!(failure.field, "spec.targetLinkRule.nameRule");
        assert!(failure.source.to_string().contains("missing closing )"));
    }
}
