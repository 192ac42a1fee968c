//! The setting `ntp-servers`: its servers, what a node reports about its time service, and whether
//! all nodes follow the setting. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::WITNESS_ROLE;

pub const SETTING: &str = "ntp-servers";
/// The annotation of a node with its [`NtpReport`], as Harvester's node manager writes it.
pub const ANNOTATION: &str = "node.harvesterhci.io/ntp-service";

/// Whether the clock of a node follows time servers; the wire's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NtpSyncStatus {
    /// No time service is active.
    Disabled,
    Unsynced,
    Synced,
    Unknown,
}

/// The time service of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NtpReport {
    pub ntp_sync_status: NtpSyncStatus,
    /// The servers of the setting that the time service uses, separated by spaces.
    #[serde(default)]
    pub current_ntp_servers: String,
    /// Why the node does not follow the setting.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The servers that a value of the setting names, in its order.
pub fn servers(value: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    let servers = value["ntpServers"].as_array();
    servers.into_iter().flatten().filter_map(|own| Some(own.as_str()?.to_owned())).collect()
}

/// Why the value is not in effect on all nodes, with the names of those where it is not.
pub fn shortcoming(value: &str, nodes: &[Value]) -> Option<String> {
    let wanted = servers(value).join(" ");
    let is_witness = |node: &&Value| !node["metadata"]["labels"][WITNESS_ROLE].is_null();
    let reasons: Vec<String> = nodes
        .iter()
        .filter(|node| !is_witness(node))
        .filter_map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let text = node["metadata"]["annotations"][ANNOTATION].as_str();
            let report: Option<NtpReport> = text.and_then(|own| serde_json::from_str(own).ok());
            let reason = match report {
                Some(own) if !own.message.is_empty() => own.message,
                Some(own) if own.current_ntp_servers == wanted => return None,
                _ => "it has not reported yet".to_owned(),
            };
            Some(format!("node {name}: {reason}"))
        })
        .collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALUE: &str = r#"{"ntpServers":["a.example","10.0.0.1"]}"#;

    #[test]
    fn the_setting_is_in_effect_when_every_node_says_so() {
        let node = |report: Value| json!({"metadata": {"name": "n1", "annotations": {ANNOTATION: report.to_string()}}});
        let report = |servers: &str, message: &str| json!({"ntpSyncStatus": "synced", "currentNtpServers": servers, "message": message});
        let follows = node(json!({"ntpSyncStatus": "unsynced",
            "currentNtpServers": "a.example 10.0.0.1"}));
        let silent = json!({"metadata": {"name": "n2"}});
        let witness = json!({"metadata": {"name": "w", "labels": {WITNESS_ROLE: "true"}}});
        let rows = [
            (vec![follows.clone(), witness], None),
            (vec![follows, silent], Some("node n2: it has not reported yet")),
            (vec![node(report("a.example", ""))], Some("node n1: it has not reported yet")),
            (vec![node(report("", "no service"))], Some("node n1: no service")),
            (vec![node(json!("odd"))], Some("node n1: it has not reported yet")),
        ];
        for (nodes, expected) in rows {
            assert_eq!(shortcoming(VALUE, &nodes).as_deref(), expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_report_has_upstreams_fields() {
        let report = NtpReport {
            ntp_sync_status: NtpSyncStatus::Synced,
            current_ntp_servers: servers(VALUE).join(" "),
            message: String::new(),
        };
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            json!({"ntpSyncStatus": "synced", "currentNtpServers": "a.example 10.0.0.1"})
        );
        assert!(servers("").is_empty() && servers(r#"{"ntpServers":1}"#).is_empty());
    }
}
