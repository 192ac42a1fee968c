//! `sheaf vm list`: a line for each machine.

use anyhow::Result;
use serde_json::Value;

use crate::command::link::ClusterClient;
use crate::command::table::align;

pub(super) async fn run(link: &ClusterClient, everywhere: bool) -> Result<()> {
    let path = |resource: &str| {
        if everywhere { format!("/apis/kubevirt.io/v1/{resource}") } else { link.objects(resource) }
    };
    let machines = link.items(&path("virtualmachines")).await?;
    let instances = link.items(&path("virtualmachineinstances")).await?;
    if machines.is_empty() && instances.is_empty() {
        let place =
            if everywhere { String::new() } else { format!(" in namespace {}", link.namespace) };
        eprintln!("No machines{place}. Create one with: sheaf vm create NAME --image FILE|URL");
        return Ok(());
    }
    crate::command::print(&table(&machines, &instances, everywhere))
}

/// Machines first, then instances that no machine owns.
fn table(machines: &[Value], instances: &[Value], everywhere: bool) -> String {
    let mut rows =
        vec![row(everywhere, ["NAMESPACE", "NAME", "STATUS", "CPUS", "MEMORY", "ADDRESS", "NODE"])];
    let instance = |machine: &Value| {
        instances.iter().find(|instance| {
            ["name", "namespace"]
                .iter()
                .all(|key| instance["metadata"][key] == machine["metadata"][key])
        })
    };
    for machine in machines {
        let status = machine["status"]["printableStatus"].as_str().unwrap_or("Unknown");
        let spec = &machine["spec"]["template"]["spec"];
        rows.push(line(machine, spec, status, instance(machine), everywhere));
    }
    for alone in instances.iter().filter(|one| one["metadata"]["ownerReferences"].is_null()) {
        let status = alone["status"]["phase"].as_str().unwrap_or("Unknown");
        rows.push(line(alone, &alone["spec"], status, Some(alone), everywhere));
    }
    align(&rows)
}

fn line(
    object: &Value,
    spec: &Value,
    status: &str,
    instance: Option<&Value>,
    everywhere: bool,
) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let status_of = instance.map_or(&Value::Null, |instance| &instance["status"]);
    let running = instance.map_or(spec, |instance| &instance["spec"]);
    row(
        everywhere,
        [
            &text(&object["metadata"]["namespace"]),
            &text(&object["metadata"]["name"]),
            status,
            &cpus(&running["domain"]["cpu"]).to_string(),
            &memory(&running["domain"]),
            &text(&status_of["interfaces"][0]["ipAddress"]),
            &text(&status_of["nodeName"]),
        ],
    )
}

fn row(everywhere: bool, cells: [&str; 7]) -> Vec<String> {
    let skip = usize::from(!everywhere);
    cells
        .iter()
        .skip(skip)
        .map(|cell| if cell.is_empty() { "-" } else { cell }.to_string())
        .collect()
}

fn cpus(cpu: &Value) -> u64 {
    ["sockets", "cores", "threads"].iter().map(|key| cpu[key].as_u64().unwrap_or(1)).product()
}

fn memory(domain: &Value) -> String {
    let guest = domain["memory"]["guest"].as_str();
    let requested = domain["resources"]["requests"]["memory"].as_str();
    guest.or(requested).unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_state_size_address_and_node() {
        let machine = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}}}}},
            "status": {"printableStatus": "Running"},
        });
        let instance = json!({
            "metadata": {"name": "web", "namespace": "default", "ownerReferences": [{}]},
            "spec": {"domain": {"cpu": {"sockets": 2, "cores": 2}, "memory": {"guest": "2Gi"}}},
            "status": {"phase": "Running", "nodeName": "n1", "interfaces": [{"ipAddress": "10.52.0.2"}]},
        });
        let stopped = json!({
            "metadata": {"name": "db", "namespace": "default"}, "spec": {},
            "status": {"printableStatus": "Stopped"},
        });
        let expected = "\
NAME   STATUS    CPUS   MEMORY   ADDRESS     NODE
web    Running   4      2Gi      10.52.0.2   n1
db     Stopped   1      -        -           -
";
        assert_eq!(table(&[machine, stopped], &[instance], false), expected);
    }
}
