//! Moving machines to other nodes.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cli::MachineArg;
use crate::command::link::ClusterClient;

pub(super) async fn run(machine: &MachineArg, to: Option<&str>, cancel: bool) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let name = &machine.name;
    if cancel {
        return self::cancel(&link, name).await;
    }
    let options = match to {
        Some(node) => json!({"addedNodeSelector": {"kubernetes.io/hostname": node}}),
        None => json!({}),
    };
    link.put(&link.machine_action(name, "migrate"), &options).await?;
    let place = to.map_or_else(|| "another node".to_owned(), |node| format!("node {node}"));
    let text = format!("{name} is migrating to {place}; see `kubectl get vmim`\n");
    crate::command::print(&text)
}

/// Deletes the migrations of a machine that are not over.
async fn cancel(link: &ClusterClient, name: &str) -> Result<()> {
    let path = link.objects("virtualmachineinstancemigrations");
    let all = link.items(&format!("{path}?labelSelector=kubevirt.io/vmi-name={name}")).await?;
    let is_over =
        |own: &&Value| matches!(own["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let active: Vec<&str> = all
        .iter()
        .filter(|own| !is_over(own))
        .filter_map(|own| own["metadata"]["name"].as_str())
        .collect();
    if active.is_empty() {
        bail!("machine {name} is not migrating");
    }
    for migration in active {
        link.delete(&format!("{path}/{migration}")).await.context("cannot cancel it")?;
    }
    crate::command::print(&format!("the migration of {name} is being cancelled\n"))
}
