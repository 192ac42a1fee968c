//! A disk that is a copy of another claim's.
//!
//! The source must not change while it is read: it is marked as read first, and then
//! checked whether a machine uses it. A machine that comes later sees the mark and waits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Fault;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use virt::reason::FillFailure;

use super::controller::VolumeContext;
use super::disk::duplicate;
use super::gauge::Gauge;
use super::image::TemporaryFile;
use super::object::{self, VolumePlace};
use super::replicated::{self, ReplicatedError};
use super::source;
use crate::api::{are_bound, present, vmis_in};

/// Why a claim is not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloneError {
    #[error("source PVC {namespace}/{name} does not exist, waiting for it to appear")]
    Missing { namespace: String, name: String },
    #[error("source PVC {namespace}/{name} is not ready: {why}")]
    Pending { namespace: String, name: String, why: String },
    #[error("source PVC {namespace}/{name} is in use by {user}")]
    InUse { namespace: String, name: String, user: String },
    #[error(
        "target resources requests storage size is smaller than the source: {to} bytes are less \
         than the {from} of {namespace}/{name}"
    )]
    Smaller { namespace: String, name: String, from: u64, to: u64 },
    #[error("cannot read {what}")]
    Request { what: &'static str, source: Fault },
    #[error("cannot copy the disk")]
    Copy(#[source] io::Error),
    #[error(transparent)]
    Replicated(#[from] ReplicatedError),
}

impl CloneError {
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Smaller { .. })
    }

    /// Whether the source is only not ready yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Pending { .. } | Self::InUse { .. })
    }

    pub(super) fn reason(&self) -> FillFailure {
        match self {
            Self::InUse { .. } => FillFailure::SourceInUse,
            Self::Smaller { .. } => FillFailure::Invalid,
            _ => FillFailure::Error,
        }
    }
}

/// A copy that is to be made.
pub(super) struct Copy<'a> {
    pub(super) shared: &'a VolumeContext,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The volume that gets it, and its size.
    pub(super) volume: &'a str,
    pub(super) size: u64,
}

