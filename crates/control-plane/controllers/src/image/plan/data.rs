//! How far the data of an image is, by what the nodes say of its backing image: pure.

use serde_json::Value;

use crate::object::{entries, int, text};

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
    let files = entries(backing, "/status/diskFileStatusMap").map(|(_, file)| file);
    let mut ready = files.filter(|file| text(file, "/state") == "ready");
    ready.find_map(|file| Some(text(file, "/message")).filter(|it| !it.is_empty()))
}

pub(super) fn data(backing: &Value) -> ImageData {
    let files: Vec<&Value> =
        entries(backing, "/status/diskFileStatusMap").map(|(_, file)| file).collect();
    let of =
        |states: &[&str]| files.iter().copied().find(|file| states.contains(&text(file, "/state")));
    let progress = |file: &Value| int(file, "/progress").unwrap_or(0);
    // Some servers do not say how much there is.
    let has_begun = int(backing, "/status/size").unwrap_or(0) > 0
        || files.iter().any(|file| progress(file) > 0);
    if of(&["ready", "ready-for-transfer"]).is_some() {
        return ImageData::Ready;
    }
    if let Some(file) = of(&["starting", "in-progress"]) {
        return ImageData::Coming { progress: progress(file), has_begun };
    }
    if let Some(file) = of(&["failed", "failed-and-cleanup"]) {
        let message = text(file, "/message").to_owned();
        return ImageData::Failed { progress: progress(file), has_begun, message };
    }
    match of(&["pending"]) {
        Some(file) if text(backing, "/spec/sourceType") == "upload" => {
            ImageData::Uploadable { complaint: text(file, "/message").to_owned() }
        }
        _ => ImageData::Waiting,
    }
}
