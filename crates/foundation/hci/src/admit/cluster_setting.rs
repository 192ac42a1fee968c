//! Harvester's settings take only values they understand.

use super::{AdmissionResult, Refusal, Write, text};
use crate::cluster_setting::{self, UNDELETABLE};

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else {
        if UNDELETABLE.contains(&write.name) {
            let message = format!("Setting {} can not be deleted", write.name);
            return Err(Refusal::new(405, "", message));
        }
        return Ok(());
    };
    for field in ["value", "default"] {
        let pointer = if field == "value" { "/value" } else { "/default" };
        cluster_setting::check(write.name, text(object, pointer))
            .map_err(|error| Refusal::invalid(field, error))?;
    }
    Ok(())
}
