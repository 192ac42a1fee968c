//! `sheaf volume salvage`: declares one replica to be the content of a volume that cannot be
//! attached because every in-sync replica is lost or older than acknowledged writes.
//!
//! `choose` and `explain` are pure; their input is fetched before.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use block::ids::ReplicaId;
use block::repl::control::{Version, Versioned};
use hci::longhorn::{OLD_RECORD, RECORD};
use serde_json::{Value, json};

use super::{LONGHORN, find_claim, text};
use crate::cli::VolumeClaim;
use crate::command::link::ClusterClient;
use crate::command::print;

/// The engine's object may change so often while the record is written.
const ATTEMPTS: u32 = 20;

pub(super) async fn run(volume: &VolumeClaim, replica: Option<&str>, yes: bool) -> Result<()> {
    let link = ClusterClient::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let own = text(&claim, "/spec/volumeName").to_owned();
    let path = format!("{LONGHORN}/engines/{own}-e-0");
    let engine = if own.is_empty() { None } else { link.find(&path).await? };
    let Some(mut engine) = engine else {
        bail!("volume {} was never attached: there is nothing to salvage", volume.name);
    };
    let labels = format!("labelSelector=longhornvolume%3D{own}");
    let replicas = link.items(&format!("{LONGHORN}/replicas?{labels}")).await?;
    let names = names(&replicas);
    let shown = not_served(&engine, &volume.name)?;
    let kept = choose(&shown, &names, replica)?;
    print(&explain(&shown, &names, kept, reason(&engine)))?;
    if !yes {
        return print("Nothing was changed. `--yes` accepts the loss.\n");
    }
    for _ in 0..ATTEMPTS {
        let found = not_served(&engine, &volume.name)?;
        if found.record.isr != shown.record.isr {
            bail!("the in-sync replicas of volume {} changed meanwhile: try again", volume.name);
        }
        let version = Version(found.version.0 + 1);
        let next = Versioned { version, record: found.record.salvaged(kept) };
        let record = serde_json::to_string(&next).context("cannot write the record")?;
        let patch = json!({"metadata": {
            "resourceVersion": text(&engine, "/metadata/resourceVersion"),
            "annotations": {RECORD: record, OLD_RECORD: null},
        }});
        if link.merge_unchanged(&path, &patch).await?.is_some() {
            return print("Accepted. The volume is attached when it is used next.\n");
        }
        // The node tries to attach the volume, and reports each attempt in the same object.
        engine = link.find(&path).await?.context("the engine of the volume was deleted")?;
    }
    bail!("the engine of volume {} changes all the time: try again", volume.name)
}

/// The record of a volume that no engine serves.
fn not_served(engine: &Value, volume: &str) -> Result<Versioned> {
    if text(engine, "/status/currentState") == "running" {
        bail!("volume {volume} is served: there is nothing to salvage");
    }
    read_record(engine)
        .with_context(|| format!("volume {volume} has no record that can be changed"))
}

fn read_record(engine: &Value) -> Result<Versioned> {
    let annotations = &engine["metadata"]["annotations"];
    let found = annotations[RECORD].as_str().or_else(|| annotations[OLD_RECORD].as_str());
    let found = found.with_context(|| format!("the engine has no annotation {RECORD}"))?;
    Ok(serde_json::from_str(found)?)
}

/// The replicas' names by their ids.
fn names(replicas: &[Value]) -> BTreeMap<ReplicaId, String> {
    let name = |own: &Value| {
        let id = text(own, "/status/uuid").parse().ok()?;
        Some((id, text(own, "/metadata/name").to_owned()))
    };
    replicas.iter().filter_map(name).collect()
}

/// Why the volume is not attached.
fn reason(engine: &Value) -> &str {
    let conditions = engine.pointer("/status/conditions").and_then(Value::as_array);
    let unmet = conditions.into_iter().flatten().find(|own| text(own, "/status") == "False");
    unmet.map_or("", |own| text(own, "/message"))
}

/// The replica to keep: the one that was named, or the only one that is in sync.
fn choose(
    found: &Versioned,
    names: &BTreeMap<ReplicaId, String>,
    wanted: Option<&str>,
) -> Result<ReplicaId> {
    let known = || names.values().map(String::as_str).collect::<Vec<_>>().join(", ");
    match wanted {
        Some(wanted) => match names.iter().find(|(_, name)| *name == wanted) {
            Some((id, _)) => Ok(*id),
            None => bail!("--replica {wanted} is not one of the volume's replicas: {}", known()),
        },
        None => match (found.record.isr.first(), found.record.isr.len()) {
            (Some(only), 1) => Ok(*only),
            _ => bail!("say which replica to keep with --replica: {}", known()),
        },
    }
}

fn explain(
    found: &Versioned,
    names: &BTreeMap<ReplicaId, String>,
    kept: ReplicaId,
    reason: &str,
) -> String {
    let name = |id: &ReplicaId| names.get(id).cloned().unwrap_or_else(|| id.to_string());
    let record = &found.record;
    let mut out = String::new();
    if !reason.is_empty() {
        let _ = writeln!(out, "The volume is not attached: {reason}.");
    }
    let _ = writeln!(out, "Replica {} becomes the content of the volume.", name(&kept));
    let _ = writeln!(
        out,
        "Lost for good: every acknowledged write that it lacks. The in-sync replicas were last \
         served in generation {}, and had all carried out flush {}.",
        record.confirmed, record.flushed
    );
    for other in record.isr.iter().filter(|id| **id != kept) {
        let _ = writeln!(out, "Given up, and rebuilt from it: {}", name(other));
    }
    out
}

#[cfg(test)]
mod tests {
    use block::repl::control::Record;

    use super::*;

    #[test]
    fn the_only_in_sync_replica_is_kept_unless_another_is_named() {
        let ids: Vec<ReplicaId> = (1..=3).map(ReplicaId::from_u128).collect();
        let names = ids.iter().zip(["a", "b", "c"]).map(|(id, name)| (*id, name.to_owned()));
        let names: BTreeMap<_, _> = names.collect();
        let one = Versioned { version: Version(1), record: Record::new([ids[0]]) };
        let two = Versioned { version: Version(1), record: Record::new([ids[0], ids[1]]) };
        assert_eq!(choose(&one, &names, None).unwrap(), ids[0]);
        assert_eq!(choose(&one, &names, Some("c")).unwrap(), ids[2]);
        let said = choose(&two, &names, None).unwrap_err().to_string();
        assert_eq!(said, "say which replica to keep with --replica: a, b, c");
        let said = choose(&two, &names, Some("d")).unwrap_err().to_string();
        assert_eq!(said, "--replica d is not one of the volume's replicas: a, b, c");
        let advice = explain(&two, &names, ids[0], "it is old");
        assert!(advice.contains("not attached: it is old."), "{advice}");
        assert!(advice.contains("from it: b"), "{advice}");
    }
}
