//! `sheaf host network`: changes of hosts' networks, thin over the API; and the watchdog of a trial.

use std::fmt::Write as _;
use std::time::Duration;

use agent::{RecordFile, run_watchdog};
use anyhow::{Context as _, Result, bail};
use base::{Tasks, clock};
use hci::host_network::{
    APPLIED, ATTEMPT, CONFIRM, CONFIRMED, ConfirmMode, DEADLINE, TRIAL, TrialReport,
};
use serde_json::{Value, json};

use super::link::ClusterClient;
use super::table;
use crate::cli::{
    ClusterScope, HostCommand, HostNetworkCommand, HostTryArgs, LogFormat, WatchdogArgs,
};
use crate::{logging, text_file};

const NODES: &str = "/api/v1/nodes";
const NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1";
/// How long tasks of the watchdog may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn run(command: &HostCommand) -> Result<()> {
    let HostCommand::Network(command) = command;
    runtime()?.block_on(async {
        match command {
            HostNetworkCommand::Show { place, node } => show(place, node).await,
            HostNetworkCommand::Try(args) => attempt(args).await,
            HostNetworkCommand::Confirm { place, node } => confirm(place, node).await,
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")
}

/// The process that rolls a trial back, whatever becomes of the server.
pub(super) fn watchdog(args: &WatchdogArgs) -> Result<()> {
    logging::start(LogFormat::Text, "info")?;
    runtime()?.block_on(async {
        let tasks = Tasks::default();
        // The server waits for this line before it changes anything.
        let ready = || drop(super::print("ready\n"));
        let outcome = run_watchdog(RecordFile::new(&args.dir), args.trial, &tasks, ready).await;
        tasks.stop(STOP_LIMIT).await;
        Ok(outcome?)
    })
}

async fn find(cluster: &ClusterClient, node: &str) -> Result<Value> {
    let found = cluster.find(&format!("{NODES}/{node}")).await?;
    found.with_context(|| {
        format!("there is no node {node}; `sheaf node list` shows those that exist")
    })
}

fn trial_of(node: &Value) -> Option<TrialReport> {
    serde_json::from_str(node["metadata"]["annotations"][TRIAL].as_str()?).ok()
}

async fn show(place: &ClusterScope, node: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let object = find(&cluster, node).await?;
    let statuses = cluster.items(&format!("{NETWORKS}/vlanstatuses")).await?;
    let hosts = cluster.items(&format!("{NETWORKS}/hostnetworkconfigs")).await?;
    let now = clock::now().as_second();
    let mut text = pending(trial_of(&object).as_ref(), node, now);
    text.push_str(&interfaces(node, &statuses, &hosts));
    super::print(&text)
}

/// The table, or what to do about an empty one.
fn interfaces(node: &str, statuses: &[Value], hosts: &[Value]) -> String {
    let rows = rows(node, statuses, hosts);
    // The first row is the header.
    if rows.len() > 1 {
        return table::align(&rows);
    }
    format!(
        "Here are the uplinks and interfaces that VlanConfigs and HostNetworkConfigs give a node. \
         Node {node} has none.\n\
         To make the first: create a ClusterNetwork, write a VlanConfig with the network cards of the \
         node in spec.uplink.nics, and run `sheaf host network try -f uplink.yaml`.\n"
    )
}

fn pending(trial: Option<&TrialReport>, node: &str, now: i64) -> String {
    let Some(trial) = trial else { return "No change is on trial.\n\n".to_owned() };
    let left = (trial.deadline - now).max(0);
    let mut text = format!(
        "Trial {} of cluster network {} is {}: rolled back in {left} s unless it is confirmed.\n",
        trial.id, trial.cluster_network, trial.state
    );
    let _ = match trial.mode {
        ConfirmMode::Manual => {
            writeln!(text, "`sheaf host network confirm {node}` keeps it.\n")
        }
        ConfirmMode::Auto | ConfirmMode::Never => writeln!(
            text,
            "The node keeps it once its checks have passed for 10 s; so does `sheaf host network \
             confirm {node}`.\n"
        ),
    };
    text
}

fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|own| own["type"] == kind)
}

