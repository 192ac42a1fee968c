//! Actions on nodes.

use hci::cpu_manager::{self, CpuPolicy};
use hci::maintenance::{
    self, AffectedMachine, ClusterObjects, DRAIN_REQUESTED, MAINTAIN_STATUS, MaintenanceRefusal,
};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ActionTarget, Input, done, impossible, invalid};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;

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
        "cordon" => {
            require_other_node(call, name).await?;
            schedulable(call, target, json!(true)).await
        }
        "uncordon" => schedulable(call, target, Value::Null).await,
        "listUnhealthyVM" => {
            let listed = maintenance::unhealthy(&concerned(call, name).await?);
            Ok(reply::json(StatusCode::OK, &json!(listed)))
        }
        "maintenancePossible" => spared(call, name).await.map(|()| done()),
        "enableMaintenanceMode" => enable(call, target, input.flag("force")).await,
        "disableMaintenanceMode" if !is_maintained(&node) => {
            Err(impossible(format!("Node {name} is not in maintenance mode")))
        }
        "disableMaintenanceMode" => {
            call.session.merge(target.path, &maintenance::end()).await?;
            Ok(done())
        }
        "enableCPUManager" => cpu_manager(call, target, &node, CpuPolicy::Static).await,
        "disableCPUManager" => cpu_manager(call, target, &node, CpuPolicy::None).await,
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

/// The link `maintenance`: the plan for each machine if the node is put into maintenance.
pub(crate) async fn preview(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    name: &str,
) -> SteveResult {
    if !matches!(asked.parts.method, Method::GET | Method::HEAD) {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    call.session.get(&format!("/api/v1/nodes/{name}")).await?;
    let lists = ClusterLists::read(call).await?;
    let shown = maintenance::preview(name, &lists.objects());
    Ok(reply::json(StatusCode::OK, &json!(shown)))
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

/// Refuses the last node that machines can be started on, also where the cluster has no other.
async fn require_other_node(call: &ResourceCall<'_>, name: &str) -> Result<(), SteveError> {
    let nodes = items(call, "/api/v1/nodes").await?;
    let is_open = |node: &Value| {
        node["metadata"]["name"] != name
            && node["spec"]["unschedulable"] != true
            && !is_maintained(node)
    };
    match nodes.iter().any(is_open) {
        true => Ok(()),
        false => Err(SteveError::bad_request(MaintenanceRefusal::LastNode.to_string())),
    }
}

fn is_maintained(node: &Value) -> bool {
    let notes = &node["metadata"]["annotations"];
    notes[DRAIN_REQUESTED].is_string() || notes[MAINTAIN_STATUS].is_string()
}

async fn enable(call: &ResourceCall<'_>, target: ActionTarget<'_>, force: bool) -> SteveResult {
    spared(call, target.name).await?;
    if !force {
        let machines = concerned(call, target.name).await?;
        maintenance::check_machines(&machines).map_err(|own| impossible(own.to_string()))?;
    }
    call.session.merge(target.path, &maintenance::request(force)).await?;
    Ok(done())
}

/// Whether the cluster can do without a node.
async fn spared(call: &ResourceCall<'_>, node: &str) -> Result<(), SteveError> {
    let nodes = items(call, "/api/v1/nodes").await?;
    maintenance::check_node(node, &nodes).map_err(|own| impossible(own.to_string()))
}

/// The machines that maintenance of a node concerns.
async fn concerned(
    call: &ResourceCall<'_>,
    node: &str,
) -> Result<Vec<AffectedMachine>, SteveError> {
    Ok(maintenance::survey(node, &ClusterLists::read(call).await?.objects()))
}

/// The objects that decide about maintenance, as far as the caller may read them.
struct ClusterLists {
    nodes: Vec<Value>,
    instances: Vec<Value>,
    machines: Vec<Value>,
    volumes: Vec<Value>,
    engines: Vec<Value>,
    replicas: Vec<Value>,
}

impl ClusterLists {
    async fn read(call: &ResourceCall<'_>) -> Result<Self, SteveError> {
        let longhorn =
            |plural| format!("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/{plural}");
        Ok(Self {
            nodes: items(call, "/api/v1/nodes").await?,
            instances: items(call, "/apis/kubevirt.io/v1/virtualmachineinstances").await?,
            machines: items(call, "/apis/kubevirt.io/v1/virtualmachines").await?,
            volumes: items(call, "/api/v1/persistentvolumes").await?,
            engines: items(call, &longhorn("engines")).await?,
            replicas: items(call, &longhorn("replicas")).await?,
        })
    }

    fn objects(&self) -> ClusterObjects<'_> {
        ClusterObjects {
            nodes: &self.nodes,
            instances: &self.instances,
            machines: &self.machines,
            volumes: &self.volumes,
            engines: &self.engines,
            replicas: &self.replicas,
        }
    }
}

async fn items(call: &ResourceCall<'_>, path: &str) -> Result<Vec<Value>, SteveError> {
    let mut list = call.session.get(path).await?;
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

/// Without a management controller of the hardware, nothing can be switched.
fn no_inventory(name: &str) -> SteveError {
    let message = format!(
        "node {name} has no inventory: add-on harvester-seeder is not available in this version"
    );
    SteveError::new(StatusCode::FAILED_DEPENDENCY, "FailedDependency", message)
}

/// Asks the agent of a node for a policy.
async fn cpu_manager(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    node: &Value,
    policy: CpuPolicy,
) -> SteveResult {
    let instances = items(call, "/apis/kubevirt.io/v1/virtualmachineinstances").await?;
    cpu_manager::check(node, policy, &instances)
        .map_err(|refusal| SteveError::bad_request(refusal.to_string()))?;
    call.session.merge(target.path, &policy.request()).await?;
    Ok(done())
}
