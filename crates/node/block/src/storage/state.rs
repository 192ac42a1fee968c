//! The replicas and volumes that a storage process is to serve, on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StorageError;
use super::protocol::Attachment;
use crate::grant::ReplicaGrants;
use crate::ids::{ReplicaId, VolumeId};

const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredState {
    version: u32,
    /// The life of the kernel in which volumes were served last: guests that were served in
    /// another one are gone.
    #[serde(default)]
    pub(super) boot: String,
    pub(super) replicas: BTreeMap<ReplicaId, Kept>,
    pub(super) volumes: BTreeMap<VolumeId, Attachment>,
    /// The users that may connect to each volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) grants: BTreeMap<VolumeId, Grant>,
    /// Which nodes may open which replica. Programs that do not know it leave it out.
    #[serde(default)]
    pub(super) replica_grants: ReplicaGrants,
}

/// User and group that may use a socket besides the process's own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<u32>,
}

/// A replica of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) volume: VolumeId,
    /// Where it is, if not in the directory of the process, which may be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dir: Option<PathBuf>,
}

impl StoredState {
    pub(super) fn load(dir: &Path) -> Result<Self, StorageError> {
        let path = dir.join("state.json");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::new()),
            Err(source) => return Err(StorageError::Io { path, source }),
        };
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let fail = |source| StorageError::State { path: path.clone(), source };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(fail)?;
        if version != VERSION {
            return Err(StorageError::Version { path, found: version, known: VERSION });
        }
        serde_json::from_slice(&bytes).map_err(fail)
    }

    fn new() -> Self {
        let (replicas, volumes) = (BTreeMap::new(), BTreeMap::new());
        let (grants, replica_grants) = (BTreeMap::new(), ReplicaGrants::default());
        Self { version: VERSION, boot: String::new(), replicas, volumes, grants, replica_grants }
    }

    /// Replaces the file in one step.
    pub(super) fn save(&self, dir: &Path) -> io::Result<()> {
        let (path, aside) = (dir.join("state.json"), dir.join("state.new"));
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&aside, &path)?;
        File::open(dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_what_is_not_understood_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = StoredState::load(dir.path()).unwrap();
        let kept = Kept { volume: VolumeId::random(), dir: Some(PathBuf::from("/srv/r")) };
        state.replicas.insert(ReplicaId::random(), kept);
        state.replica_grants.check();
        state.save(dir.path()).unwrap();
        let loaded = StoredState::load(dir.path()).unwrap();
        assert_eq!(loaded.replicas, state.replicas);
        assert!(loaded.replica_grants.is_checked());
        // One of a program from before there were grants.
        std::fs::write(
            dir.path().join("state.json"),
            r#"{"version":1,"replicas":{},"volumes":{}}"#,
        )
        .unwrap();
        assert!(!StoredState::load(dir.path()).unwrap().replica_grants.is_checked());
        for (text, said) in [
            ("{\"version\":1,", "is not the state of a storage process"),
            ("{\"version\":2}", "is of version 2; this program knows version 1"),
        ] {
            std::fs::write(dir.path().join("state.json"), text).unwrap();
            let error = StoredState::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
