//! `sheaf vm why`: in words, why a machine does not run and what to do.
//!
//! `explain` is pure; what it looks at is fetched before.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cli::Machine;
use crate::command::link::Link;

/// Everything that may be the reason.
#[derive(Debug, Default)]
struct Facts {
    machine: Option<Value>,
    instance: Option<Value>,
    /// Claims and DataVolumes that the machine names and that exist.
    claims: Vec<Value>,
    data_volumes: Vec<Value>,
    /// Replicated volumes.
    volumes: Vec<Value>,
    nodes: Vec<Value>,
    /// Events about the machine or its instance, the newest last.
    events: Vec<Value>,
}

const VOLUMES: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes";

pub(super) async fn run(machine: &Machine) -> Result<()> {
    let link = Link::to(&machine.place).await?;
    let name = &machine.name;
    let instances = link.objects(&format!("virtualmachineinstances/{name}"));
    let data_volumes =
        format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes", link.namespace);
    let mut facts = Facts {
        machine: link.find(&link.machine(name)).await?,
        instance: link.find(&instances).await?,
        claims: link.items(&link.core("persistentvolumeclaims")).await?,
        data_volumes: link.items(&data_volumes).await?,
        // Whoever may not read them, or has none, is told the rest.
        volumes: link.items(VOLUMES).await.unwrap_or_default(),
        nodes: link.items("/api/v1/nodes").await?,
        events: link.items(&link.core("events")).await?,
    };
    facts.events.retain(|event| {
        let about = &event["involvedObject"];
        about["name"] == **name
            && about["kind"].as_str().is_some_and(|kind| kind.starts_with("VirtualMachine"))
    });
    facts.events.sort_by(|a, b| last_seen(a).cmp(last_seen(b)));
    if facts.machine.is_none() && facts.instance.is_none() {
        bail!("there is no machine {name} in namespace {}", link.namespace);
    }
    crate::command::print(&explain(name, &facts))
}

fn last_seen(event: &Value) -> &str {
    event["lastTimestamp"].as_str().or(event["eventTime"].as_str()).unwrap_or("")
}

/// The state in one line, the reasons below it, the latest events at the end.
fn explain(name: &str, facts: &Facts) -> String {
    let state = facts
        .machine
        .as_ref()
        .and_then(|machine| machine["status"]["printableStatus"].as_str())
        .or(facts.instance.as_ref().and_then(|one| one["status"]["phase"].as_str()))
        .unwrap_or("not looked at yet");
    let mut lines = vec![format!("{name} is {state}.")];
    let reasons = reasons(name, state, facts);
    if reasons.is_empty() && state == "Running" {
        lines.push("Nothing is wrong with it.".to_owned());
    }
    for Reason { what, remedy } in reasons {
        lines.push(format!("- {what}"));
        lines.push(format!("  {remedy}"));
    }
    let recent = facts.events.iter().rev().take(5).rev().map(|event| {
        let text = |key: &str| event[key].as_str().unwrap_or("");
        format!("  {:<24} {}", text("reason"), text("message"))
    });
    let recent: Vec<String> = recent.collect();
    if !recent.is_empty() {
        lines.push("What happened last:".to_owned());
        lines.extend(recent);
    }
    lines.join("\n") + "\n"
}

struct Reason {
    what: String,
    remedy: String,
}

fn reason(what: impl Into<String>, remedy: impl Into<String>) -> Reason {
    Reason { what: what.into(), remedy: remedy.into() }
}

fn reasons(name: &str, state: &str, facts: &Facts) -> Vec<Reason> {
    let mut found = Vec::new();
    if let Some(machine) = &facts.machine {
        of_machine(name, state, machine, facts.instance.is_some(), &mut found);
        of_volumes(machine, facts, &mut found);
    }
    if let Some(instance) = &facts.instance {
        of_instance(name, instance, &mut found);
    }
    if state != "Running" && state != "Stopped" {
        of_nodes(&facts.nodes, &mut found);
    }
    found
}

