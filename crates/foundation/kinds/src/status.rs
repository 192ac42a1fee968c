//! The halves of an object that the main endpoint and `/status` may write.

use serde_json::Value;

use crate::json;

/// Creation: a client does not get to say how things are.
pub(crate) fn drop(object: &mut Value) {
    json::remove(object, "status");
}

/// Update through the main endpoint: the status stays what it was.
pub(crate) fn keep(new: &mut Value, old: &Value) {
    json::restore(new, old, "status");
}

/// Update through `/status`: everything but status and metadata stays what it was.
///
/// Metadata may change here, as upstream lets it for most kinds: kubelets and
/// controllers put annotations on an object in the same write as its status.
pub(crate) fn only(new: &mut Value, old: &Value) {
    let Some(fields) = new.as_object_mut() else { return };
    fields.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    for (key, value) in old.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
            fields.insert(key.clone(), value.clone());
        }
    }
}
