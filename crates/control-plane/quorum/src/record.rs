//! `etcd.json` in the data directory: how far a node has come with etcd.
//!
//! ```text
//!   (none) ─ MoveWanted ─► Moving ─ Copied ─► Voter       the first management node
//!      ▲                     │ Failed
//!      └──── (after a while) Refused
//!   (none) ─ JoinWanted ─► Joining ─ Promoted ─► Voter    the others
//!
//!   Voter ─ ReturnWanted ─► Returning ─ Exported ─► Returned ─ MoveWanted ─► Moving
//!     ▲                        │ ExportFailed                   the last member
//!     └────────────────────────┘
//! ```
//!
//! The file is replaced by rename. At `Voter` the objects are in etcd, and the SQLite file is not
//! opened again; before it, nothing that etcd holds counts. At `Returned` they are in the SQLite file,
//! and etcd is not started again; before it, nothing that the new file holds counts.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// The SQLite file is being copied into an etcd of one member; the file still counts.
    Moving,
    /// The copy failed, and SQLite goes on.
    Refused { at: Timestamp, reason: String },
    /// This node becomes a member of an etcd that others run.
    Joining,
    /// This node votes, and its API server stores objects in etcd.
    Voter,
    /// The objects are being written from an etcd of one member into a new SQLite file; etcd still
    /// counts.
    Returning,
    /// The objects are in the SQLite file again; what is left of etcd is put aside.
    Returned,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PhaseEvent {
    /// There are enough management nodes for etcd.
    MoveWanted,
    Copied,
    CopyFailed {
        at: Timestamp,
        reason: String,
    },
    /// Other nodes run etcd, and this node becomes a member.
    JoinWanted,
    Promoted,
    /// This is the only member, and the objects are to be in SQLite again.
    ReturnWanted,
    Exported,
    ExportFailed,
}

/// An event that cannot happen in a phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen in phase {phase:?}")]
pub struct WrongEvent {
    phase: Option<Phase>,
    event: PhaseEvent,
}

