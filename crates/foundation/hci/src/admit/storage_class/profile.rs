//! Annotations of a storage class about its profile in CDI: overhead of file systems, strategy of
//! clones, snapshot class, access modes.

use serde_json::Value;

use super::DRIVER;
use crate::admit::{AdmissionResult, Refusal, SNAPSHOTS, Write, text};

const OVERHEAD: &str = "cdi.harvesterhci.io/filesystemOverhead";
const STRATEGY: &str = "cdi.harvesterhci.io/storageProfileCloneStrategy";
const SNAPSHOT_CLASS: &str = "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass";
const MODES: &str = "cdi.harvesterhci.io/storageProfileVolumeModeAccessModes";
const STRATEGIES: [&str; 3] = ["copy", "snapshot", "csi-clone"];
const ACCESS_MODES: [&str; 4] =
    ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

pub(super) fn validate(write: &Write<'_>, class: &Value) -> AdmissionResult {
    let annotations = &class["metadata"]["annotations"];
    let value = |key: &str| annotations[key].as_str();
    if [OVERHEAD, STRATEGY, SNAPSHOT_CLASS, MODES].iter().all(|key| value(key).is_none()) {
        return Ok(());
    }
    let refuse = |message: String| Err(Refusal::invalid("", message));
    if text(class, "/provisioner") == DRIVER && text(class, "/parameters/dataEngine") == "v1" {
        return refuse("longhorn v1 does not support CDI annotations".to_owned());
    }
    if let Some(overhead) = value(OVERHEAD).filter(|own| !is_share(own)) {
        return refuse(format!(
            "invalid filesystem overhead {overhead} in annotation {OVERHEAD}, must be in the range [0.00, 1.00] (up to 3 decimal places)"
        ));
    }
    let strategy = value(STRATEGY);
    if let Some(other) = strategy.filter(|own| !STRATEGIES.contains(own)) {
        return refuse(format!(
            "invalid clone strategy {other} in annotation {STRATEGY}, valid values: {}",
            STRATEGIES.join(", ")
        ));
    }
    match value(SNAPSHOT_CLASS) {
        Some("") => {
            return refuse(format!(
                "snapshot class cannot be empty in annotation {SNAPSHOT_CLASS}"
            ));
        }
        Some(own) if write.objects.get(SNAPSHOTS, "volumesnapshotclasses", "", own).is_none() => {
            return refuse(format!(
                "snapshot class {own} in annotation {SNAPSHOT_CLASS} not found"
            ));
        }
        None if strategy == Some("snapshot") => {
            return refuse(format!(
                "snapshot class must be set in annotation {SNAPSHOT_CLASS} when clone strategy is snapshot"
            ));
        }
        _ => {}
    }
    match value(MODES).map(check_modes) {
        Some(Err(error)) => {
            let modes = value(MODES).unwrap_or_default();
            refuse(format!(
                "invalid volume mode access modes {modes} in annotation {MODES}, error: {error}"
            ))
        }
        _ => Ok(()),
    }
}

/// A number from 0 to 1 with three decimal places at most.
fn is_share(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" => digits,
        "1" => digits && part.bytes().all(|byte| byte == b'0'),
        _ => false,
    }
}

/// Why access modes of volume modes cannot be read.
#[derive(Debug, thiserror::Error)]
enum ModesError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("invalid volume mode {0}")]
    VolumeMode(String),
    #[error("invalid access mode {0}")]
    AccessMode(String),
}

/// As JSON: `{"Block":["ReadWriteMany"]}`.
fn check_modes(modes: &str) -> Result<(), ModesError> {
    let modes: std::collections::BTreeMap<String, Vec<String>> = serde_json::from_str(modes)?;
    for (volume, access) in modes {
        if !matches!(&*volume, "Block" | "Filesystem") {
            return Err(ModesError::VolumeMode(volume));
        }
        if let Some(other) = access.into_iter().find(|own| !ACCESS_MODES.contains(&&**own)) {
            return Err(ModesError::AccessMode(other));
        }
    }
    Ok(())
}
