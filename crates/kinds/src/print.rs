//! Cells that many kinds share.

use jiff::Timestamp;
use serde_json::Value;

use crate::{duration, json};

/// The object's name.
pub(crate) fn name(object: &Value) -> Value {
    json::text(object, "/metadata/name").into()
}

/// The time since the object was created.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    duration::age(json::text(object, "/metadata/creationTimestamp"), now).into()
}