/// The phase after an event.
pub fn next_phase(phase: Option<&Phase>, event: PhaseEvent) -> Result<Phase, WrongEvent> {
    match (phase, event) {
        (
            None | Some(Phase::Refused { .. } | Phase::Moving | Phase::Returned),
            PhaseEvent::MoveWanted,
        ) => Ok(Phase::Moving),
        (Some(Phase::Moving), PhaseEvent::Copied) => Ok(Phase::Voter),
        (Some(Phase::Moving), PhaseEvent::CopyFailed { at, reason }) => {
            Ok(Phase::Refused { at, reason })
        }
        (None | Some(Phase::Joining), PhaseEvent::JoinWanted) => Ok(Phase::Joining),
        (Some(Phase::Joining), PhaseEvent::Promoted) => Ok(Phase::Voter),
        (Some(Phase::Voter | Phase::Returning), PhaseEvent::ReturnWanted) => Ok(Phase::Returning),
        (Some(Phase::Returning), PhaseEvent::Exported) => Ok(Phase::Returned),
        (Some(Phase::Returning), PhaseEvent::ExportFailed) => Ok(Phase::Voter),
        (phase, event) => Err(WrongEvent { phase: phase.cloned(), event }),
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRecord {
    #[serde(flatten)]
    pub phase: Phase,
    /// Name of the member, `NODE-XXXXXXXX`; another one for each membership.
    pub member: String,
    pub address: IpAddr,
    /// Client URLs of other members, as far as known.
    #[serde(default)]
    pub others: Vec<String>,
    /// This member goes on alone after the loss of the majority, and its revisions are not yet above
    /// those that clients may have seen of the members that are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recovering: bool,
    /// Why the last return to SQLite failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_failure: Option<String>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged: restore it from another copy of this data directory", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Event(#[from] WrongEvent),
}

impl EtcdRecord {
    /// A record with a new name for the member.
    pub fn new(phase: Phase, node: &str, address: IpAddr, others: Vec<String>) -> Self {
        let suffix = uuid::Uuid::new_v4().simple().to_string();
        let member = format!("{node}-{}", &suffix[..8]);
        Self { phase, member, address, others, is_recovering: false, return_failure: None }
    }

    pub fn load(path: &Path) -> Result<Option<Self>, RecordError> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecordError::Read { path: path.to_owned(), source }),
            Ok(text) => text,
        };
        let damaged = |source| RecordError::Damaged { path: path.to_owned(), source };
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    /// Replaces the file; it is durable when this returns.
    pub fn save(&self, path: &Path) -> Result<(), RecordError> {
        self.write(path).map_err(|source| RecordError::Write { path: path.to_owned(), source })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let fresh = path.with_extension("json.new");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Moves to the phase after `event` and writes the file.
    pub fn advance(&mut self, event: PhaseEvent, path: &Path) -> Result<(), RecordError> {
        self.phase = next_phase(Some(&self.phase), event)?;
        self.save(path)
    }

    /// Whether the objects are in an etcd that this node is a member of.
    pub fn is_voter(&self) -> bool {
        matches!(self.phase, Phase::Voter | Phase::Returning)
    }

    /// Whether this node serves the API, from etcd or from a file of its own.
    pub fn is_server(&self) -> bool {
        self.phase != Phase::Joining
    }

    /// Removes the file: this node is a worker from now on.
    pub fn remove(path: &Path) -> Result<(), RecordError> {
        let removed = || match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome
                .and_then(|()| File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()),
        };
        removed().map_err(|source| RecordError::Write { path: path.to_owned(), source })
    }

    pub fn client_url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.address, CLIENT_PORT))
    }

    pub fn peer_url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.address, PEER_PORT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Phase {
        Phase::Refused { at: Timestamp::UNIX_EPOCH, reason: "r".into() }
    }

    fn failed() -> PhaseEvent {
        PhaseEvent::CopyFailed { at: Timestamp::UNIX_EPOCH, reason: "r".into() }
    }

    #[test]
    fn only_a_complete_copy_or_a_promotion_makes_a_voter() {
        use PhaseEvent::{Copied, JoinWanted, MoveWanted, Promoted, ReturnWanted};
        for (phase, event, expected) in [
            (None, MoveWanted, Some(Phase::Moving)),
            (Some(refused()), MoveWanted, Some(Phase::Moving)),
            (Some(Phase::Moving), MoveWanted, Some(Phase::Moving)),
            (Some(Phase::Moving), Copied, Some(Phase::Voter)),
            (Some(Phase::Moving), failed(), Some(refused())),
            (None, JoinWanted, Some(Phase::Joining)),
            (Some(Phase::Joining), JoinWanted, Some(Phase::Joining)),
            (Some(Phase::Joining), Promoted, Some(Phase::Voter)),
            (None, Copied, None),
            (None, Promoted, None),
            (Some(refused()), Copied, None),
            (Some(refused()), JoinWanted, None),
            (Some(Phase::Moving), Promoted, None),
            (Some(Phase::Moving), JoinWanted, None),
            (Some(Phase::Joining), Copied, None),
            (Some(Phase::Joining), MoveWanted, None),
            (Some(Phase::Voter), MoveWanted, None),
            (Some(Phase::Voter), failed(), None),
            (Some(Phase::Joining), ReturnWanted, None),
            (Some(Phase::Moving), ReturnWanted, None),
            (None, ReturnWanted, None),
            (Some(Phase::Voter), JoinWanted, None),
        ] {
            let text = format!("{phase:?} {event:?}");
            assert_eq!(next_phase(phase.as_ref(), event).ok(), expected, "{text}");
        }
    }

    #[test]
    fn only_a_complete_export_ends_the_use_of_etcd() {
        use Phase::{Moving, Returned, Returning, Voter};
        use PhaseEvent::{Copied, ExportFailed, Exported, MoveWanted, ReturnWanted};
        for (phase, event, expected) in [
            (Voter, ReturnWanted, Some(Returning)),
            (Returning, ReturnWanted, Some(Returning)),
            (Returning, Exported, Some(Returned)),
            (Returning, ExportFailed, Some(Voter)),
            (Voter, Exported, None),
            (Voter, ExportFailed, None),
            (Returning, Copied, None),
            (Returned, ExportFailed, None),
            (Returned, ReturnWanted, None),
            (Returned, MoveWanted, Some(Moving)),
            (Returning, MoveWanted, None),
            (Moving, Exported, None),
        ] {
            let text = format!("{phase:?} {event:?}");
            assert_eq!(next_phase(Some(&phase), event).ok(), expected, "{text}");
        }
    }

    #[test]
    fn the_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etcd.json");
        assert_eq!(EtcdRecord::load(&path).unwrap(), None);
        let address = "10.0.0.1".parse().unwrap();
        let mut record = EtcdRecord::new(Phase::Moving, "n1", address, vec![]);
        assert_eq!(crate::node_of(&record.member), "n1");
        record.save(&path).unwrap();
        assert_eq!(EtcdRecord::load(&path).unwrap().as_ref(), Some(&record));
        record.advance(PhaseEvent::Copied, &path).unwrap();
        assert!(EtcdRecord::load(&path).unwrap().unwrap().is_voter());
        assert!(record.advance(PhaseEvent::Copied, &path).is_err());
        EtcdRecord::remove(&path).unwrap();
        assert_eq!(EtcdRecord::load(&path).unwrap(), None);
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(EtcdRecord::load(&path), Err(RecordError::Damaged { .. })));
    }

    #[test]
    fn urls_have_the_address_of_the_node() {
        let six = "fd00::1".parse().unwrap();
        let record = EtcdRecord::new(Phase::Voter, "n1", six, vec![]);
        assert_eq!(record.client_url(), "https://[fd00::1]:2379");
        assert_eq!(record.peer_url(), "https://[fd00::1]:2380");
    }
}