fn of_machine(name: &str, state: &str, vm: &Value, runs: bool, found: &mut Vec<Reason>) {
    let strategy = vm["spec"]["runStrategy"]
        .as_str()
        .unwrap_or_else(|| if vm["spec"]["running"] == true { "Always" } else { "Halted" });
    if !runs && strategy == "Halted" {
        found.push(reason("It is switched off.", format!("Switch it on: sheaf vm start {name}")));
    } else if !runs && state == "Stopped" {
        found.push(reason(
            format!("Its run strategy is {strategy}: it does not start by itself now."),
            format!("Start it: sheaf vm start {name}"),
        ));
    }
    let failure = &vm["status"]["startFailure"];
    if let Some(count) = failure["consecutiveFailCount"].as_u64().filter(|count| *count > 0) {
        let retry = failure["retryAfterTimestamp"].as_str().unwrap_or("soon");
        found.push(reason(
            format!("It failed {count} times in a row; the next try is at {retry}."),
            format!("See what it said: sheaf vm logs {name}"),
        ));
    }
    for condition in conditions(vm).filter(|one| one["status"] == "True") {
        let message = condition["message"].as_str().unwrap_or("");
        match condition["type"].as_str() {
            Some("Failure") => found.push(reason(
                format!("The last attempt to make it so failed: {message}"),
                "Correct what the message names; it is tried again by itself.",
            )),
            Some("RestartRequired") => found.push(reason(
                format!("A change waits for a restart: {message}"),
                format!("Restart it: sheaf vm restart {name}"),
            )),
            _ => {}
        }
    }
}

fn of_instance(name: &str, vmi: &Value, found: &mut Vec<Reason>) {
    for condition in conditions(vmi) {
        let text = |key: &str| condition[key].as_str().unwrap_or("");
        let message = text("message");
        match (text("type"), text("status")) {
            ("PodScheduled", "False") => found.push(reason(
                format!("No node can take it: {message}"),
                "Free resources, add a node, or ask for less.",
            )),
            ("Synchronized", "False") => found.push(reason(
                format!("Its node cannot run it yet: {} {message}", text("reason"))
                    .trim()
                    .to_owned(),
                "It is tried again by itself once that is put right.",
            )),
            ("Paused", "True") if text("reason").contains("IOError") => found.push(reason(
                format!("It was paused because a disk could not be written: {message}"),
                "Make room on the node's disk; it goes on by itself.",
            )),
            ("Paused", "True") => found
                .push(reason("It is paused.", format!("Let it go on: sheaf vm unpause {name}"))),
            _ => {}
        }
    }
    if vmi["metadata"]["deletionTimestamp"].is_string() && vmi["status"]["phase"] == "Running" {
        found.push(reason(
            "It is shutting down.",
            format!("Pull the plug if it does not: sheaf vm stop {name} --force"),
        ));
    }
}

