//! Snapshots of claims, their contents and their classes.

use serde_json::{Map, Value};

use crate::record::fields;
use crate::record::quantity::WrittenQuantity;

fields! {
    pub(crate) struct VolumeSnapshotFields<'a> {
        spec: VolumeSnapshotSpec<'a>,
        status: VolumeSnapshotStatus<'a>,
    }

    pub(crate) struct VolumeSnapshotSpec<'a> {
        source: SnapshotSource<'a>,
        class_name as "volumeSnapshotClassName": &'a str,
    }

    pub(crate) struct SnapshotSource<'a> {
        claim_name as "persistentVolumeClaimName": &'a str,
        content_name as "volumeSnapshotContentName": &'a str,
    }

    pub(crate) struct VolumeSnapshotStatus<'a> {
        content_name as "boundVolumeSnapshotContentName": &'a str,
        ready_to_use: bool,
        restore_size: WrittenQuantity,
        error: Option<SnapshotFault<'a>>,
    }

    pub(crate) struct SnapshotFault<'a> {
        message: &'a str,
    }

    pub(crate) struct VolumeSnapshotContentFields<'a> {
        spec: VolumeSnapshotContentSpec<'a>,
        status: VolumeSnapshotContentStatus<'a>,
    }

    pub(crate) struct VolumeSnapshotContentSpec<'a> {
        driver: &'a str,
        deletion_policy: &'a str,
        source: ContentSource<'a>,
        class_name as "volumeSnapshotClassName": &'a str,
        snapshot as "volumeSnapshotRef": SnapshotReference<'a>,
    }

    /// The source of a content: a volume, or a snapshot that was there before.
    pub(crate) struct ContentSource<'a> {
        volume_handle: &'a str,
        snapshot_handle: &'a str,
    }

    pub(crate) struct SnapshotReference<'a> {
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
    }

    pub(crate) struct VolumeSnapshotContentStatus<'a> {
        snapshot_handle: &'a str,
        ready_to_use: bool,
        /// In nanoseconds.
        creation_time: Option<i64>,
        restore_size: Option<i64>,
        /// It is copied to the snapshot.
        error: Option<Map<String, Value>>,
    }

    pub(crate) struct SnapshotClassFields<'a> {
        driver: &'a str,
        deletion_policy: &'a str,
        parameters: SnapshotClassParameters<'a>,
    }

    pub(crate) struct SnapshotClassParameters<'a> {
        kind as "type": &'a str,
    }
}

impl VolumeSnapshotContentStatus<'_> {
    pub(crate) fn error_message(&self) -> &str {
        let message = self.error.as_ref().and_then(|own| own.get("message"));
        message.and_then(Value::as_str).unwrap_or_default()
    }
}
