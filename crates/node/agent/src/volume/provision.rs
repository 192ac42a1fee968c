//! Making, growing and removing volumes: first the files, then what the API says of them.
//!
//! Each step may be repeated, and each can be the last before a power cut.

use std::io;

use base::Chain;
use client::Fault;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tracing::info;

use super::clone::CloneError;
use super::controller::VolumeContext;
use super::disk::{Disks, ROOM};
use super::fill::FillError;
use super::gauge::Gauge;
use super::object::{Claim, FINALIZER, HOSTNAME, PROVISIONED_BY, PROVISIONER, VolumePlace, place};
use super::plan::DirectoryMark;
use super::source::VolumeOrigin;
use crate::api::{MANAGER, is_conflict, merge, present};
use crate::event::EventNote;

/// Why a volume is not as it should be; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProvisionError {
    #[error("not enough space for the volume: {free} bytes free, at least {need} needed")]
    NoRoom { free: u64, need: u64 },
    #[error(
        "cannot make a volume from {what}: only a PersistentVolumeClaim of the same namespace can be copied"
    )]
    Origin { what: String },
    #[error(transparent)]
    Clone(#[from] CloneError),
    #[error("cannot {doing} the files of volume {volume}")]
    Files { doing: &'static str, volume: String, source: io::Error },
    #[error("cannot {doing}")]
    Request { doing: &'static str, source: Fault },
    #[error(transparent)]
    Fill(#[from] FillError),
}

impl ProvisionError {
    /// Whether nothing is wrong and only something else has to happen first.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Clone(failure) if failure.is_waiting())
    }
}

trait ProvisionContext<T> {
    fn to(self, doing: &'static str) -> Result<T, ProvisionError>;
}

impl<T> ProvisionContext<T> for kube::Result<T> {
    fn to(self, doing: &'static str) -> Result<T, ProvisionError> {
        self.map_err(|source| ProvisionError::Request { doing, source: Fault(source) })
    }
}

/// Makes files, then the volume, and then takes the mark off the files.
pub(super) async fn provision(
    shared: &VolumeContext,
    claim: &Claim,
) -> Result<Option<PersistentVolume>, ProvisionError> {
    let name = claim.volume_name();
    let room = shared.disks.room().map_err(failed("check", &name))?;
    if room.free < ROOM {
        return Err(ProvisionError::NoRoom { free: room.free, need: ROOM });
    }
    files(shared, &name, "make", |disks, name| disks.begin(name, DirectoryMark::New)).await?;
    let size = claim.size;
    match &claim.origin {
        None => files(shared, &name, "make", move |disks, name| disks.make(name, size)).await?,
        Some(VolumeOrigin::Unsupported(what)) => {
            return Err(ProvisionError::Origin { what: what.clone() });
        }
        Some(VolumeOrigin::Claim(from)) => {
            files(shared, &name, "sweep", |disks, name| disks.sweep(name)).await?;
            let copy = shared.clone_claim(&claim.namespace, from, &name, size);
            let copied = copy.run(&Gauge::default()).await?;
            files(shared, &name, "publish", move |disks, name| {
                disks.publish(name, &copied.0, size)
            })
            .await?;
        }
    }
    let classes = Api::<StorageClass>::all(shared.client.clone());
    let class = present(classes.get(&claim.class).await).to("read the storage class")?;
    let reclaim = class.and_then(|class| class.reclaim_policy).unwrap_or_else(|| "Delete".into());
    let volume = volume_object(shared, claim, &reclaim);
    let volume = serde_json::from_value(volume).expect("a volume of ours is a volume");
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let made = match volumes.create(&PostParams::default(), &volume).await {
        // Made before, and the answer was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            present(volumes.get(&name).await).to("read the volume")?
        }
        made => Some(made.to("create the volume")?),
    };
    settle(shared, &name).await?;
    info!(volume = name, claim = claim.name, namespace = claim.namespace, size, "volume created");
    let text = format!("Successfully provisioned volume {name}");
    shared
        .reporter
        .report(&claim.reference(), EventNote::normal("ProvisioningSucceeded", text))
        .await;
    Ok(made)
}

fn volume_object(shared: &VolumeContext, claim: &Claim, reclaim: &str) -> Value {
    let name = claim.volume_name();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": claim.request},
            "accessModes": claim.access_modes,
            "volumeMode": claim.volume_mode,
            "storageClassName": claim.class,
            "persistentVolumeReclaimPolicy": reclaim,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace, "name": claim.name, "uid": claim.uid,
            },
            "local": {"path": shared.disks.dir(&name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": HOSTNAME, "operator": "In", "values": [shared.node]},
            ]}]}},
        },
    })
}

pub(super) async fn settle(shared: &VolumeContext, volume: &str) -> Result<(), ProvisionError> {
    files(shared, volume, "settle", |disks, name| disks.settle(name)).await
}

