//! The consequence of an [`OpenError`] for the supervisor of the replica: pure.
//!
//! Opening files again does not help those that are missing or damaged, and only those. Everything
//! else may pass, or needs a person, and the files stay as they are.

use serde::{Deserialize, Serialize};

use super::OpenError;
use crate::store::log::LogError;
use crate::store::super_block::SlotError;

/// Why the files of a replica cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaFault {
    /// There is no super block: the files were removed or emptied.
    Missing,
    /// Files are damaged, older than others, or those of another replica.
    Damaged,
    /// The image or the replica that it lies on is missing or another one.
    Base,
    /// They could not be read, or another version of this program wrote them: they may be whole.
    Unreadable,
}

impl ReplicaFault {
    /// Whether no later attempt can open these files.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Missing | Self::Damaged)
    }
}

impl OpenError {
    pub fn fault(&self) -> ReplicaFault {
        match self {
            Self::Super(slots) if slots.iter().all(|it| *it == SlotError::Empty) => {
                ReplicaFault::Missing
            }
            Self::Super(slots) if slots.iter().any(is_foreign) => ReplicaFault::Unreadable,
            // Its checksum fits: another version may know this record.
            Self::Log { source: LogError::Record { .. } } => ReplicaFault::Unreadable,
            Self::Super(_)
            | Self::Volume { .. }
            | Self::Replica { .. }
            | Self::Nonsense { .. }
            | Self::Missing { .. }
            | Self::Stale { .. }
            | Self::Index { .. }
            | Self::Log { .. } => ReplicaFault::Damaged,
            Self::Base { .. } => ReplicaFault::Base,
            Self::Io { .. } => ReplicaFault::Unreadable,
        }
    }
}

/// A slot with a good checksum that another version wrote.
fn is_foreign(slot: &SlotError) -> bool {
    matches!(slot, SlotError::Version { .. } | SlotError::Geometry { .. } | SlotError::Body { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ReplicaId, VolumeId};
    use crate::store::files::FileId;
    use crate::store::{BaseError, IoFault};

    #[test]
    fn only_files_that_no_attempt_can_open_are_given_up() {
        use ReplicaFault::{Base, Damaged, Missing, Unreadable};
        let file = FileId::Log;
        let (empty, magic) = (SlotError::Empty, SlotError::Magic);
        let newer = SlotError::Version { found: 9 };
        let [one, two] = [1, 2].map(ReplicaId::from_u128);
        let [this, other] = [1, 2].map(VolumeId::from_u128);
        for (error, expected) in [
            (OpenError::Super([empty.clone(), empty.clone()]), Missing),
            (OpenError::Super([empty.clone(), magic.clone()]), Damaged),
            (OpenError::Super([magic.clone(), SlotError::BodyChecksum]), Damaged),
            (OpenError::Super([newer.clone(), newer.clone()]), Unreadable),
            (OpenError::Super([magic, newer]), Unreadable),
            (OpenError::Replica { found: one, expected: two }, Damaged),
            (OpenError::Volume { found: this, expected: other }, Damaged),
            (OpenError::Nonsense { what: "x" }, Damaged),
            (OpenError::Missing { file }, Damaged),
            (OpenError::Stale { file }, Damaged),
            (OpenError::Index { file }, Damaged),
            (OpenError::Log { source: LogError::Empty }, Damaged),
            (OpenError::Log { source: LogError::Lost { seq: 1 } }, Damaged),
            (OpenError::Log { source: LogError::Record { seq: 1 } }, Unreadable),
            (OpenError::Base { source: BaseError::TooDeep }, Base),
            (OpenError::Io { file, source: IoFault::Errno(5) }, Unreadable),
        ] {
            assert_eq!(error.fault(), expected, "{error:?}");
            assert_eq!(expected.is_final(), matches!(expected, Missing | Damaged));
        }
    }
}
