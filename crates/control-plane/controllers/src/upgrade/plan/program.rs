//! The program that an upgrade brings.

use hci::upgrade::{BadDigest, ProgramDigest};

use super::UpgradeFacts;

/// Why the program of an upgrade is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("version {0} is not found")]
    NoVersion(String),
    #[error("version {version}: {error}")]
    Digest { version: String, error: BadDigest },
}

/// The digest that the version of an upgrade names.
pub(super) fn digest(facts: &UpgradeFacts<'_>) -> Result<ProgramDigest, ProgramError> {
    let name = facts.upgrade.spec.as_ref().and_then(|spec| spec.version.as_deref());
    let name = name.unwrap_or_default().to_owned();
    let Some(version) = facts.version else { return Err(ProgramError::NoVersion(name)) };
    let sum = version.spec.iso_checksum.as_deref().unwrap_or_default();
    ProgramDigest::parse(sum).map_err(|error| ProgramError::Digest { version: name, error })
}
