//! Verification of the metadata of a replica in use: what is on disk, and what follows. Pure.
//!
//! Memory is right: the replica verified its metadata when it was opened, and has written every
//! change since. Pages of maps that are not in memory are the exception; their checksums are in
//! the index, which is.
//!
//! ```text
//!  found on disk       memory or the other copy has it      nobody here has it
//!  ───────────────────────────────────────────────────────────────────────────────────────
//!  one copy damaged    rewrite                              (cannot be)
//!  damaged             rewrite                              its blocks are lost
//!  unreadable          rewrite                              rebuild from others │ report
//!  file missing        make it again                        rebuild from others │ report
//!  still so after MAX_ATTEMPTS                              rebuild from others │ report
//! ```
//!
//! Lost blocks are refused, and repaired from other replicas one by one. The only replica is never
//! stopped: as long as it runs, its memory may be the last copy.

use serde::{Deserialize, Serialize};

use super::files::FileId;
use super::sabotage::{Check, is_left_out};

/// A medium that returns something else after so many writes is not written again.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// Result of the comparison of one piece of metadata on disk with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Intact,
    /// One of two copies is damaged.
    CopyDamaged,
    Damaged,
    /// Reading failed.
    Unreadable,
    /// The directory has no such file, or another one under its name.
    Missing,
}

impl Found {
    /// From which of the two copies are damaged.
    pub(crate) fn of(damaged: [bool; 2]) -> Self {
        match damaged {
            [false, false] => Self::Intact,
            [true, true] => Self::Damaged,
            _ => Self::CopyDamaged,
        }
    }
}

/// Whether memory or another copy on disk has the right content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageContent {
    Known,
    Lost,
}

/// Whether other replicas in sync can rebuild this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    InSync,
    Nobody,
}

/// The treatment of a piece of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    Nothing,
    Rewrite,
    /// Its blocks are refused until they are repaired from other replicas.
    LoseBlocks,
    /// The replica stops. It is opened again, and rebuilt from the others.
    Rebuild,
    Report(MetadataFault),
}

/// Why metadata was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataFault {
    #[error("is missing from its directory")]
    Missing,
    #[error("cannot be read")]
    Unreadable,
    #[error("is damaged, also after it was written again")]
    Damaged,
    #[error("is damaged, and the disk has no space to write it again")]
    NoSpace,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataReport {
    /// Pieces that were damaged and are whole again.
    pub repaired: u32,
    /// Pages of maps that nothing here can replace: their blocks are lost.
    pub lost_pages: u32,
    /// Files with damage that was left.
    pub left: Vec<(FileId, MetadataFault)>,
}

impl MetadataReport {
    pub(crate) fn leave(&mut self, file: FileId, fault: MetadataFault) {
        if !self.left.contains(&(file, fault)) {
            self.left.push((file, fault));
        }
    }
}

/// Decides what is done about a piece of metadata that was written `attempts` times already.
pub(crate) fn judge(found: Found, content: PageContent, attempts: u32, peers: Peers) -> Remedy {
    let fault = match found {
        _ if is_left_out(Check::Live) => return Remedy::Nothing,
        Found::Intact => return Remedy::Nothing,
        Found::CopyDamaged | Found::Damaged => MetadataFault::Damaged,
        Found::Unreadable => MetadataFault::Unreadable,
        Found::Missing => MetadataFault::Missing,
    };
    match (found, content, peers) {
        (_, PageContent::Known, _) if attempts < MAX_ATTEMPTS => Remedy::Rewrite,
        // The copy that counts is whole.
        (Found::CopyDamaged, ..) => Remedy::Report(fault),
        (Found::Damaged, PageContent::Lost, _) => Remedy::LoseBlocks,
        (_, _, Peers::InSync) => Remedy::Rebuild,
        (_, _, Peers::Nobody) => Remedy::Report(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_rewritten_rebuilt_or_reported_and_never_guessed() {
        use Found::{CopyDamaged, Damaged, Intact, Missing, Unreadable};
        use PageContent::{Known, Lost};
        use Peers::{InSync, Nobody};
        use Remedy::{LoseBlocks, Nothing, Rebuild, Report, Rewrite};
        let last = MAX_ATTEMPTS;
        for (found, content, attempts, peers, remedy) in [
            (Intact, Known, 0, InSync, Nothing),
            (Intact, Lost, last, Nobody, Nothing),
            (CopyDamaged, Known, 0, InSync, Rewrite),
            (CopyDamaged, Known, last, InSync, Report(MetadataFault::Damaged)),
            (Damaged, Known, 0, InSync, Rewrite),
            (Damaged, Known, last - 1, Nobody, Rewrite),
            (Damaged, Known, last, InSync, Rebuild),
            (Damaged, Known, last, Nobody, Report(MetadataFault::Damaged)),
            (Damaged, Lost, 0, InSync, LoseBlocks),
            (Damaged, Lost, 0, Nobody, LoseBlocks),
            (Unreadable, Known, 0, Nobody, Rewrite),
            (Unreadable, Known, last, InSync, Rebuild),
            (Unreadable, Lost, 0, InSync, Rebuild),
            (Unreadable, Lost, 0, Nobody, Report(MetadataFault::Unreadable)),
            (Missing, Known, 0, Nobody, Rewrite),
            (Missing, Known, last, Nobody, Report(MetadataFault::Missing)),
            (Missing, Lost, 0, InSync, Rebuild),
            (Missing, Lost, 0, Nobody, Report(MetadataFault::Missing)),
        ] {
            let case = format!("{found:?}, {content:?}, {attempts} attempts, {peers:?}");
            assert_eq!(judge(found, content, attempts, peers), remedy, "{case}");
        }
    }

    #[test]
    fn only_two_damaged_copies_are_damage_of_the_whole() {
        assert_eq!(Found::of([false, false]), Found::Intact);
        assert_eq!(Found::of([true, false]), Found::CopyDamaged);
        assert_eq!(Found::of([false, true]), Found::CopyDamaged);
        assert_eq!(Found::of([true, true]), Found::Damaged);
    }
}
