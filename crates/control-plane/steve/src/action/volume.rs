//! Actions on volumes and their snapshots.

use http::StatusCode;
use serde_json::Value;

use super::volume_export::ExportInput;
use super::{
    ActionTarget, Input, done, impossible, invalid, storage_migration, volume_object as object,
};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

pub(super) async fn run(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    action: &str,
    input: &Input,
) -> SteveResult {
    let found = call.session.get(target.path).await?;
    match action {
        "export" => export(call, &found, input).await,
        "snapshot" => snapshot(call, target, &found, input).await,
        "restore" => restore(call, target, &found, input).await,
        "cancelExpand" => cancel_expand(call, target, &found).await,
        "dataMigration" => {
            storage_migration::copy(call, target, &found, input).await?;
            Ok(done())
        }
        _ => {
            let name = required(input, "name")?;
            create_claim(call, target.namespace, &object::clone(&found, name)).await
        }
    }
}

fn required<'a>(input: &'a Input, name: &str) -> Result<&'a str, SteveError> {
    match input.text(name) {
        "" => Err(invalid(&format!("Parameter `{name}` is required"))),
        text => Ok(text),
    }
}

async fn create_claim(call: &ResourceCall<'_>, namespace: &str, claim: &Value) -> SteveResult {
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    call.session.post(&path, claim).await?;
    Ok(done())
}

/// Makes an image of a volume, and answers with it.
async fn export(call: &ResourceCall<'_>, claim: &Value, input: &Input) -> SteveResult {
    let (display_name, namespace) =
        (required(input, "displayName")?, required(input, "namespace")?);
    let own = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let class = match input.text("storageClassName") {
        "" => own,
        class => class,
    };
    let target = require_class(call, class, "get target StorageClass with Err").await?;
    let source = match own == class {
        true => target.clone(),
        false => require_class(call, own, "get PVC StorageClass with Err").await?,
    };
    let path = format!(
        "/api/v1/namespaces/{}/pods",
        claim["metadata"]["namespace"].as_str().unwrap_or_default()
    );
    let pods = call.session.get(&path).await?;
    let pods = pods["items"].as_array().map_or(&[][..], Vec::as_slice);
    ExportInput { claim, source: &source, target: &target, pods }
        .check()
        .map_err(|error| invalid(&error.to_string()))?;
    let image = object::image(claim, namespace, display_name, class);
    let path = format!("{HARVESTER}/namespaces/{namespace}/virtualmachineimages");
    let image = call.session.post(&path, &image).await?;
    Ok(reply::json(StatusCode::OK, &image))
}

/// A class by its name; `what` begins the refusal if there is none.
async fn require_class(
    call: &ResourceCall<'_>,
    class: &str,
    what: &str,
) -> Result<Value, SteveError> {
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    match call.session.find(&path).await? {
        Some(found) => Ok(found),
        None => {
            Err(invalid(&format!("{what}: storageclasses.storage.k8s.io \"{class}\" not found")))
        }
    }
}

async fn snapshot(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    claim: &Value,
    input: &Input,
) -> SteveResult {
    let name = required(input, "name")?;
    let provisioner = claim["metadata"]["annotations"][PROVISIONER].as_str();
    let provisioner = provisioner.unwrap_or("driver.longhorn.io");
    let path = format!("{HARVESTER}/settings/csi-driver-config");
    let setting = call.steve.setting(&path).await?;
    let class = object::snapshot_class(&setting, provisioner);
    let class = class.ok_or_else(|| {
        invalid(&format!("setting csi-driver-config names no snapshot class for {provisioner}"))
    })?;
    let path =
        format!("/apis/snapshot.storage.k8s.io/v1/namespaces/{}/volumesnapshots", target.namespace);
    call.session.post(&path, &object::snapshot(claim, name, &class)).await?;
    Ok(done())
}

async fn restore(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    snapshot: &Value,
    input: &Input,
) -> SteveResult {
    let name = required(input, "name")?;
    let annotation = |key: &str| snapshot["metadata"]["annotations"][key].as_str();
    let before = annotation("harvesterhci.io/storageClassName").unwrap_or_default();
    let image = annotation("harvesterhci.io/imageId");
    let class = match input.text("storageClassName") {
        "" => before,
        class => class,
    };
    if class.is_empty() {
        return Err(invalid("Parameter `storageClassName` is required"));
    }
    let what = "Can not restore volume snapshot with a storageClass that does not exist";
    let found = require_class(call, class, what).await?;
    let provisioner = annotation("harvesterhci.io/storageProvisioner").unwrap_or_default();
    if !provisioner.is_empty() && found["provisioner"] != provisioner {
        let message = "Can not use different provisioner for restoring volume snapshot";
        return Err(invalid(message));
    }
    if image.is_some_and(|image| !image.is_empty()) && class != before {
        let message = "Can not use different storageClass for restoring image volume snapshot";
        return Err(invalid(message));
    }
    let claim = object::restored(snapshot, name, class, image);
    create_claim(call, target.namespace, &claim).await
}

/// Gives up the growth of a volume: the claim asks again for what it has.
async fn cancel_expand(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    claim: &Value,
) -> SteveResult {
    let path = format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachines", target.namespace);
    let machines = call.session.get(&path).await?;
    let mut machines = machines["items"].as_array().into_iter().flatten();
    let attached = machines.find(|vm| {
        vm["status"]["created"] == true
            && super::machine_change::claims(vm).contains(&target.name.to_owned())
    });
    if let Some(vm) = attached {
        let name = vm["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!(
            "can not operate the volume {} which is currently attached to VM {}/{name}",
            target.name, target.namespace
        );
        return Err(impossible(message));
    }
    let patch = object::cancelled_expansion(claim).ok_or_else(|| {
        impossible(format!("volume {}/{} is not being expanded", target.namespace, target.name))
    })?;
    call.session.merge(target.path, &patch).await?;
    Ok(done())
}
