//! Alarms are what the controllers found; users only say what becomes of them.

use serde_json::{Value, json};

use super::{AdmissionResult, Refusal, Write};

/// Notes who acknowledges an alarm.
pub(super) fn complete(write: &Write<'_>, alarm: &mut Value) {
    let was = write.old.is_some_and(|old| old["spec"]["acknowledged"] == true);
    match alarm["spec"]["acknowledged"] == true {
        false => {
            if let Some(spec) = alarm["spec"].as_object_mut() {
                spec.remove("acknowledgedBy");
            }
        }
        true if was => {
            let before = write.old.map(|old| old["spec"]["acknowledgedBy"].clone());
            alarm["spec"]["acknowledgedBy"] = before.unwrap_or_default();
        }
        true => alarm["spec"]["acknowledgedBy"] = json!(write.writer.name()),
    }
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    if write.trusted || write.old.is_some() && write.object.is_some() {
        return Ok(());
    }
    let message = "alarms are created when something is wrong and deleted when it is mended; \
                   acknowledge one with spec.acknowledged, or silence it with spec.silencedUntil";
    Err(Refusal::new(403, "", message))
}
