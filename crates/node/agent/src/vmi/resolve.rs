//! Finding the bytes behind a VMI's volumes: claims, files, and what must be written onto
//! seed disks.
//!
//! A missing part is no failure: the machine waits and reports it, and this is tried again.

mod claim;
mod container;
mod data;
mod file;
mod host_disk;
mod replicated;
mod seed_token;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use client::Fault;
use futures_util::FutureExt as _;
use qemu::RunDir;
use qemu::machine::{DiskSource, FileImage, ImageFormat};
use qemu::process::ProcessUser;
use serde_json::Value;
use virt::reason::NotSynchronized;
use virt::v1::{MemoryDumpVolumeSource, Volume};

pub(crate) use replicated::{held_volumes, leave_others, release};

use super::awaited::{AwaitedKind, Object};
use super::seed;
use super::status::MachineProblem;
use super::translate::VolumeBacking;
use crate::context::Context;
use crate::event::EventNote;
use crate::machine::Vmi;
use crate::storage::{LinkError, TicketError};
use crate::volume::{MissingDisk, ReceiveError};

/// The reason of a machine that waits for a volume to be attached.
pub(crate) const ATTACHING: &str = NotSynchronized::Attaching.as_str();

/// A volume that can be attached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) backing: VolumeBacking,
    pub(crate) size: Option<u64>,
    /// As in `persistentVolumeClaimInfo`.
    pub(crate) claim: Option<Value>,
    /// A group that gives access to a disk that several machines share.
    pub(crate) group: Option<u32>,
}

