//! Metadata that a node may not change. The garbage collector deletes an object whose owners are
//! gone, and a finalizer keeps one from being deleted: a node that could write these would decide
//! about objects that it may neither delete nor keep.

use serde_json::Value;

use super::{NodeDenial, NodeWrite, changed_keys};

/// A node leaves owners alone, and may only take finalizers away.
pub(super) fn keeps_ownership(write: &NodeWrite<'_>) -> Result<(), NodeDenial> {
    let (Some(object), Some(old)) = (write.object, write.old) else { return Ok(()) };
    let list = |object: &Value, field: &str| -> Vec<Value> {
        object["metadata"][field].as_array().cloned().unwrap_or_default()
    };
    if list(object, "ownerReferences") != list(old, "ownerReferences") {
        return Err(denial(write, "ownerReferences"));
    }
    let had = list(old, "finalizers");
    if list(object, "finalizers").iter().any(|own| !had.contains(own)) {
        return Err(denial(write, "finalizers"));
    }
    Ok(())
}

/// Objects that several nodes report on.
pub(super) fn keeps_labels(
    write: &NodeWrite<'_>,
    object: &Value,
    old: &Value,
) -> Result<(), NodeDenial> {
    for field in ["labels", "annotations"] {
        if !changed_keys(&object["metadata"][field], &old["metadata"][field]).is_empty() {
            return Err(denial(write, field));
        }
    }
    Ok(())
}

fn denial(write: &NodeWrite<'_>, field: &str) -> NodeDenial {
    write.field(format!("the {field} of {} {:?}", write.resource, write.name))
}
