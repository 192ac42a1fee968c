//! Moving machines to other nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cli::MigrateArgs;
use crate::command::link::ClusterClient;
use crate::command::{interrupt, print};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The state of a migration.
#[derive(Debug, PartialEq, Eq)]
enum MigrationProgress {
    /// A text about the current phase.
    UnderWay(String),
    Done {
        node: String,
    },
    Failed {
        why: String,
    },
    Canceled,
}

pub(super) async fn run(args: &MigrateArgs) -> Result<()> {
    let link = ClusterClient::to(&args.machine.place).await?;
    let name = &args.machine.name;
    if args.cancel {
        return cancel(&link, name).await;
    }
    let options = match &args.to {
        Some(node) => json!({"addedNodeSelector": {"kubernetes.io/hostname": node}}),
        None => json!({}),
    };
    let known: BTreeSet<String> = migrations(&link, name).await?.iter().map(name_of).collect();
    link.put(&link.machine_action(name, "migrate"), &options).await?;
    let place = args.to.as_ref().map(|node| format!("node {node}"));
    let place = place.unwrap_or_else(|| "another node".to_owned());
    print(&format!("{name} is migrating to {place}\n"))?;
    if args.no_wait {
        return Ok(());
    }
    let continues = format!(
        "{name} is still migrating; `sheaf vm why {name}` shows it, `sheaf vm migrate {name} \
         --cancel` ends it"
    );
    let node = interrupt::or_report(until_over(&link, name, &known), continues).await?;
    print(&format!("{name} is on node {node} now\n"))
}

/// The migrations of a machine.
async fn migrations(link: &ClusterClient, machine: &str) -> Result<Vec<Value>> {
    let path = link.objects("virtualmachineinstancemigrations");
    link.items(&format!("{path}?labelSelector=kubevirt.io/vmi-name={machine}")).await
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Waits for the migration that is not among the known ones; the node that the guest is on then.
async fn until_over(
    link: &ClusterClient,
    machine: &str,
    known: &BTreeSet<String>,
) -> Result<String> {
    let (mut said, mut is_seen) = (String::new(), false);
    loop {
        let all = migrations(link, machine).await?;
        let own = all.iter().find(|own| !known.contains(&name_of(own)));
        match progress(own, is_seen) {
            MigrationProgress::Done { node } => return Ok(node),
            MigrationProgress::Failed { why } => bail!("{machine} stays on its node: {why}"),
            MigrationProgress::Canceled => bail!("the migration of {machine} was cancelled"),
            MigrationProgress::UnderWay(text) if text != said => {
                eprintln!("{text}");
                said = text;
            }
            MigrationProgress::UnderWay(_) => {}
        }
        is_seen |= own.is_some();
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// `is_seen` says that the migration existed before.
fn progress(migration: Option<&Value>, is_seen: bool) -> MigrationProgress {
    let Some(migration) = migration else {
        return match is_seen {
            true => MigrationProgress::Canceled,
            false => MigrationProgress::UnderWay("the migration is being created".into()),
        };
    };
    let (status, state) = (&migration["status"], &migration["status"]["migrationState"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let node = text(&state["targetNode"]);
    let is_deleted = migration["metadata"]["deletionTimestamp"].is_string();
    match status["phase"].as_str().unwrap_or_default() {
        "Succeeded" => MigrationProgress::Done { node },
        "Failed" if is_deleted => MigrationProgress::Canceled,
        "Failed" => {
            let why = text(&state["failureReason"]);
            let unknown = || "no node could take it; `kubectl get events` says why".to_owned();
            MigrationProgress::Failed { why: if why.is_empty() { unknown() } else { why } }
        }
        _ if is_deleted => MigrationProgress::UnderWay("the migration is being cancelled".into()),
        "Scheduling" | "Scheduled" | "PreparingTarget" => {
            MigrationProgress::UnderWay(format!("node {node} prepares for it"))
        }
        "TargetReady" | "Running" => {
            MigrationProgress::UnderWay(format!("its data is being copied to node {node}"))
        }
        _ => {
            let text = "it waits for other migrations, or for a node that can take it";
            MigrationProgress::UnderWay(text.into())
        }
    }
}

/// Deletes the migrations of a machine that are not over.
async fn cancel(link: &ClusterClient, name: &str) -> Result<()> {
    let path = link.objects("virtualmachineinstancemigrations");
    let is_over =
        |own: &&Value| matches!(own["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let all = migrations(link, name).await?;
    let active: Vec<String> = all.iter().filter(|own| !is_over(own)).map(name_of).collect();
    if active.is_empty() {
        bail!("machine {name} is not migrating");
    }
    for migration in active {
        link.delete(&format!("{path}/{migration}")).await.context("cannot cancel it")?;
    }
    print(&format!("the migration of {name} is being cancelled\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_until_the_guest_is_on_a_node() {
        let migration = |phase: &str, state: Value| {
            json!({"metadata": {"name": "m"},
                "status": {"phase": phase, "migrationState": state}})
        };
        let way = |text: &str| MigrationProgress::UnderWay(text.into());
        let waits = "it waits for other migrations, or for a node that can take it";
        let failed = |why: &str| MigrationProgress::Failed { why: why.into() };
        let state = json!({"targetNode": "two"});
        let reason = json!({"targetNode": "two", "failureReason": "disk root cannot be copied"});
        for (object, expected) in [
            (migration("", Value::Null), way(waits)),
            (migration("Pending", Value::Null), way(waits)),
            (migration("Scheduling", state.clone()), way("node two prepares for it")),
            (migration("PreparingTarget", state.clone()), way("node two prepares for it")),
            (migration("Running", state.clone()), way("its data is being copied to node two")),
            (migration("Succeeded", state), MigrationProgress::Done { node: "two".into() }),
            (migration("Failed", reason), failed("disk root cannot be copied")),
            (
                migration("Failed", Value::Null),
                failed("no node could take it; `kubectl get events` says why"),
            ),
        ] {
            assert_eq!(progress(Some(&object), true), expected, "{object}");
        }
    }

    #[test]
    fn a_migration_that_is_deleted_is_cancelled() {
        let mut object = json!({"metadata": {"deletionTimestamp": "t"},
            "status": {"phase": "Running", "migrationState": {"targetNode": "two"}}});
        let ends = MigrationProgress::UnderWay("the migration is being cancelled".into());
        assert_eq!(progress(Some(&object), true), ends);
        object["status"]["phase"] = json!("Failed");
        assert_eq!(progress(Some(&object), true), MigrationProgress::Canceled);
        assert_eq!(progress(None, true), MigrationProgress::Canceled);
        let begins = MigrationProgress::UnderWay("the migration is being created".into());
        assert_eq!(progress(None, false), begins);
    }
}