impl Copy<'_> {
    /// Makes a complete copy beside the disk of the target.
    pub(super) async fn run(&self, gauge: &Gauge) -> Result<TemporaryFile, CloneError> {
        let from = self.find().await?;
        let _mark = self.shared.readers.mark(&from);
        self.check_unused().await?;
        if let Some(handle) = self.shared.handles.of(&from) {
            let scratch = TemporaryFile(self.shared.disks.scratch(self.volume));
            let ticket = format!("export-{handle}-{}", self.volume);
            let reading = replicated::read(self.shared, &handle, &ticket, &scratch.0, self.size);
            let length = reading.await?;
            self.check_size(length)?;
            return Ok(scratch);
        }
        let path = self.shared.disks.disk(&from);
        let length = std::fs::metadata(&path).map_err(CloneError::Copy)?.len();
        self.check_size(length)?;
        self.copy(path, gauge).await
    }

    fn check_size(&self, length: u64) -> Result<(), CloneError> {
        if length <= self.size {
            return Ok(());
        }
        let (namespace, name) = (self.namespace.into(), self.name.into());
        Err(CloneError::Smaller { namespace, name, from: length, to: self.size })
    }

    async fn copy(&self, from: PathBuf, gauge: &Gauge) -> Result<TemporaryFile, CloneError> {
        let scratch = TemporaryFile(self.shared.disks.scratch(self.volume));
        let to = scratch.0.clone();
        let stopped = Arc::new(AtomicBool::new(false));
        // Dropping the future stops the copy.
        let guard = Stopper(Arc::clone(&stopped));
        let gauge = gauge.clone();
        let copied = tokio::task::spawn_blocking(move || {
            duplicate(&from, &to, |part| {
                gauge.set(part);
                !stopped.load(Ordering::Relaxed)
            })
        });
        let copied = copied.await.map_err(|failure| CloneError::Copy(io::Error::other(failure)))?;
        drop(guard);
        copied.map_err(CloneError::Copy)?;
        Ok(scratch)
    }

    /// The volume of the source, which must be one of this node.
    async fn find(&self) -> Result<String, CloneError> {
        let (namespace, name) = (self.namespace.to_owned(), self.name.to_owned());
        let claims =
            Api::<PersistentVolumeClaim>::namespaced(self.shared.client.clone(), self.namespace);
        let found = present(claims.get(self.name).await)
            .map_err(|source| CloneError::Request { what: "the source", source: Fault(source) })?;
        let Some(claim) = found else { return Err(CloneError::Missing { namespace, name }) };
        let pending = |why: String| CloneError::Pending { namespace, name, why };
        if let Some(why) = source::unfilled(&claim) {
            return Err(pending(why));
        }
        let Some(volume) = self.bound_volume(&claim).await? else {
            return Err(pending("it is not bound yet".into()));
        };
        let name = volume.metadata.name.clone().unwrap_or_default();
        let is_here = self.shared.disks.inspect(&name).size.is_some()
            && object::place(&volume, &self.shared.node) == Some(VolumePlace::Here);
        if self.shared.handles.of(&name).is_none() && !is_here {
            return Err(pending(format!("its volume {name} is not on this node")));
        }
        if object::moves(&volume).is_some() {
            return Err(pending(format!("its volume {name} may be moving to another node")));
        }
        Ok(name)
    }

    async fn bound_volume(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<PersistentVolume>, CloneError> {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let Some(name) = named.filter(|name| !name.is_empty()) else { return Ok(None) };
        let volumes = Api::<PersistentVolume>::all(self.shared.client.clone());
        let found = present(volumes.get(&name).await).map_err(|source| CloneError::Request {
            what: "the volume of the source",
            source: Fault(source),
        })?;
        Ok(found.filter(|volume| are_bound(claim, volume)))
    }

    /// Machines that may write to the source.
    async fn check_unused(&self) -> Result<(), CloneError> {
        let user = user_of(self.shared, self.namespace, self.name).await?;
        match user {
            None => Ok(()),
            Some(user) => Err(CloneError::InUse {
                namespace: self.namespace.into(),
                name: self.name.into(),
                user: format!("VirtualMachineInstance {user}"),
            }),
        }
    }
}

/// The machine that has the claim, if one does.
pub(super) async fn user_of(
    shared: &VolumeContext,
    namespace: &str,
    claim: &str,
) -> Result<Option<String>, CloneError> {
    let vmis = vmis_in(&shared.client, namespace);
    let vmis = vmis
        .list(&ListParams::default())
        .await
        .map_err(|source| CloneError::Request { what: "machines", source: Fault(source) })?;
    let user = vmis.items.into_iter().find(|vmi| uses(&vmi.data, claim));
    Ok(user.and_then(|vmi| vmi.metadata.name))
}

/// Whether a machine that has a node and has not ended writes to the claim.
fn uses(vmi: &Value, claim: &str) -> bool {
    let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
    if !matches!(phase, "Scheduled" | "Running") {
        return false;
    }
    vmi["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| {
        let own = &volume["persistentVolumeClaim"];
        let writes = own["claimName"] == claim && own["readOnly"] != true;
        let dump = volume["memoryDump"]["claimName"] == claim;
        writes || dump || volume["dataVolume"]["name"] == claim
    })
}

struct Stopper(Arc<AtomicBool>);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_that_writes_keeps_others_from_copying() {
        let vmi = |phase: &str, volume: Value| json!({"status": {"phase": phase}, "spec": {"volumes": [volume]}});
        let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
        let read = json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
        for (vmi, expected) in [
            (vmi("Running", claim.clone()), true),
            (vmi("Scheduled", json!({"dataVolume": {"name": "c"}})), true),
            (vmi("Succeeded", claim.clone()), false),
            (vmi("Pending", claim), false),
            (vmi("Running", read), false),
            (vmi("Running", json!({"persistentVolumeClaim": {"claimName": "d"}})), false),
        ] {
            assert_eq!(uses(&vmi, "c"), expected, "{vmi}");
        }
    }
}
