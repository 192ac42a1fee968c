//! Actions on nodes.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ActionTarget, Input, done, impossible, invalid};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};

const SINGLE: &str = "draining of this node is not possible: single controlplane cluster, cannot \
                      place controlplane in maintenance mode";
const OPERATIONS: [&str; 3] = ["shutdown", "poweron", "reboot"];

pub(super) async fn run(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    action: &str,
    input: &Input,
) -> SteveResult {
    let node = call.session.get(target.path).await?;
    let cordoned = node["spec"]["unschedulable"] == true;
    let name = target.name;
    match action {
        "cordon" if cordoned => Err(impossible(format!("Node {name} already cordoned"))),
        "uncordon" if !cordoned => Err(impossible(format!("Node {name} already uncordoned"))),
        "cordon" => schedulable(call, target, json!(true)).await,
        "uncordon" => schedulable(call, target, Value::Null).await,
        // Instances that could not move: none does.
        "listUnhealthyVM" => Ok(reply::json(StatusCode::OK, &json!([]))),
        "enableMaintenanceMode" | "maintenancePossible" => Err(impossible(SINGLE)),
        "disableMaintenanceMode" => {
            Err(impossible(format!("Node {name} is not in maintenance mode")))
        }
        "enableCPUManager" | "disableCPUManager" => Err(cpu_manager(&node, action)),
        "powerAction" if !OPERATIONS.contains(&input.text("operation")) => {
            let operation = input.text("operation");
            Err(invalid(&format!(
                "operation {operation} is not a valid power opreation, valid values are {}",
                OPERATIONS.join(", ")
            )))
        }
        _ => Err(no_inventory(name)),
    }
}

async fn schedulable(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    unschedulable: Value,
) -> SteveResult {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    call.session.merge(target.path, &patch).await?;
    Ok(done())
}

/// Without a management controller of the hardware, nothing can be switched.
fn no_inventory(name: &str) -> SteveError {
    let message = format!(
        "node {name} has no inventory: add-on harvester-seeder is not available in this version"
    );
    SteveError::new(StatusCode::FAILED_DEPENDENCY, "FailedDependency", message)
}

/// Processors are pinned by the agent as machines ask for it; there is no policy to switch.
fn cpu_manager(node: &Value, action: &str) -> SteveError {
    let enabled = node["metadata"]["labels"]["cpumanager"] == "true";
    let message = match (action, enabled) {
        ("enableCPUManager", true) => {
            "current cpu manager policy is already the same as requested value: static"
        }
        ("disableCPUManager", false) => {
            "current cpu manager policy is already the same as requested value: none"
        }
        _ => "the cpu manager policy of a node cannot be changed in this version",
    };
    SteveError::bad_request(message)
}