fn rows(node: &str, statuses: &[Value], hosts: &[Value]) -> Vec<Vec<String>> {
    let header = ["INTERFACE", "CONFIG", "ADDRESS", "READY", "CHANGE", "MESSAGE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut row = |interface: String, config: &Value, address: &Value, conditions: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |kind: &str, field: &str| {
            condition(conditions, kind).map_or_else(String::new, |own| text(&own[field]))
        };
        let message = [of("ready", "message"), of(APPLIED, "message")];
        let message = message.into_iter().find(|own| !own.is_empty()).unwrap_or_default();
        rows.push(vec![
            interface,
            text(config),
            address.as_str().unwrap_or("-").to_owned(),
            of("ready", "status"),
            of(APPLIED, "reason"),
            message,
        ]);
    };
    for status in statuses.iter().filter(|own| own["status"]["node"] == node) {
        let own = &status["status"];
        let bridge = hci::network::bridge_of(own["clusterNetwork"].as_str().unwrap_or_default());
        row(bridge, &own["vlanConfig"], &Value::Null, &own["conditions"]);
    }
    for host in hosts {
        let entry = &host["status"]["nodeStatus"][node];
        if entry.is_null() {
            continue;
        }
        let network = host["spec"]["clusterNetwork"].as_str().unwrap_or_default();
        let vlan = i32::try_from(host["spec"]["vlanID"].as_i64().unwrap_or_default());
        let link = hci::network::host_interface_of(network, vlan.unwrap_or_default());
        // The address that it has: after a roll-back not the one that it was to get.
        row(link, &host["metadata"]["name"], &entry["address"], &entry["conditions"]);
    }
    rows
}

/// Objects of the file, ready to be applied as a trial.
fn objects(text: &str, args: &HostTryArgs, now: i64) -> Result<Vec<(String, Value)>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("the file is no YAML")?;
    let mut objects = Vec::new();
    for mut object in documents {
        let plural = match object["kind"].as_str() {
            Some("VlanConfig") => "vlanconfigs",
            Some("HostNetworkConfig") => "hostnetworkconfigs",
            other => bail!(
                "the kind {} cannot be tried: the file must have VlanConfigs and \
                 HostNetworkConfigs only; nothing was changed",
                other.unwrap_or("(none)")
            ),
        };
        let Some(name) = object["metadata"]["name"].as_str() else {
            bail!("an object of the file has no metadata.name; nothing was changed");
        };
        let path = format!("{NETWORKS}/{plural}/{name}");
        let mode = if args.auto { "auto" } else { "manual" };
        let notes = &mut object["metadata"]["annotations"];
        notes[CONFIRM] = mode.into();
        notes[DEADLINE] = args.deadline.to_string().into();
        // Another attempt, also of a change that was rolled back.
        notes[ATTEMPT] = now.to_string().into();
        objects.push((path, object));
    }
    if objects.is_empty() {
        bail!("the file has no objects");
    }
    Ok(objects)
}

async fn attempt(args: &HostTryArgs) -> Result<()> {
    let path = args.file.display();
    let text = text_file::read(&args.file).with_context(|| format!("cannot read {path}"))?;
    let objects = objects(&text, args, clock::now().as_second())?;
    let cluster = ClusterClient::to(&args.place).await?;
    for (path, object) in &objects {
        if cluster.find(path).await?.is_some() {
            cluster.merge(path, object).await?;
        } else {
            let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
            cluster.post(collection, object).await?;
        }
    }
    let seconds = args.deadline;
    let how = if args.auto {
        "by checks of the node, or rolled back"
    } else {
        "by `sheaf host network confirm NODE`, or rolled back"
    };
    let count = match objects.len() {
        1 => "1 object is".to_owned(),
        count => format!("{count} objects are"),
    };
    super::print(&format!(
        "{count} tried: confirmed within {seconds} s {how}. `sheaf host network show NODE` \
         shows the state\n"
    ))
}

