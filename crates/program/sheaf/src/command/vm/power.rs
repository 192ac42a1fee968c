//! Starting, stopping, restarting, pausing and deleting machines.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cli::MachineArg;
use crate::command::link::ClusterClient;

#[derive(Debug, Clone, Copy)]
pub(super) enum Switch {
    Start { paused: bool },
    Stop { force: bool },
    Restart,
    Pause,
    Unpause,
}

pub(super) async fn run(machine: &MachineArg, switch: Switch) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let name = &machine.name;
    let (path, options, done) = match switch {
        Switch::Start { paused } => {
            let options = if paused { json!({"paused": true}) } else { json!({}) };
            (link.machine_action(name, "start"), options, "is starting")
        }
        Switch::Stop { force: true } => {
            (link.machine_action(name, "stop"), json!({"gracePeriod": 0}), "is killed")
        }
        Switch::Stop { force: false } => {
            (link.machine_action(name, "stop"), json!({}), "is shutting down")
        }
        Switch::Restart => (link.machine_action(name, "restart"), json!({}), "is restarting"),
        Switch::Pause => (link.instance(name, "pause"), json!({}), "is paused"),
        Switch::Unpause => (link.instance(name, "unpause"), json!({}), "is resumed"),
    };
    link.put(&path, &options).await?;
    crate::command::print(&format!("{name} {done}\n"))
}

/// Deletes a machine. Disks that were made with it go with it, others stay.
pub(super) async fn delete(machine: &MachineArg) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let path = link.machine(&machine.name);
    let Some(found) = link.find(&path).await? else {
        bail!("there is no machine {} in namespace {}", machine.name, link.namespace);
    };
    link.delete(&path).await.context("cannot delete it")?;
    let made: Vec<&str> = found["spec"]["dataVolumeTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|template: &Value| template["metadata"]["name"].as_str())
        .collect();
    let disks = if made.is_empty() {
        String::new()
    } else {
        format!(", with its disk {}", made.join(", "))
    };
    crate::command::print(&format!("{} is being deleted{disks}\n", machine.name))
}
