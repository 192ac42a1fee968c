//! How far the data of an image is, by what the nodes say of its backing image: pure.

use serde_json::Value;

use crate::longhorn::record::{BackingImageFields, ImageFileStatus};
use crate::object::read;

/// How the data of an image is, as the node that has it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageData {
    /// Not begun.
    Waiting,
    /// An upload may come; the last one ended this way.
    Uploadable {
        complaint: String,
    },
    Coming {
        progress: i64,
        has_begun: bool,
    },
    Ready,
    Failed {
        progress: i64,
        has_begun: bool,
        message: String,
    },
}

/// The damage of a complete image, as a node reports it.
pub(super) fn damage(backing: &Value) -> Option<&str> {
    let files = read::<BackingImageFields<'_>>(backing).status.disk_file_status_map;
    let mut ready = files.into_values().filter(|file| file.state == "ready");
    ready.find_map(|file| Some(file.message).filter(|it| !it.is_empty()))
}

pub(super) fn data(backing: &Value) -> ImageData {
    let BackingImageFields { spec, status } = read(backing);
    let files: Vec<ImageFileStatus<'_>> = status.disk_file_status_map.into_values().collect();
    let of = |states: &[&str]| files.iter().find(|file| states.contains(&file.state));
    // Some servers do not say how much there is.
    let has_begun = status.size.unwrap_or(0) > 0 || files.iter().any(|file| file.progress > 0);
    if of(&["ready", "ready-for-transfer"]).is_some() {
        return ImageData::Ready;
    }
    if let Some(file) = of(&["starting", "in-progress"]) {
        return ImageData::Coming { progress: file.progress, has_begun };
    }
    if let Some(file) = of(&["failed", "failed-and-cleanup"]) {
        let message = file.message.to_owned();
        return ImageData::Failed { progress: file.progress, has_begun, message };
    }
    match of(&["pending"]) {
        Some(file) if spec.source_type == "upload" => {
            ImageData::Uploadable { complaint: file.message.to_owned() }
        }
        _ => ImageData::Waiting,
    }
}
