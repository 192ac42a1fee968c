//! `sheaf vm why`: reads the objects around a machine and prints the findings of `virt::diagnosis`.

use anyhow::{Result, bail};
use serde_json::Value;
use virt::diagnosis::{
    Diagnosis, DiagnosisFinding, DiagnosisInput, EventSummary, Severity, diagnose, read, read_all,
};

use crate::cli::{MachineArg, Output};
use crate::command::link::ClusterClient;

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const VOLUMES: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes";

pub(super) async fn run(machine: &MachineArg, output: Option<Output>) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let name = &machine.name;
    let instances = link.objects(&format!("virtualmachineinstances/{name}"));
    let data_volumes =
        format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes", link.namespace);
    let instance = link.find(&instances).await?;
    let policies = policies(&link, instance.as_ref()).await;
    let facts = DiagnosisInput {
        name: name.clone(),
        namespace: link.namespace.clone(),
        machine: link.find(&link.machine(name)).await?.and_then(read),
        instance: instance.and_then(read),
        claims: read_all(link.items(&link.core("persistentvolumeclaims")).await?),
        data_volumes: read_all(link.items(&data_volumes).await?),
        events: read_all(link.items(&link.core("events")).await?),
        // A user who may not read these sees the rest.
        migrations: read_all(
            link.items(&link.objects("virtualmachineinstancemigrations")).await.unwrap_or_default(),
        ),
        images: read_all(images(&link).await),
        storage_volumes: read_all(link.items(VOLUMES).await.unwrap_or_default()),
        policies,
        nodes: read_all(link.items("/api/v1/nodes").await.unwrap_or_default()),
    };
    if facts.machine.is_none() && facts.instance.is_none() {
        bail!("there is no machine {name} in namespace {}", link.namespace);
    }
    let found = diagnose(&facts, base::clock::now());
    let text = match output {
        Some(Output::Json) => serde_json::to_string_pretty(&found)? + "\n",
        None => render(name, &found),
    };
    crate::command::print(&text)
}

/// Images of all namespaces, or of the machine's for a user who may not read the others.
async fn images(link: &ClusterClient) -> Vec<Value> {
    match link.items(&format!("{HARVESTER}/virtualmachineimages")).await {
        Ok(all) => all,
        Err(_) => {
            let own = format!("{HARVESTER}/namespaces/{}/virtualmachineimages", link.namespace);
            link.items(&own).await.unwrap_or_default()
        }
    }
}

/// The network policies that select the machine.
async fn policies(link: &ClusterClient, instance: Option<&Value>) -> Vec<String> {
    let Some(instance) = instance else { return vec![] };
    let of = |api: &str| format!("/apis/{api}/namespaces/{}", link.namespace);
    let plain = of("networking.k8s.io/v1") + "/networkpolicies";
    let multi = of("k8s.cni.cncf.io/v1beta1") + "/multi-networkpolicies";
    let plain = link.items(&plain).await.unwrap_or_default();
    let multi = link.items(&multi).await.unwrap_or_default();
    hci::multi_network_policy::selecting(&plain, &multi, instance)
}

/// The state in one line, the findings below it, the latest events at the end.
fn render(name: &str, found: &Diagnosis) -> String {
    let ready = if found.state == "Running" && !found.ready { ", not ready" } else { "" };
    let mut lines = vec![format!("{name}: {}{ready}", found.state)];
    if found.is_healthy() {
        lines.push("No problem found.".to_owned());
    }
    for DiagnosisFinding { severity, what, why, fix } in &found.findings {
        let label = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        lines.push(String::new());
        lines.push(format!("{label}: {what}"));
        if !why.is_empty() {
            lines.push(format!("  cause: {why}"));
        }
        lines.push(format!("  try:   {fix}"));
    }
    if !found.events.is_empty() {
        lines.push(String::new());
        lines.push("Latest events:".to_owned());
    }
    for EventSummary { reason, message, count, last } in &found.events {
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        lines.push(format!("  {last}  {reason}: {message}{times}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_with_cause_and_command() {
        let found = Diagnosis {
            state: "Running".into(),
            ready: false,
            findings: vec![DiagnosisFinding {
                severity: Severity::Error,
                what: "The guest runs, but its readiness probe fails.".into(),
                why: "connection refused".into(),
                fix: "sheaf vm console web".into(),
            }],
            events: vec![EventSummary {
                reason: "Unhealthy".into(),
                message: "m".into(),
                count: 5,
                last: "2026-01-02T03:04:05Z".into(),
            }],
        };
        assert_eq!(
            render("web", &found),
            "web: Running, not ready\n\n\
             error: The guest runs, but its readiness probe fails.\n  \
             cause: connection refused\n  try:   sheaf vm console web\n\n\
             Latest events:\n  2026-01-02T03:04:05Z  Unhealthy: m (5 times)\n"
        );
    }

    #[test]
    fn a_healthy_machine_has_no_problem() {
        let found = Diagnosis {
            state: "Running".into(),
            ready: true,
            findings: Vec::new(),
            events: Vec::new(),
        };
        assert_eq!(render("web", &found), "web: Running\nNo problem found.\n");
    }
}
