//! Claims: from the PVC over its PV to a path on this node.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use client::Fault;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use qemu::machine::{DiskSource, FileImage, ImageFormat};
use serde_json::{Value, json};
use virt::v1::{EphemeralVolumeSource, Volume};

use super::{ResolveError, Resolved, Resolver, file, plain_file};
use crate::api::{are_bound, present};
use crate::vmi::translate::VolumeBacking;
use crate::volume::ReceivedCopy;

/// The image in a claim that is a file system.
const IMAGE: &str = "disk.img";

impl Resolver<'_> {
    pub(super) async fn claim(
        &self,
        volume: &Volume,
        name: &str,
        read_only: bool,
    ) -> Result<Resolved, ResolveError> {
        let (claim, bound) = self.bound(name).await?;
        let disk = self.vmi.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
        let shared = disk.is_some_and(|disk| disk.shareable == Some(true));
        let mut resolved = match replicated(&bound) {
            Some(handle) => self.replicated(volume, handle, shared).await?,
            None => self.image_file(volume, self.path(name, &bound)?, shared)?,
        };
        resolved.backing.read_only |= read_only;
        resolved.claim = Some(info(name, &claim));
        Ok(resolved)
    }

    /// The file or device of this host behind a claim.
    fn path(&self, claim: &str, bound: &PersistentVolume) -> Result<PathBuf, ResolveError> {
        match self.context.volumes.disk_of(bound, &self.vmi.uid) {
            Some(Ok(path)) => existing(claim, path),
            Some(Err(why)) => {
                let why = why.to_string();
                Err(ResolveError::Pending { kind: "PVC", name: claim.into(), why })
            }
            None => path(claim, bound),
        }
    }

    /// The file of a local volume whose data comes from another node with the guest.
    pub(crate) async fn received(
        &self,
        volume: &Volume,
        copy: &ReceivedCopy,
    ) -> Result<Resolved, ResolveError> {
        let source = volume.persistent_volume_claim.as_ref().map(|own| own.claim_name.as_str());
        let source = source.or(volume.data_volume.as_ref().map(|own| own.name.as_str()));
        let other = |problem: String| ResolveError::Volume { volume: volume.name.clone(), problem };
        let name = source.ok_or_else(|| other("it has no claim".into()))?;
        let (claim, bound) = self.bound(name).await?;
        if bound.metadata.name.as_deref() != Some(&copy.volume) {
            return Err(other(format!("claim {name} is not bound to volume {}", copy.volume)));
        }
        let path = self.context.volumes.receive(copy).await;
        let path = path.map_err(|failure| ResolveError::Receive(Box::new(failure)))?;
        let mut resolved = self.image_file(volume, path, false)?;
        resolved.claim = Some(info(name, &claim));
        Ok(resolved)
    }

    /// The claim and the volume that it is bound to.
    async fn bound(
        &self,
        name: &str,
    ) -> Result<(PersistentVolumeClaim, PersistentVolume), ResolveError> {
        let (client, namespace) = (&self.context.client, &self.vmi.namespace);
        let unread = |kind| {
            let name = name.to_owned();
            move |source| ResolveError::Request { kind, name, source: Fault(source) }
        };
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
        let claim = present(claims.get(name).await).map_err(unread("PVC"))?;
        let Some(claim) = claim else {
            return Err(ResolveError::Missing { kind: "PVC", name: name.into() });
        };
        let pending = |why: String| ResolveError::Pending { kind: "PVC", name: name.into(), why };
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let (Some("Bound"), Some(bound)) = (phase, bound) else {
            return Err(pending("it is not bound to a volume yet".into()));
        };
        if let Some(why) = crate::volume::unfilled(&claim) {
            return Err(pending(why));
        }
        if self.context.volumes.is_being_copied(&bound) {
            return Err(pending("it is being cloned".into()));
        }
        let volumes = Api::<PersistentVolume>::all(client.clone());
        let volume = present(volumes.get(&bound).await).map_err(unread("PV"))?;
        match volume {
            Some(volume) if are_bound(&claim, &volume) => Ok((claim, volume)),
            Some(_) => Err(pending(format!("volume {bound} is bound to another claim"))),
            None => Err(ResolveError::Missing { kind: "PV", name: bound }),
        }
    }

    /// A disk image or a device of the host, made accessible to the machine's user.
    pub(super) fn image_file(
        &self,
        volume: &Volume,
        path: PathBuf,
        shared: bool,
    ) -> Result<Resolved, ResolveError> {
        let failed = |doing| {
            let path = path.clone();
            move |source| ResolveError::File { doing, path, source }
        };
        let kind = std::fs::metadata(&path).map_err(failed("read"))?.file_type();
        let mut group = None;
        if self.identity.is_some() {
            if shared {
                let key = format!("{}/{}", self.vmi.namespace, path.display());
                group = Some(file::share(&path, &key).map_err(failed("share"))?);
            } else {
                file::hand_over(&path, self.identity, 0o600).map_err(failed("hand over"))?;
            }
        }
        if kind.is_block_device() {
            let source = DiskSource::BlockDevice { path };
            let backing = VolumeBacking { source, read_only: false, direct: true, allocated: true };
            return Ok(Resolved { backing, size: None, claim: None, group });
        }
        if !kind.is_file() {
            let problem = format!("{} is neither a file nor a block device", path.display());
            return Err(ResolveError::Volume { volume: volume.name.clone(), problem });
        }
        Ok(Resolved { group, ..plain_file(path, None) })
    }

    /// A throw-away overlay over a claim that is only read.
    pub(super) async fn ephemeral(
        &self,
        volume: &Volume,
        source: &EphemeralVolumeSource,
    ) -> Result<Resolved, ResolveError> {
        let reference = source.persistent_volume_claim.as_ref();
        let name = reference.and_then(|reference| reference.0["claimName"].as_str());
        let Some(name) = name else {
            let problem = "an ephemeral volume needs persistentVolumeClaim.claimName".into();
            return Err(ResolveError::Volume { volume: volume.name.clone(), problem });
        };
        let (claim, bound) = self.bound(name).await?;
        if let Some(handle) = replicated(&bound) {
            let mut resolved = self.overlay_of_replicated(volume, handle).await?;
            resolved.claim = Some(info(name, &claim));
            return Ok(resolved);
        }
        let base = self.path(name, &bound)?;
        let key = format!("{}/{}", self.vmi.namespace, base.display());
        let failed = |source| ResolveError::File { doing: "share", path: base.clone(), source };
        let group = match self.identity {
            Some(_) => Some(file::share(&base, &key).map_err(failed)?),
            None => None,
        };
        let mut resolved = self.overlay(volume, FileImage::raw(base)).await?;
        resolved.claim = Some(info(name, &claim));
        resolved.group = group;
        Ok(resolved)
    }

    /// The same over a replicated volume, which other machines may read at the same time.
    async fn overlay_of_replicated(
        &self,
        volume: &Volume,
        handle: &str,
    ) -> Result<Resolved, ResolveError> {
        let base = self.replicated(volume, handle, true).await?;
        let DiskSource::Nbd { socket, export, reconnect_delay } = base.backing.source else {
            let problem = format!("volume {handle} is not served as it should be");
            return Err(ResolveError::Volume { volume: volume.name.clone(), problem });
        };
        let path = self.empty_overlay(volume, base.size.unwrap_or_default()).await?;
        let direct = file::facts(&path).direct;
        let source = DiskSource::Overlay { path, socket, export, reconnect_delay };
        let backing = VolumeBacking { source, read_only: false, direct, allocated: false };
        Ok(Resolved { backing, ..base })
    }

    /// A new qcow2 image in the machine's folder; the data of the last run is gone.
    async fn empty_overlay(&self, volume: &Volume, size: u64) -> Result<PathBuf, ResolveError> {
        let path = self.dir.vm().join(format!("overlay-{}.qcow2", volume.name));
        file::overlay(self.dir.path(), &path, size)
            .await
            .map_err(|source| ResolveError::Image { volume: volume.name.clone(), source })?;
        file::hand_over(&path, self.identity, 0o600).map_err(|source| ResolveError::File {
            doing: "hand over",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// An empty image in the machine's folder, for data that comes from elsewhere.
    pub(crate) async fn blank(&self, volume: &Volume, size: u64) -> Result<Resolved, ResolveError> {
        let path = self.empty_overlay(volume, size).await?;
        let direct = file::facts(&path).direct;
        let image = FileImage { path, format: ImageFormat::Qcow2, backing: None };
        let source = DiskSource::File(image);
        let backing = VolumeBacking { source, read_only: false, direct, allocated: false };
        Ok(Resolved { backing, size: Some(size), claim: None, group: None })
    }

    /// A qcow2 image in the machine's folder, over `base`.
    pub(super) async fn overlay(
        &self,
        volume: &Volume,
        base: FileImage,
    ) -> Result<Resolved, ResolveError> {
        let size = file::facts(&base.path).size;
        let path = self.empty_overlay(volume, size).await?;
        let facts = file::facts(&path);
        let image = FileImage { path, format: ImageFormat::Qcow2, backing: Some(Box::new(base)) };
        let backing = VolumeBacking {
            source: DiskSource::File(image),
            read_only: false,
            direct: facts.direct,
            allocated: false,
        };
        Ok(Resolved { backing, size: Some(size), claim: None, group: None })
    }

    /// A data volume is ready when it says so, or when it was cleaned up after its import.
    pub(super) async fn wait_for_data_volume(&self, name: &str) -> Result<(), ResolveError> {
        let gvk = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume");
        let kind = ApiResource::from_gvk_with_plural(&gvk, "datavolumes");
        let client = self.context.client.clone();
        let volumes = Api::<DynamicObject>::namespaced_with(client, &self.vmi.namespace, &kind);
        let found = present(volumes.get(name).await).map_err(|source| ResolveError::Request {
            kind: "DataVolume",
            name: name.into(),
            source: Fault(source),
        })?;
        let phase = found.as_ref().and_then(|found| found.data["status"]["phase"].as_str());
        match (&found, phase) {
            (None, _) | (_, Some("Succeeded")) => Ok(()),
            (Some(_), phase) => Err(ResolveError::Pending {
                kind: "DataVolume",
                name: name.into(),
                why: format!("its phase is {}", phase.unwrap_or("unknown")),
            }),
        }
    }
}

/// The same, by the path in the volume.
fn path(claim: &str, volume: &PersistentVolume) -> Result<PathBuf, ResolveError> {
    let pending = |why: String| ResolveError::Pending { kind: "PVC", name: claim.into(), why };
    let spec = volume.spec.as_ref();
    let local = spec.and_then(|spec| spec.local.as_ref()).map(|local| &local.path);
    let host = spec.and_then(|spec| spec.host_path.as_ref()).map(|host| &host.path);
    let Some(path) = local.or(host) else {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Err(pending(format!("volume {name} is not of a kind that this node can use")));
    };
    let mut path = PathBuf::from(path);
    if path.is_dir() {
        path.push(IMAGE);
    }
    existing(claim, path)
}

fn existing(claim: &str, path: PathBuf) -> Result<PathBuf, ResolveError> {
    if path.exists() {
        return Ok(path);
    }
    let why = format!("{} does not exist on this node", path.display());
    Err(ResolveError::Pending { kind: "PVC", name: claim.into(), why })
}

/// The name of the replicated volume behind a claim, if it is one.
fn replicated(volume: &PersistentVolume) -> Option<&str> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    (csi.driver == crate::storage::DRIVER).then_some(csi.volume_handle.as_str())
}

/// The entry about a claim in the status of a VMI.
fn info(name: &str, claim: &PersistentVolumeClaim) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let status = claim.status.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests);
    json!({
        "claimName": name,
        "accessModes": spec.access_modes.unwrap_or_default(),
        "volumeMode": spec.volume_mode.as_deref().unwrap_or("Filesystem"),
        "capacity": status.capacity.unwrap_or_default(),
        "requests": requests.unwrap_or_default(),
        "filesystemOverhead": "0",
    })
}