/// Why a volume cannot be attached now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("{kind} {name} does not exist, waiting for it to appear")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} is not ready: {why}")]
    Pending { kind: &'static str, name: String, why: String },
    #[error("{kind} {name} has no key {key}")]
    Key { kind: &'static str, name: String, key: &'static str },
    #[error("volume {volume}: {problem}")]
    Volume { volume: String, problem: String },
    #[error("volume {name} is being attached to this node")]
    Attaching { name: String },
    #[error(transparent)]
    Ticket(Box<TicketError>),
    #[error(transparent)]
    Receive(Box<ReceiveError>),
    #[error("volume {volume} cannot be used")]
    Storage { volume: String, source: LinkError },
    #[error("cannot read {kind} {name}")]
    Request { kind: &'static str, name: String, source: Fault },
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("volume {volume}")]
    ContainerDisk { volume: String, source: MissingDisk },
    #[error("volume {volume}: its image cannot be used")]
    Image { volume: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl ResolveError {
    /// The word that conditions say it with.
    pub(crate) fn reason(&self) -> NotSynchronized {
        match self {
            Self::Missing { kind: "PVC", .. } => NotSynchronized::PvcNotFound,
            Self::Missing { .. } | Self::Key { .. } => NotSynchronized::Mount,
            Self::Pending { kind: "image", .. } => NotSynchronized::ImagePull,
            Self::Pending { .. } => NotSynchronized::VolumeNotReady,
            Self::Attaching { .. } => NotSynchronized::Attaching,
            Self::ContainerDisk { source, .. } => source.reason(),
            Self::Image { .. } => NotSynchronized::InvalidImage,
            Self::Ticket(_) | Self::Storage { .. } => NotSynchronized::Attach,
            Self::Receive(_) | Self::Volume { .. } | Self::Request { .. } | Self::File { .. } => {
                NotSynchronized::Mount
            }
        }
    }

    /// The object whose change may put it right.
    pub(crate) fn awaited(&self, namespace: &str) -> Option<Object> {
        let (Self::Missing { kind, name }
        | Self::Pending { kind, name, .. }
        | Self::Key { kind, name, .. }) = self
        else {
            return None;
        };
        let kind = AwaitedKind::named(kind)?;
        Some(Object { kind, namespace: namespace.to_owned(), name: name.clone() })
    }

    pub(crate) fn trouble(&self) -> MachineProblem {
        MachineProblem::new(self.reason(), base::Chain(self).to_string())
    }
}

/// Why the token on a disk was not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenewError {
    #[error(transparent)]
    Disk(#[from] seed_token::SeedTokenError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("cannot create the disk image")]
    Image(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Resolves volumes for one machine.
pub(crate) struct Resolver<'a> {
    pub(crate) context: &'a Context,
    pub(crate) vmi: &'a Vmi,
    pub(crate) dir: &'a RunDir,
    pub(crate) identity: Option<&'a ProcessUser>,
    /// The ticket of a machine that moves here and runs elsewhere.
    pub(crate) migration: Option<&'a str>,
}

impl Resolver<'_> {
    /// All volumes that the machine needs to start; hot-plugged ones may come later.
    pub(crate) async fn all(&self) -> Result<BTreeMap<String, Resolved>, ResolveError> {
        let mut resolved = BTreeMap::new();
        let disks = self.vmi.spec.volumes.iter().filter(|own| own.memory_dump.is_none());
        for volume in disks {
            match self.volume(volume).boxed().await {
                Ok(Some(found)) => {
                    resolved.insert(volume.name.clone(), found);
                }
                Ok(None) => {}
                Err(failure) if is_hotpluggable(volume) => {
                    tracing::debug!(volume = volume.name, error = %base::Chain(&failure),
                                    "volume comes later");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(resolved)
    }

    /// Where the bytes of one volume are; nothing for what is no disk.
    pub(crate) async fn volume(&self, volume: &Volume) -> Result<Option<Resolved>, ResolveError> {
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only == Some(true);
            return self.claim(volume, &source.claim_name, read_only).boxed().await.map(Some);
        }
        if let Some(source) = &volume.data_volume {
            self.wait_for_data_volume(&source.name).boxed().await?;
            return self.claim(volume, &source.name, false).boxed().await.map(Some);
        }
        if let Some(source) = &volume.ephemeral {
            return self.ephemeral(volume, source).boxed().await.map(Some);
        }
        if let Some(source) = &volume.host_disk {
            return self.host_disk(volume, source).map(Some);
        }
        if let Some(source) = &volume.empty_disk {
            let size = units(&source.capacity, volume)?;
            let path = self.dir.vm().join(format!("empty-{}.img", volume.name));
            return self.sparse(&path, size).map(Some);
        }
        if let Some(source) = &volume.container_disk {
            return self.container(volume, source).boxed().await.map(Some);
        }
        match self.seed(volume).boxed().await? {
            Some(seed) => {
                self.complain(volume, &seed).boxed().await;
                self.seed_disk(volume, &seed).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Where the memory of the guest is dumped to.
    pub(crate) async fn memory_dump(
        &self,
        volume: &Volume,
        source: &MemoryDumpVolumeSource,
    ) -> Result<Resolved, ResolveError> {
        self.claim(volume, &source.claim_name, false).boxed().await
    }

    /// The content of a disk that carries data, if the volume is one.
    async fn seed(&self, volume: &Volume) -> Result<Option<seed::Seed>, ResolveError> {
        let vmi = self.vmi;
        if let Some(source) = &volume.cloud_init_no_cloud {
            let data = self.cloud_init(source.into(), data::KeyDelivery::NoCloud).boxed().await?;
            return Ok(Some(seed::no_cloud(vmi, &data)));
        }
        if let Some(source) = &volume.cloud_init_config_drive {
            let data =
                self.cloud_init(source.into(), data::KeyDelivery::ConfigDrive).boxed().await?;
            return Ok(Some(seed::config_drive(vmi, &data, &data::tagged(vmi))));
        }
        if let Some(source) = &volume.sysprep {
            return self
                .sysprep(volume, source)
                .boxed()
                .await
                .map(|data| Some(seed::sysprep(data)));
        }
        if let Some(source) = &volume.config_map {
            let name = source.name.as_deref().unwrap_or_default();
            let data = self.config_map(name, source.optional == Some(true)).await?;
            return Ok(Some(seed::keys(source.volume_label.as_deref(), data)));
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.secret(name, source.optional == Some(true)).await?;
            return Ok(Some(seed::keys(source.volume_label.as_deref(), data)));
        }
        if let Some(source) = &volume.downward_api {
            let data = data::downward(vmi, source);
            return Ok(Some(seed::keys(source.volume_label.as_deref(), data)));
        }
        if let Some(source) = &volume.service_account {
            let name = source.service_account_name.as_deref().unwrap_or("default");
            let data = self.service_account(name).await?;
            return Ok(Some(seed::keys(None, data)));
        }
        Ok(None)
    }

    /// Reports what the guest will not understand: with the first attempt to start, and not with
    /// every further one.
    async fn complain(&self, volume: &Volume, seed: &seed::Seed) {
        let complaint = seed.complaint.as_ref().filter(|_| !self.seed_path(volume).exists());
        let Some(complaint) = complaint else { return };
        let message = format!(
            "The user data of volume {} will be ignored by the guest: {complaint}",
            volume.name
        );
        tracing::warn!(name = self.vmi.name, reason = complaint, "user data is wrong");
        let note = EventNote::warning("InvalidUserData", message);
        self.context.reporter.report(&self.vmi.reference(), note).await;
    }

    /// The replicated volumes that the machine holds.
    pub(crate) fn held_volumes(&self) -> Vec<String> {
        held_volumes(self.dir)
    }

    /// Replaces the token on the disk of a running machine if it is due; says in how many seconds
    /// the next one is.
    pub(crate) async fn renew_token(&self, volume: &Volume) -> Result<Option<u64>, RenewError> {
        if volume.service_account.is_none() {
            return Ok(None);
        }
        let path = self.seed_path(volume);
        let Some(times) = seed_token::times(&seed_token::read(&path)?) else { return Ok(None) };
        match times.due_in(base::clock::now()) {
            0 => {}
            seconds => return Ok(Some(seconds)),
        }
        let Some(seed) = self.seed(volume).boxed().await? else { return Ok(None) };
        let image = file::iso(&seed).map_err(RenewError::Image)?;
        let token = seed.files.iter().find(|(name, _)| name == "token");
        let token = token.map_or(&[][..], |(_, token)| token);
        seed_token::replace(&path, token, &image)?;
        let times = seed_token::times(token);
        Ok(times.map(|times| times.due_in(base::clock::now()).max(1)))
    }

    fn seed_path(&self, volume: &Volume) -> PathBuf {
        self.dir.path().join(format!("seed-{}.iso", volume.name))
    }

    fn seed_disk(&self, volume: &Volume, seed: &seed::Seed) -> Result<Resolved, ResolveError> {
        let image = file::iso(seed)
            .map_err(|source| ResolveError::Image { volume: volume.name.clone(), source })?;
        self.copied_seed(volume, &image)
    }

    /// A disk that carries data, as the machine had it elsewhere.
    pub(crate) fn copied_seed(
        &self,
        volume: &Volume,
        image: &[u8],
    ) -> Result<Resolved, ResolveError> {
        let path = self.seed_path(volume);
        let size = image.len() as u64;
        file::write(&path, image)
            .and_then(|()| file::hand_over(&path, self.identity, 0o600))
            .map_err(|source| ResolveError::File { doing: "write", path: path.clone(), source })?;
        Ok(Resolved {
            backing: VolumeBacking {
                source: DiskSource::File(FileImage::raw(path)),
                // It is this run's own, and some buses have no disks that cannot be written.
                read_only: false,
                direct: false,
                allocated: false,
            },
            size: Some(size),
            claim: None,
            group: None,
        })
    }

    /// A file that belongs to the run and is made when it is not there.
    fn sparse(&self, path: &std::path::Path, size: u64) -> Result<Resolved, ResolveError> {
        file::sparse(path, size)
            .and_then(|()| file::hand_over(path, self.identity, 0o600))
            .map_err(|source| ResolveError::File { doing: "make", path: path.into(), source })?;
        Ok(plain_file(path.into(), Some(size)))
    }
}

/// A raw file of which nothing else is known.
fn plain_file(path: PathBuf, size: Option<u64>) -> Resolved {
    let facts = file::facts(&path);
    Resolved {
        backing: VolumeBacking {
            source: DiskSource::File(FileImage { path, format: ImageFormat::Raw, backing: None }),
            read_only: false,
            direct: facts.direct,
            allocated: facts.allocated,
        },
        size: size.or(Some(facts.size)),
        claim: None,
        group: None,
    }
}

fn units(quantity: &virt::api::atom::Quantity, volume: &Volume) -> Result<u64, ResolveError> {
    quantity
        .units()
        .and_then(|units| u64::try_from(units).ok())
        .filter(|size| *size > 0)
        .ok_or_else(|| ResolveError::Volume {
            volume: volume.name.clone(),
            problem: format!("{quantity} is not a size"),
        })
}

/// Whether the volume may come and go while the guest runs.
pub(crate) fn is_hotpluggable(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref();
    let data = volume.data_volume.as_ref();
    claim.is_some_and(|claim| claim.hotpluggable == Some(true))
        || data.is_some_and(|data| data.hotpluggable == Some(true))
}
