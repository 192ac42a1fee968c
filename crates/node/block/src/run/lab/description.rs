//! Which volume a directory holds.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::LabError;
use crate::ids::{ReplicaId, VolumeId};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Description {
    pub(super) volume: VolumeId,
    /// As it was made; the replicas know how large it is now.
    pub(super) size: u64,
    pub(super) replicas: Vec<ReplicaId>,
    #[serde(default)]
    pub(super) encrypted: bool,
}

impl Description {
    pub(super) fn load_or_create(
        dir: &Path,
        size: Option<u64>,
        replicas: Option<usize>,
        encrypted: bool,
    ) -> Result<Self, LabError> {
        let path = dir.join("volume.json");
        let io = |source| LabError::Io { path: path.clone(), source };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let size = size.ok_or(LabError::NoSize)?;
                let replicas = (0..replicas.unwrap_or(3)).map(|_| ReplicaId::random()).collect();
                let description = Self { volume: VolumeId::random(), size, replicas, encrypted };
                description.save(dir)?;
                return Ok(description);
            }
            Err(error) => return Err(io(error)),
        };
        let found = Self::parse(&path, &bytes)?;
        let dir = dir.to_owned();
        match (size, replicas) {
            (Some(requested), _) if requested != found.size => {
                Err(LabError::OtherSize { dir, requested, found: found.size })
            }
            (_, Some(requested)) if requested != found.replicas.len() => {
                Err(LabError::OtherReplicas { dir, requested, found: found.replicas.len() })
            }
            _ if found.encrypted && !encrypted => Err(LabError::NoPassphrase { dir }),
            _ if encrypted && !found.encrypted => Err(LabError::NotEncrypted { dir }),
            _ => Ok(found),
        }
    }

    /// The volume that is there, whatever it needs to be served.
    pub(super) fn load(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("volume.json");
        let bytes = std::fs::read(&path);
        let bytes = bytes.map_err(|source| LabError::Io { path: path.clone(), source })?;
        Self::parse(&path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, LabError> {
        serde_json::from_slice(bytes)
            .map_err(|source| LabError::Description { path: path.to_owned(), source })
    }

    /// Replaces the file in one step.
    pub(super) fn save(&self, dir: &Path) -> Result<(), LabError> {
        let path = dir.join("volume.json");
        let aside = dir.join("volume.new");
        let store = || -> std::io::Result<()> {
            let mut file = File::create(&aside)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            std::fs::rename(&aside, &path)?;
            File::open(dir)?.sync_all()
        };
        store().map_err(|source| LabError::Io { path: path.clone(), source })
    }
}
