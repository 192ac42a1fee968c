//! `volume.cfg` and `backup_*.cfg`, as Longhorn writes and reads them. Pure.
//!
//! Longhorn writes numbers as texts, and some texts of `volume.cfg` as a JSON text within a JSON
//! text; it refuses a file in which such a text is a plain one. Both forms are read here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::BLOCK_SIZE;

/// Metadata of all backups of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeConfig {
    pub name: String,
    #[serde(with = "number")]
    pub size: u64,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    pub created_time: String,
    pub last_backup_name: String,
    pub last_backup_at: String,
    #[serde(with = "number")]
    pub block_count: u64,
    #[serde(with = "doubled")]
    pub backing_image_name: String,
    #[serde(with = "doubled")]
    pub backing_image_checksum: String,
    #[serde(with = "doubled")]
    pub compression_method: String,
    #[serde(with = "doubled")]
    pub storage_class_name: String,
    #[serde(with = "doubled")]
    pub data_engine: String,
}

/// One backup: the whole of a volume as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BackupConfig {
    pub name: String,
    pub volume_name: String,
    pub snapshot_name: String,
    pub snapshot_created_at: String,
    /// Empty until the backup is complete.
    pub created_time: String,
    #[serde(with = "number")]
    pub size: u64,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub parameters: BTreeMap<String, String>,
    pub is_incremental: bool,
    pub compression_method: String,
    #[serde(with = "number")]
    pub newly_uploaded_data_size: u64,
    #[serde(with = "number")]
    pub re_uploaded_data_size: u64,
    /// Of Longhorn's own use; nothing reads it.
    pub processing_blocks: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub blocks: Vec<BlockRef>,
    #[serde(deserialize_with = "or_default")]
    pub single_file: SingleFile,
}

/// A block of a backup. Ranges without a block are zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BlockRef {
    pub offset: u64,
    pub block_checksum: String,
}

/// Backups of the first versions of Longhorn are one file, which is not read here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SingleFile {
    pub file_path: String,
}

pub(crate) const BLOCK_SIZE_PARAMETER: &str = "backup-block-size";

impl BackupConfig {
    pub fn is_complete(&self) -> bool {
        !self.created_time.is_empty()
    }

    /// Bytes of each block; nothing if the parameter is none that Longhorn writes.
    pub fn block_size(&self) -> Option<u64> {
        match self.parameters.get(BLOCK_SIZE_PARAMETER).map(String::as_str) {
            None | Some("" | "0") => Some(BLOCK_SIZE),
            Some("2097152" | "2Mi") => Some(BLOCK_SIZE),
            Some("16777216" | "16Mi") => Some(8 * BLOCK_SIZE),
            Some(_) => None,
        }
    }
}

/// A number as a text; a plain number is read too.
mod number {
    use super::{Deserialize as _, Deserializer, Serializer, Value};

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let value = Value::deserialize(from)?;
        let number = match &value {
            Value::Null => Some(0),
            Value::String(text) if text.is_empty() => Some(0),
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        number.ok_or_else(|| serde::de::Error::custom(format!("{value} is not a size")))
    }
}

/// A text within a text; a plain text is read too.
mod doubled {
    use super::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &str, to: S) -> Result<S::Ok, S::Error> {
        let inner = serde_json::to_string(value).map_err(serde::ser::Error::custom)?;
        to.serialize_str(&inner)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        Ok(serde_json::from_str::<String>(&text).unwrap_or(text))
    }
}

/// Go writes an empty map or list as null.
fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_written_as_longhorn_writes_it() {
        let text = concat!(
            r#"{"Name":"v1","Size":"67108864","Labels":{"a":"b"},"#,
            r#""CreatedTime":"2026-01-02T03:04:05Z","LastBackupName":"b2","#,
            r#""LastBackupAt":"2026-01-02T03:04:06Z","BlockCount":"4","#,
            r#""BackingImageName":"\"\"","BackingImageChecksum":"\"\"","#,
            r#""CompressionMethod":"\"lz4\"","StorageClassName":"\"0\"","DataEngine":"\"v1\""}"#,
        );
        let config: VolumeConfig = serde_json::from_str(text).unwrap();
        assert_eq!((config.size, config.block_count), (67_108_864, 4));
        assert_eq!(
            (config.compression_method.as_str(), config.data_engine.as_str()),
            ("lz4", "v1")
        );
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
    }

    #[test]
    fn plain_absent_and_null_texts_of_a_volume_are_read() {
        let text = r#"{"Name":"v1","Size":5,"Labels":null,"CompressionMethod":"gzip",
            "BackingImageName":null,"Unknown":1}"#;
        let config: VolumeConfig = serde_json::from_str(text).unwrap();
        assert_eq!((config.size, config.compression_method.as_str()), (5, "gzip"));
        assert_eq!(config.backing_image_name, "");
    }

    #[test]
    fn a_backup_is_written_as_longhorn_writes_it() {
        let text = concat!(
            r#"{"Name":"b1","VolumeName":"v1","SnapshotName":"s1","#,
            r#""SnapshotCreatedAt":"2026-01-02T03:04:05Z","CreatedTime":"2026-01-02T03:04:07Z","#,
            r#""Size":"2097152","Labels":{},"Parameters":{"backup-block-size":"2097152"},"#,
            r#""IsIncremental":true,"CompressionMethod":"lz4","NewlyUploadedDataSize":"7","#,
            r#""ReUploadedDataSize":"0","ProcessingBlocks":null,"#,
            r#""Blocks":[{"Offset":2097152,"BlockChecksum":"ab"}],"SingleFile":{"FilePath":""}}"#,
        );
        let config: BackupConfig = serde_json::from_str(text).unwrap();
        assert!(config.is_complete());
        assert_eq!(config.block_size(), Some(BLOCK_SIZE));
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        let begun = r#"{"Name":"b1","VolumeName":"v1","CompressionMethod":"lz4","CreatedTime":"",
            "Blocks":null,"Labels":null,"Parameters":null,"Size":"0"}"#;
        assert!(!serde_json::from_str::<BackupConfig>(begun).unwrap().is_complete());
        let large = r#"{"Parameters":{"backup-block-size":"16777216"}}"#;
        let large: BackupConfig = serde_json::from_str(large).unwrap();
        assert_eq!(large.block_size(), Some(16 << 20));
    }
}