fn of_volumes(vm: &Value, facts: &Facts, found: &mut Vec<Reason>) {
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array();
    let made_later: Vec<&str> = vm["spec"]["dataVolumeTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|template| template["metadata"]["name"].as_str())
        .collect();
    for volume in volumes.into_iter().flatten() {
        let data_volume = volume["dataVolume"]["name"].as_str();
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str().or(data_volume);
        let Some(claim) = claim else { continue };
        let named =
            |list: &[Value]| list.iter().find(|one| one["metadata"]["name"] == claim).cloned();
        if let Some(import) = named(&facts.data_volumes) {
            of_import(claim, &import, found);
        }
        match named(&facts.claims) {
            None if made_later.contains(&claim) => {}
            None => found.push(reason(
                format!("The volume claim {claim} does not exist."),
                format!("Create it, or take it out of the machine: kubectl get pvc {claim}"),
            )),
            Some(known) if known["status"]["phase"] != "Bound" => found.push(reason(
                format!("The volume claim {claim} has no volume yet."),
                format!("See what it waits for: kubectl describe pvc {claim}"),
            )),
            Some(known) => of_replicas(claim, &known, &facts.volumes, found),
        }
    }
}

fn of_replicas(name: &str, claim: &Value, volumes: &[Value], found: &mut Vec<Reason>) {
    let volume = volumes.iter().find(|one| one["metadata"]["name"] == claim["spec"]["volumeName"]);
    let scheduled = volume.into_iter().flat_map(conditions).find(|one| one["type"] == "Scheduled");
    let Some(homeless) = scheduled.filter(|one| one["status"] == "False") else { return };
    let message = homeless["message"].as_str().unwrap_or("");
    found.push(reason(
        format!("No disk takes the data of {name}: {message}."),
        "Make room on the disks or add one (kubectl -n longhorn-system get nodes.longhorn.io -o \
         yaml), or choose another storage class, for instance local.",
    ));
}

fn of_import(name: &str, import: &Value, found: &mut Vec<Reason>) {
    let phase = import["status"]["phase"].as_str().unwrap_or("Pending");
    let progress = import["status"]["progress"].as_str().unwrap_or("N/A");
    match phase {
        "Succeeded" => {}
        "Failed" => found.push(reason(
            format!("The image of {name} could not be fetched."),
            format!("See why: kubectl describe dv {name}"),
        )),
        "UploadReady" => found.push(reason(
            format!("The volume {name} waits for its image."),
            format!("Send it: virtctl image-upload dv {name} --no-create --image-path FILE"),
        )),
        _ => found.push(reason(
            format!("The image of {name} is being fetched ({phase}, {progress})."),
            "It starts by itself when that is done.",
        )),
    }
}

fn of_nodes(nodes: &[Value], found: &mut Vec<Reason>) {
    let ready = |node: &&Value| {
        conditions(node).any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    if nodes.iter().find(ready).is_none() {
        let why = nodes
            .iter()
            .flat_map(conditions)
            .find(|one| one["type"] == "Ready")
            .and_then(|one| one["message"].as_str())
            .unwrap_or("no node has registered; was the server started with --no-agent?");
        found.push(reason(format!("No node is ready: {why}"), "See: kubectl describe nodes"));
    }
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": ready, "message": "no QEMU"}]}})
    }

    fn vm(state: &str, spec: Value) -> Value {
        json!({"spec": spec, "status": {"printableStatus": state}})
    }

    #[test]
    fn a_machine_that_is_off_is_told_how_to_be_on() {
        let machine = Some(vm("Stopped", json!({"runStrategy": "Halted"})));
        let text =
            explain("web", &Facts { machine, nodes: vec![node("True")], ..Facts::default() });
        assert_eq!(
            text,
            "web is Stopped.\n- It is switched off.\n  Switch it on: sheaf vm start web\n"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let volumes = json!([
            {"name": "a", "persistentVolumeClaim": {"claimName": "gone"}},
            {"name": "b", "dataVolume": {"name": "import"}},
        ]);
        let spec = json!({"runStrategy": "Always", "template": {"spec": {"volumes": volumes}}});
        let facts = Facts {
            machine: Some(vm("Provisioning", spec)),
            data_volumes: vec![json!({
                "metadata": {"name": "import"},
                "status": {"phase": "ImportInProgress", "progress": "42.00%"},
            })],
            claims: vec![json!({"metadata": {"name": "import"}, "spec": {"volumeName": "pvc-1"},
                "status": {"phase": "Bound"}})],
            volumes: vec![json!({"metadata": {"name": "pvc-1"}, "status": {"conditions": [
                {"type": "Scheduled", "status": "False", "message": "disks are unavailable"}]}})],
            nodes: vec![node("False")],
            ..Facts::default()
        };
        let text = explain("web", &facts);
        for part in [
            "The volume claim gone does not exist.",
            "The image of import is being fetched (ImportInProgress, 42.00%).",
            "No disk takes the data of import: disks are unavailable.",
            "No node is ready: no QEMU",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_running_machine_has_nothing_wrong() {
        let machine = Some(vm("Running", json!({"runStrategy": "Always"})));
        let instance = Some(json!({"status": {"phase": "Running"}}));
        let text = explain("web", &Facts { machine, instance, ..Facts::default() });
        assert_eq!(text, "web is Running.\nNothing is wrong with it.\n");
    }
}
