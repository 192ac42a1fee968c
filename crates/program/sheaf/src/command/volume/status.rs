//! `sheaf volume status`: all that is known of one volume.
//!
//! `explain` is pure; its input is fetched before.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::list::state;
use super::{LONGHORN, find_claim, human, text, users};
use crate::cli::VolumeClaim;
use crate::command::link::ClusterClient;
use crate::command::table::{align, size};

#[derive(Debug, Default)]
struct VolumeFacts {
    claim: Value,
    volume: Option<Value>,
    engine: Option<Value>,
    replicas: Vec<Value>,
    snapshots: Vec<Value>,
    machines: Vec<Value>,
    /// About the claim or its volume, the newest last.
    events: Vec<Value>,
}

pub(super) async fn run(volume: &VolumeClaim) -> Result<()> {
    let link = ClusterClient::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let own = text(&claim, "/spec/volumeName").to_owned();
    let labels = format!("labelSelector=longhornvolume%3D{own}");
    let snapshots =
        format!("/apis/snapshot.storage.k8s.io/v1/namespaces/{}/volumesnapshots", link.namespace);
    let mut facts = VolumeFacts { claim, ..VolumeFacts::default() };
    if !own.is_empty() {
        facts.volume = link.find(&format!("{LONGHORN}/volumes/{own}")).await?;
        facts.engine = link.find(&format!("{LONGHORN}/engines/{own}-e-0")).await?;
        facts.replicas = link.items(&format!("{LONGHORN}/replicas?{labels}")).await?;
    }
    facts.snapshots = link.items(&snapshots).await?;
    facts
        .snapshots
        .retain(|snapshot| text(snapshot, "/spec/source/persistentVolumeClaimName") == volume.name);
    facts.machines = link.items("/apis/kubevirt.io/v1/virtualmachines").await?;
    let mut events = link.items(&link.core("events")).await?;
    events.extend(link.items("/api/v1/namespaces/longhorn-system/events").await?);
    let uids = [Some(&facts.claim), facts.volume.as_ref()];
    let uids: Vec<&str> = uids.iter().flatten().map(|own| text(own, "/metadata/uid")).collect();
    events.retain(|event| uids.contains(&text(event, "/involvedObject/uid")));
    events.sort_by(|a, b| text(a, "/lastTimestamp").cmp(text(b, "/lastTimestamp")));
    facts.events = events;
    crate::command::print(&explain(&facts))
}

fn explain(facts: &VolumeFacts) -> String {
    let claim = &facts.claim;
    let of_claim = |pointer: &str| text(claim, pointer);
    let mut out = String::new();
    let how = match &facts.volume {
        Some(volume) => state(volume),
        None => of_claim("/status/phase").to_lowercase(),
    };
    let asked = of_claim("/spec/resources/requests/storage");
    let has = match of_claim("/status/capacity/storage") {
        "" => asked,
        has => has,
    };
    let _ = writeln!(out, "{}: {}, {how}", of_claim("/metadata/name"), human(has));
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "  {name:<10} {value}");
        }
    };
    if human(asked) != human(has) {
        fact("grows to", &human(asked));
    }
    fact("class", of_claim("/spec/storageClassName"));
    fact("volume", of_claim("/spec/volumeName"));
    fact("used by", &users(&facts.machines, claim).join(", "));
    if let Some(volume) = &facts.volume {
        fact("node", text(volume, "/status/currentNodeID"));
        let used = volume.pointer("/status/actualSize").and_then(Value::as_i64);
        fact("on disk", &used.map(size).unwrap_or_default());
        fact("copied", text(volume, "/status/cloneStatus/state"));
        fact("from", text(volume, "/spec/dataSource"));
        fact("trouble", &trouble(volume));
    }
    replicas(facts, &mut out);
    snapshots(facts, &mut out);
    if !facts.events.is_empty() {
        out.push_str("What happened last:\n");
    }
    for event in facts.events.iter().rev().take(5).rev() {
        let _ = writeln!(out, "  {:<24} {}", text(event, "/reason"), text(event, "/message"));
    }
    out
}

/// Conditions that are not as they should be.
fn trouble(volume: &Value) -> String {
    let conditions = volume.pointer("/status/conditions").and_then(Value::as_array);
    let concerns = |own: &&Value| {
        let all = ["Scheduled", "Attachable", "Readable", "SnapshotsIntact", "MetadataIntact"];
        all.contains(&text(own, "/type"))
    };
    let unmet = conditions
        .into_iter()
        .flatten()
        .filter(concerns)
        .filter(|own| text(own, "/status") == "False");
    unmet.map(|own| text(own, "/message")).collect::<Vec<_>>().join("; ")
}