/// Makes disk, volume and claim as large as the claim asks.
pub(super) async fn grow(
    shared: &VolumeContext,
    volume: &str,
    claim: &Claim,
    size: u64,
) -> Result<PersistentVolumeClaim, ProvisionError> {
    files(shared, volume, "grow", move |disks, name| disks.make(name, size)).await?;
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let patch = json!({"spec": {"capacity": {"storage": claim.request}}});
    merge(&volumes, volume, &patch).await.to("write the volume's size")?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(shared.client.clone(), &claim.namespace);
    let patch = json!({
        "metadata": {"uid": claim.uid},
        "status": {"capacity": {"storage": claim.request}},
    });
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let written = claims.patch_status(&claim.name, &params, &Patch::Merge(&patch)).await;
    let written = written.to("write the claim's size")?;
    info!(volume, size, "volume grown");
    shared.notifier.notify();
    let text = "Resize volume succeeded";
    shared
        .reporter
        .report(&claim.reference(), EventNote::normal("VolumeResizeSuccessful", text))
        .await;
    Ok(written)
}

/// Files first: a volume that is still there says that something may be left.
pub(super) async fn remove(shared: &VolumeContext, volume: &str) -> Result<(), ProvisionError> {
    files(shared, volume, "remove", |disks, name| disks.remove(name)).await?;
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    present(volumes.delete(volume, &DeleteParams::default()).await).to("delete the volume")?;
    release(shared, volume).await?;
    info!(volume, "volume removed");
    Ok(())
}

/// Takes our finalizer off.
pub(super) async fn release(shared: &VolumeContext, volume: &str) -> Result<(), ProvisionError> {
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    loop {
        let found = present(volumes.get(volume).await).to("read the volume")?;
        let Some(found) = found else { return Ok(()) };
        let finalizers = found.metadata.finalizers.unwrap_or_default();
        let left: Vec<&String> = finalizers.iter().filter(|each| *each != FINALIZER).collect();
        if left.len() == finalizers.len() {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "resourceVersion": found.metadata.resource_version, "finalizers": left,
        }});
        match merge(&volumes, volume, &patch).await {
            // Others take theirs off at the same time.
            Err(failure) if is_conflict(&failure) => {}
            written => return present(written).to("release the volume").map(|_| ()),
        }
    }
}

/// Removes a directory that never was a volume's. The watch may be late, so the server is asked.
pub(super) async fn discard(shared: &VolumeContext, volume: &str) -> Result<(), ProvisionError> {
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let found = present(volumes.get(volume).await).to("read the volume")?;
    let is_kept = match shared.disks.inspect(volume).mark {
        Some(DirectoryMark::New) | None => found.is_some(),
        Some(DirectoryMark::Copy) => {
            let place = found.and_then(|found| place(&found, &shared.node));
            matches!(place, Some(VolumePlace::Here | VolumePlace::Arriving))
        }
    };
    if is_kept {
        return Ok(());
    }
    info!(volume, "removing incomplete volume");
    files(shared, volume, "remove", |disks, name| disks.remove(name)).await
}

/// Removes the files of a volume that has moved to another node: only when the server says so now.
pub(super) async fn leave(shared: &VolumeContext, volume: &str) -> Result<(), ProvisionError> {
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let found = present(volumes.get(volume).await).to("read the volume")?;
    let place = found.and_then(|found| place(&found, &shared.node));
    if place != Some(VolumePlace::Left) {
        return Ok(());
    }
    info!(volume, "volume is on another node: removing its old files");
    files(shared, volume, "remove", |disks, name| disks.remove(name)).await
}

/// Reports to a claim why it has no volume.
pub(super) async fn complain(shared: &VolumeContext, claim: &Claim, failure: &ProvisionError) {
    let text = format!(
        "failed to provision volume with StorageClass {:?}: {}",
        claim.class,
        Chain(failure)
    );
    shared
        .reporter
        .report(&claim.reference(), EventNote::warning("ProvisioningFailed", text))
        .await;
}

/// Reports to a claim why its volume does not grow.
pub(super) async fn report_growth_failure(
    shared: &VolumeContext,
    volume: &str,
    claim: &Claim,
    failure: &ProvisionError,
) {
    let text = format!("resize volume {volume} failed: {}", Chain(failure));
    shared
        .reporter
        .report(&claim.reference(), EventNote::warning("VolumeResizeFailed", text))
        .await;
}

/// Work on files, on a thread that may block.
async fn files(
    shared: &VolumeContext,
    volume: &str,
    doing: &'static str,
    work: impl FnOnce(&Disks, &str) -> io::Result<()> + Send + 'static,
) -> Result<(), ProvisionError> {
    let (disks, name) = (shared.disks.clone(), volume.to_owned());
    let done = tokio::task::spawn_blocking(move || work(&disks, &name)).await;
    done.map_err(io::Error::other).flatten().map_err(failed(doing, volume))
}

fn failed(doing: &'static str, volume: &str) -> impl FnOnce(io::Error) -> ProvisionError {
    let volume = volume.to_owned();
    move |source| ProvisionError::Files { doing, volume, source }
}
