//! Upgrades for people at a terminal: pure.

use std::fmt::Write as _;

use hci::cluster::{CONTROL_PLANE, is_witness};
use hci::upgrade::{FINALIZED, INTENT, ProgramDigest, ProgramReport, STATE_LABEL};
use serde_json::Value;

use crate::command::table;

/// How an upgrade ended, if it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Open,
    Completed,
    Aborted,
    Failed(String),
}

pub(super) struct UpgradeView<'a>(&'a Value);

impl<'a> UpgradeView<'a> {
    pub(super) fn of(upgrade: &'a Value) -> Self {
        Self(upgrade)
    }

    fn completed(&self) -> Option<&'a Value> {
        let conditions = self.0["status"]["conditions"].as_array()?;
        conditions.iter().find(|own| own["type"] == "Completed")
    }

    pub(super) fn outcome(&self) -> Outcome {
        let Some(own) = self.completed() else { return Outcome::Open };
        let text = |field: &str| own[field].as_str().unwrap_or_default();
        let is_aborting = self.0["metadata"]["annotations"][INTENT] == "abort";
        match (text("status"), text("reason")) {
            // The abort of a completed upgrade has not been seen yet.
            ("True", _) if is_aborting && !self.is_final() => Outcome::Open,
            ("True", _) => Outcome::Completed,
            ("False", "Aborted") => Outcome::Aborted,
            ("False", _) if is_aborting && text("reason").is_empty() => Outcome::Open,
            ("False", _) => Outcome::Failed(text("message").to_owned()),
            _ => Outcome::Open,
        }
    }

    /// The failure of the last attempt; open if there is none.
    pub(super) fn failure(&self) -> Outcome {
        match self.outcome() {
            failed @ Outcome::Failed(_) => failed,
            _ => Outcome::Open,
        }
    }

    fn is_final(&self) -> bool {
        self.0["metadata"]["annotations"].get(FINALIZED).is_some()
    }

    /// The current step.
    pub(super) fn line(&self) -> String {
        let message = self.completed().and_then(|own| own["message"].as_str()).unwrap_or_default();
        let state = self.0["metadata"]["labels"][STATE_LABEL].as_str();
        match (message, state) {
            ("", None) => "the upgrade begins".to_owned(),
            ("", Some("PreparingNodes")) => "nodes fetch and check the program".to_owned(),
            ("", Some(state)) => state.to_owned(),
            (message, _) => message.to_owned(),
        }
    }

    /// All of it, with the program of each node.
    pub(super) fn describe(&self, nodes: &[Value]) -> String {
        let text = |path: &str| self.0.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let mut out = String::new();
        let _ = writeln!(out, "upgrade    {}", text("/metadata/name"));
        let _ = writeln!(out, "version    {}", text("/spec/version"));
        let state = match self.outcome() {
            Outcome::Open => self.line(),
            Outcome::Completed if self.is_final() => "completed, final".to_owned(),
            Outcome::Completed => "completed; undo it: sheaf upgrade abort".to_owned(),
            Outcome::Aborted => "aborted: every node runs the program before".to_owned(),
            Outcome::Failed(message) => format!("failed: {message}"),
        };
        let _ = writeln!(out, "state      {state}\n");
        let header = ["NODE", "STATE", "PROGRAM", "VERSION", "MESSAGE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let own = &self.0["status"]["nodeStatuses"][name];
            let report = ProgramReport::of(node).unwrap_or_default();
            let program = report.running.as_ref().map_or("", |digest| digest.short());
            rows.push(vec![
                name.to_owned(),
                own["state"].as_str().unwrap_or_default().to_owned(),
                program.to_owned(),
                report.version.clone(),
                own["message"].as_str().unwrap_or_default().to_owned(),
            ]);
        }
        out.push_str(&table::align(&rows));
        out
    }
}

/// The order of the nodes, and what they run now.
pub(super) fn dry_run(version: &str, digest: &ProgramDigest, nodes: &[Value]) -> String {
    let mut out = format!("version    {version}\nprogram    {digest}\n\n");
    let is_management = |node: &Value| node["metadata"]["labels"].get(CONTROL_PLANE).is_some();
    let mut ordered: Vec<&Value> = nodes.iter().collect();
    ordered.sort_by_key(|node| {
        (!is_management(node), node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    });
    let mut rows = vec![["NODE", "ROLE", "PROGRAM NOW"].map(str::to_owned).to_vec()];
    for node in ordered {
        let report = ProgramReport::of(node).unwrap_or_default();
        let role = match is_management(node) {
            _ if is_witness(node) => "witness",
            true => "management",
            false => "worker",
        };
        let now = report.running.map_or_else(String::new, |own| own.short().to_owned());
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        rows.push(vec![name.to_owned(), role.to_owned(), now]);
    }
    out.push_str(&table::align(&rows));
    out.push_str("\nnodes are upgraded in this order, one at a time; machines keep running\n");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn upgrade(status: &str, reason: &str, message: &str, notes: Value) -> Value {
        let completed =
            json!({"type": "Completed", "status": status, "reason": reason, "message": message});
        json!({"metadata": {"name": "u", "annotations": notes}, "spec": {"version": "v2"},
            "status": {"conditions": [completed],
                "nodeStatuses": {"n1": {"state": "Succeeded"}}}})
    }

    #[test]
    fn outcomes_are_distinguished() {
        let failed = Outcome::Failed("node n1: no".into());
        for (status, reason, message, notes, expected) in [
            ("Unknown", "Upgrading", "node n1 restarts", json!({}), Outcome::Open),
            ("True", "", "", json!({}), Outcome::Completed),
            ("True", "", "", json!({INTENT: "abort"}), Outcome::Open),
            ("True", "", "", json!({INTENT: "abort", FINALIZED: "x"}), Outcome::Completed),
            ("False", "Aborted", "m", json!({INTENT: "abort"}), Outcome::Aborted),
            ("False", "Failed", "node n1: no", json!({}), failed),
        ] {
            let upgrade = upgrade(status, reason, message, notes);
            let view = UpgradeView::of(&upgrade);
            let is_failed = matches!(expected, Outcome::Failed(_));
            let failure = if is_failed { expected.clone() } else { Outcome::Open };
            assert_eq!(view.failure(), failure);
            assert_eq!(view.outcome(), expected);
        }
    }

    #[test]
    fn every_node_is_shown() {
        let upgrade = upgrade("True", "", "", json!({}));
        let node = |name: &str, label: Value| json!({"metadata": {"name": name, "labels": label}});
        let nodes = [node("n1", json!({})), node("n2", json!({CONTROL_PLANE: "true"}))];
        let text = UpgradeView::of(&upgrade).describe(&nodes);
        for part in ["state      completed; undo it", "n1     Succeeded", "n2     -"] {
            assert!(text.contains(part), "{text}");
        }
        let digest = ProgramDigest::parse(&"ab".repeat(64)).unwrap();
        let text = dry_run("v2", &digest, &nodes);
        assert!(text.find("n2").unwrap() < text.find("n1").unwrap(), "{text}");
    }
}