async fn confirm(place: &ClusterScope, node: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let object = find(&cluster, node).await?;
    let Some(trial) = trial_of(&object) else {
        bail!("no change of the network of node {node} is on trial");
    };
    if trial.state != "AwaitingConfirmation" {
        bail!("trial {} of node {node} cannot be confirmed: it is {}", trial.id, trial.state);
    }
    let patch = json!({"metadata": {"annotations": {CONFIRMED: trial.id.to_string()}}});
    cluster.merge(&format!("{NODES}/{node}"), &patch).await?;
    super::print(&format!(
        "trial {} of node {node} is to be kept; `sheaf host network show {node}` shows whether it is\n",
        trial.id
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(words: &[&str]) -> HostTryArgs {
        let start = ["sheaf", "host", "network", "try"];
        let parsed = Cli::try_parse_from(start.iter().chain(words)).unwrap();
        match parsed.command {
            Command::Host(HostCommand::Network(HostNetworkCommand::Try(args))) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_are_applied_as_trials_or_refused() {
        let file = "kind: VlanConfig\nmetadata: {name: lan}\nspec: {}\n---\n\
            kind: HostNetworkConfig\nmetadata: {name: storage}\n";
        let all = objects(file, &args(&["-f", "x", "--deadline", "120"]), 7).unwrap();
        let paths: Vec<_> =
            all.iter().map(|(path, _)| path.rsplit_once("v1beta1/").unwrap().1).collect();
        assert_eq!(paths, ["vlanconfigs/lan", "hostnetworkconfigs/storage"]);
        let notes = &all[0].1["metadata"]["annotations"];
        assert_eq!(
            (&notes[CONFIRM], &notes[DEADLINE], &notes[ATTEMPT]),
            (&json!("manual"), &json!("120"), &json!("7"))
        );
        for (bad, why) in [
            ("kind: Pod\nmetadata: {name: a}\n", "Pod cannot be tried"),
            ("kind: VlanConfig\n", "no metadata.name"),
        ] {
            let failure = objects(bad, &args(&["-f", "x"]), 7).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
        }
    }

    #[test]
    fn a_node_shows_its_interfaces_and_its_trial() {
        let conditions = json!([
            {"type": "ready", "status": "False", "message": "no"},
            {"type": APPLIED, "status": "False", "reason": "RolledBack", "message": "late"},
        ]);
        let status = json!({"status": {"node": "n1", "clusterNetwork": "lan", "vlanConfig": "vc",
            "conditions": conditions}});
        let host = json!({"metadata": {"name": "storage"},
            "spec": {"clusterNetwork": "lan", "vlanID": 100, "ips": {"n1": "198.51.100.1/24"}},
            "status": {"nodeStatus": {"n1": {"address": "198.51.100.7/24", "conditions": []}}}});
        let rows = rows("n1", &[status], &[host]);
        assert_eq!(rows[1], ["lan-br", "vc", "-", "False", "RolledBack", "no"]);
        assert_eq!(rows[2][..3], ["lan-br.100", "storage", "198.51.100.7/24"]);
        let trial = TrialReport {
            id: 3,
            cluster_network: "lan".into(),
            state: "AwaitingConfirmation".into(),
            mode: hci::host_network::ConfirmMode::Manual,
            deadline: 100,
        };
        assert!(pending(Some(&trial), "n1", 40).contains("rolled back in 60 s"));
        assert!(pending(None, "n1", 40).starts_with("No change"));
    }

    #[test]
    fn a_node_without_interfaces_shows_how_to_make_the_first() {
        let other = json!({"status": {"node": "n2", "clusterNetwork": "lan", "vlanConfig": "vc"}});
        let host = json!({"metadata": {"name": "storage"}, "status": {"nodeStatus": {"n2": {}}}});
        let shown = interfaces("n1", std::slice::from_ref(&other), std::slice::from_ref(&host));
        assert!(!shown.contains("INTERFACE"), "{shown}");
        for part in ["Node n1 has none", "spec.uplink.nics", "`sheaf host network try -f"] {
            assert!(shown.contains(part), "{shown}");
        }
        let shown = interfaces("n2", &[other], &[host]);
        assert!(shown.starts_with("INTERFACE") && !shown.contains("try -f"), "{shown}");
    }
}
