//! Result of the verification of a replica's metadata, for engines and for a status.

use serde::{Deserialize, Serialize};

use crate::store::MetadataFault;

/// Result of a replica's verification of its metadata on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataReport {
    /// Pieces that were damaged, or torn by a power cut, and are whole again.
    pub repaired: u32,
    /// Pages of maps that were damaged and not in memory: their blocks come from other replicas.
    pub lost_pages: u32,
    /// Damage that was left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<MetadataDamage>,
}

/// A file of a replica with damage that the replica cannot repair while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataDamage {
    /// Its name in the replica's directory.
    pub file: String,
    pub fault: MetadataFault,
}
