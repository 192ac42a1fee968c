//! Requests that change what a machine is to be: patches of its object.
//!
//! `virt` decides the effect of a request; here the objects are fetched and patched.

use std::time::Duration;

use base::Backoff;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use virt::lifecycle::{self, Patch, PatchTarget, Volumes};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::{InstanceAct, MachineAct, ObjectRoute};
use crate::{Gateway, GatewayRequest, expand, instance, objects};

/// How long the claim of a memory dump may take to be bound.
const BIND_TIMEOUT: Duration = Duration::from_secs(15);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);

pub(crate) async fn answer(
    gateway: &Gateway,
    at: &ObjectRoute,
    act: MachineAct,
    asked: GatewayRequest,
) -> GatewayResult {
    let body = instance::read(asked.body).await?;
    let options = instance::options(&body)?;
    let machine = objects::machine(&gateway.client, at).await?;
    if act == MachineAct::ExpandSpec {
        return expand::machine(gateway, machine).await;
    }
    let found = objects::find(&gateway.client, &objects::instance_path(at)).await?;
    let running = found.as_ref();
    let patches = match act {
        MachineAct::Start => lifecycle::start(&machine, running, &read(&options)?)?,
        MachineAct::Stop => lifecycle::stop(&machine, running, &read(&options)?)?,
        MachineAct::Restart => lifecycle::restart(&machine, running, &read(&options)?)?,
        MachineAct::AddVolume => {
            vec![lifecycle::add_volume(Volumes::OfMachine(&machine), &options)?]
        }
        MachineAct::RemoveVolume => {
            vec![lifecycle::remove_volume(Volumes::OfMachine(&machine), &options)?]
        }
        MachineAct::DumpMemory => {
            let claim = lifecycle::dump_claim(&machine, &options)?;
            let path = objects::claim_path(&at.namespace, &claim);
            let found = objects::find(&gateway.client, &path).await?;
            let dump = lifecycle::dump_memory(&machine, running, &claim, found.as_ref())?;
            if let (Some(size), false) = (dump.grow_to, instance::is_dry_run(&options)) {
                grow_claim(gateway, &path, found.unwrap_or_default(), size).await?;
            }
            vec![dump.patch]
        }
        MachineAct::RemoveMemoryDump => vec![lifecycle::remove_memory_dump(&machine)?],
        MachineAct::Migrate => return migrate(gateway, at, &machine, running, &options).await,
        MachineAct::ExpandSpec => unreachable!("dealt with above"),
    };
    carry_out(gateway, at, &patches, instance::is_dry_run(&options)).await
}

/// Volumes of an instance that no machine owns.
pub(crate) async fn volume_of_instance(
    gateway: &Gateway,
    at: &ObjectRoute,
    act: InstanceAct,
    body: &[u8],
) -> GatewayResult {
    let options = instance::options(body)?;
    let vmi = objects::instance(&gateway.client, at).await?;
    let patch = if act == InstanceAct::AddVolume {
        lifecycle::add_volume(Volumes::OfInstance(&vmi), &options)?
    } else {
        lifecycle::remove_volume(Volumes::OfInstance(&vmi), &options)?
    };
    carry_out(gateway, at, &[patch], instance::is_dry_run(&options)).await
}

async fn migrate(
    gateway: &Gateway,
    at: &ObjectRoute,
    machine: &Value,
    running: Option<&Value>,
    options: &Value,
) -> GatewayResult {
    let Some(vmi) = running else {
        return Err(GatewayError::conflict("virtualmachine", &at.name, "VM is not running"));
    };
    let migration = lifecycle::migrate(machine, vmi, &read(options)?)?;
    let nodes = objects::find(&gateway.client, "/api/v1/nodes").await?.unwrap_or(Value::Null);
    let count = nodes["items"].as_array().map_or(0, Vec::len);
    if count < 2 {
        let why = "there is no other node to migrate to: the cluster has one node";
        return Err(GatewayError::conflict("virtualmachine", &at.name, why));
    }
    if !instance::is_dry_run(options) {
        let path = format!(
            "/{}/namespaces/{}/virtualmachineinstancemigrations",
            objects::MACHINES,
            at.namespace
        );
        let json = "application/json";
        objects::send(&gateway.client, Method::POST, &path, json, &migration).await?;
    }
    Ok(answer::empty(StatusCode::ACCEPTED))
}

/// Makes the claim of a memory dump large enough, which its class may not allow. A claim that was
/// just created has to be bound first.
async fn grow_claim(
    gateway: &Gateway,
    path: &str,
    claim: Value,
    size: i64,
) -> Result<(), GatewayError> {
    let mebibytes = size.unsigned_abs().div_ceil(1 << 20);
    let storage = json!({"storage": format!("{mebibytes}Mi")});
    let patch = json!({"spec": {"resources": {"requests": storage}}});
    let end = Instant::now() + BIND_TIMEOUT;
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut is_bound = claim["status"]["phase"] == "Bound";
    loop {
        match objects::merge(&gateway.client, path, &patch).await {
            Err(failure) if matches!(failure.code.as_u16(), 403 | 422) => {}
            grown => return grown.map(drop),
        }
        if is_bound || Instant::now() > end {
            let size_now = claim["spec"]["resources"]["requests"]["storage"].as_str();
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            return Err(lifecycle::small_claim(name, size_now.unwrap_or_default(), size).into());
        }
        tokio::time::sleep(backoff.delay()).await;
        let now = objects::find(&gateway.client, path).await?.unwrap_or_default();
        is_bound = now["status"]["phase"] == "Bound";
    }
}

fn read<T: DeserializeOwned>(options: &Value) -> Result<T, GatewayError> {
    serde_json::from_value(options.clone()).map_err(|error| GatewayError::body(&error))
}

/// Applies patches in their order, and takes those back that came before one that failed.
async fn carry_out(
    gateway: &Gateway,
    at: &ObjectRoute,
    patches: &[Patch],
    dry_run: bool,
) -> GatewayResult {
    for (index, patch) in patches.iter().enumerate() {
        let operations = json!(patch.operations);
        if let Err(failure) = apply(gateway, at, patch.target, &operations, dry_run).await {
            for done in patches[..index].iter().rev().filter(|done| !done.undo.is_empty()) {
                // The first failure is the one to report.
                let _ = apply(gateway, at, done.target, &json!(done.undo), dry_run).await;
            }
            return Err(raced(at, failure));
        }
    }
    Ok(answer::empty(StatusCode::ACCEPTED))
}

async fn apply(
    gateway: &Gateway,
    at: &ObjectRoute,
    target: PatchTarget,
    operations: &Value,
    dry_run: bool,
) -> Result<(), GatewayError> {
    let path = match target {
        PatchTarget::Machine => objects::machine_path(at),
        PatchTarget::MachineStatus => format!("{}/status", objects::machine_path(at)),
        PatchTarget::Instance => objects::instance_path(at),
    };
    let path = if dry_run { format!("{path}?dryRun=All") } else { path };
    objects::patch(&gateway.client, &path, operations).await.map(drop)
}

/// A test in the patch failed: another client was faster, which is a conflict.
fn raced(at: &ObjectRoute, failure: GatewayError) -> GatewayError {
    let is_test =
        failure.message.contains("test operation") || failure.message.contains("testing value");
    if failure.code == StatusCode::UNPROCESSABLE_ENTITY && is_test {
        return GatewayError::conflict("virtualmachine", &at.name, failure.message);
    }
    failure
}