fn replicas(facts: &VolumeFacts, out: &mut String) {
    if facts.replicas.is_empty() {
        return;
    }
    let asked = facts.volume.as_ref().and_then(|own| own["spec"]["numberOfReplicas"].as_i64());
    let _ = writeln!(out, "Copies ({} of up to {}):", facts.replicas.len(), asked.unwrap_or(1));
    let engine = facts.engine.as_ref().unwrap_or(&Value::Null);
    let mut rows = vec![["NODE", "STATE", "DISK", "NAME"].map(str::to_owned).to_vec()];
    for own in &facts.replicas {
        let name = text(own, "/metadata/name");
        let progress = engine["status"]["rebuildStatus"][name]["progress"].as_i64();
        let state = match engine["status"]["replicaModeMap"][name].as_str() {
            _ if !text(own, "/spec/failedAt").is_empty() => "failed".to_owned(),
            Some("RW") => "in sync".to_owned(),
            Some("WO") => format!("learns, {} %", progress.unwrap_or_default()),
            Some("ERR") => "in trouble".to_owned(),
            _ => text(own, "/status/currentState").to_owned(),
        };
        let part = |pointer: &str| text(own, pointer).to_owned();
        rows.push(vec![part("/spec/nodeID"), state, part("/spec/diskPath"), name.to_owned()]);
    }
    indent(&align(&rows), out);
}

fn snapshots(facts: &VolumeFacts, out: &mut String) {
    if facts.snapshots.is_empty() {
        return;
    }
    out.push_str("Snapshots:\n");
    let mut rows = vec![["NAME", "READY", "SIZE", "TAKEN"].map(str::to_owned).to_vec()];
    for own in &facts.snapshots {
        let part = |pointer: &str| text(own, pointer).to_owned();
        let ready = match own.pointer("/status/readyToUse").and_then(Value::as_bool) {
            Some(true) => "yes".to_owned(),
            _ if !text(own, "/status/error/message").is_empty() => part("/status/error/message"),
            _ => "no".to_owned(),
        };
        let size = human(text(own, "/status/restoreSize"));
        rows.push(vec![part("/metadata/name"), ready, size, part("/status/creationTime")]);
    }
    indent(&align(&rows), out);
}

fn indent(table: &str, out: &mut String) {
    for line in table.lines() {
        let _ = writeln!(out, "  {line}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_matters_is_on_one_page() {
        let facts = VolumeFacts {
            claim: json!({"metadata": {"name": "data", "namespace": "default"},
                "spec": {"volumeName": "pvc-1", "storageClassName": "longhorn",
                    "resources": {"requests": {"storage": "2Gi"}}},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
            volume: Some(json!({"spec": {"numberOfReplicas": 3}, "status": {
            "state": "attached", "robustness": "degraded", "currentNodeID": "n1",
            "actualSize": 1_i64 << 20, "conditions": [
                {"type": "Scheduled", "status": "False", "message": "insufficient storage"},
                {"type": "SnapshotsIntact", "status": "True", "message": "whole"},
                {"type": "MetadataIntact", "status": "False", "message": "L0.map is missing"},
            ]}})),
            engine: Some(json!({"status": {"replicaModeMap": {"r1": "RW", "r2": "WO"},
                "rebuildStatus": {"r2": {"progress": 40}}}})),
            replicas: vec![
                json!({"metadata": {"name": "r1"}, "spec": {"nodeID": "n1", "diskPath": "/d"}}),
                json!({"metadata": {"name": "r2"}, "spec": {"nodeID": "n2", "diskPath": "/d"}}),
            ],
            snapshots: vec![json!({"metadata": {"name": "s"}, "status": {"readyToUse": true,
                "restoreSize": "1Gi", "creationTime": "2026-01-02T03:04:05Z"}})],
            machines: Vec::new(),
            events: vec![json!({"reason": "Degraded", "message": "volume pvc-1 became degraded"})],
        };
        let expected = "\
data: 1 GiB, attached, degraded
  grows to   2 GiB
  class      longhorn
  volume     pvc-1
  node       n1
  on disk    1 MiB
  trouble    insufficient storage; L0.map is missing
Copies (2 of up to 3):
  NODE   STATE          DISK   NAME
  n1     in sync        /d     r1
  n2     learns, 40 %   /d     r2
Snapshots:
  NAME   READY   SIZE    TAKEN
  s      yes     1 GiB   2026-01-02T03:04:05Z
What happened last:
  Degraded                 volume pvc-1 became degraded
";
        assert_eq!(explain(&facts), expected);
    }
}
