//! Starting, stopping, restarting, pausing and deleting machines.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use virt::{InstancePhase, RunStrategy};

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
    match (link.put(&path, &options).await, switch) {
        (Ok(()), _) => crate::command::print(&format!("{name} {done}\n")),
        (Err(refused), Switch::Stop { .. }) => {
            let vm = link.find(&link.machine(name)).await?.unwrap_or_default();
            let path = link.objects(&format!("virtualmachineinstances/{name}"));
            let vmi = link.find(&path).await?;
            match already_stopping(&vm, vmi.as_ref()) {
                Some(remark) => crate::command::print(&format!("{name} {remark}\n")),
                None => Err(refused),
            }
        }
        (Err(refused), _) => Err(refused),
    }
}

/// The state of a machine that was asked to stop before: the API refuses to ask it again.
fn already_stopping(vm: &Value, vmi: Option<&Value>) -> Option<String> {
    let vmi = vmi.filter(|vmi| !InstancePhase::of(vmi).is_final())?;
    let is_asked = RunStrategy::of(vm) == Some(RunStrategy::Halted)
        || vmi["metadata"]["deletionTimestamp"].is_string();
    let grace = &vmi["spec"]["terminationGracePeriodSeconds"];
    match grace.as_i64() {
        _ if !is_asked => None,
        Some(0) => Some("is being killed already".to_owned()),
        Some(seconds) => Some(format!(
            "is shutting down already; it is killed {seconds} s after the first request, or at \
             once by `sheaf vm stop {} --force`",
            vm["metadata"]["name"].as_str().unwrap_or_default()
        )),
        None => Some("is shutting down already".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_stopping_is_known_from_its_instance() {
        let vm = |strategy: &str| json!({"metadata": {"name": "web"}, "spec": {"runStrategy": strategy}});
        let vmi = |phase: &str, grace: i64| {
            json!({"metadata": {}, "status": {"phase": phase},
            "spec": {"terminationGracePeriodSeconds": grace}})
        };
        let said =
            |strategy: &str, vmi: Option<Value>| already_stopping(&vm(strategy), vmi.as_ref());
        let text = said("Halted", Some(vmi("Running", 180))).unwrap();
        assert!(text.starts_with("is shutting down already"), "{text}");
        assert!(text.contains("180 s") && text.contains("stop web --force"), "{text}");
        assert_eq!(
            said("Halted", Some(vmi("Running", 0))).as_deref(),
            Some("is being killed already")
        );
        let mut deleted = vmi("Running", 30);
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(said("Always", Some(deleted)).is_some());
        assert_eq!(said("Always", Some(vmi("Running", 30))), None);
        assert_eq!(said("Halted", Some(vmi("Succeeded", 30))), None);
        assert_eq!(said("Halted", None), None);
    }
}
