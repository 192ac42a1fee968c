//! Findings from a claim that is filled without a DataVolume, by a populator of CDI: the node reports
//! how far it is in annotations.

use super::object::Claim;
use super::{Findings, Severity};
use crate::reason::FillFailure;

const PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
const MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";

/// Explains why the content of a claim is not there.
pub(super) fn examine(findings: &mut Findings<'_>, claim: &Claim) {
    let note =
        |key: &str| claim.metadata.annotations.get(key).map(String::as_str).unwrap_or_default();
    let (phase, message) = (note(PHASE), note(MESSAGE));
    if phase == "Succeeded" || message.is_empty() {
        return;
    }
    let (name, facts) = (claim.name(), findings.facts);
    let (severity, what) = match FillFailure::parse(note(REASON)) {
        Some(FillFailure::ImagePull) => (
            Severity::Error,
            format!("The claim {name} cannot be filled: its image cannot be pulled."),
        ),
        Some(FillFailure::SourceInUse | FillFailure::SourceNotReady | FillFailure::NoSource) => {
            (Severity::Warning, format!("The claim {name} waits for its source."))
        }
        _ => (Severity::Error, format!("The claim {name} cannot be filled from its source.")),
    };
    let why = match phase {
        "Failed" => message.to_owned(),
        _ => format!("{message} (the node keeps trying)"),
    };
    // Its data source is the object to correct.
    findings.add(severity, what, why, facts.kubectl("describe", "pvc", name));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{first, now, object, with_disk};
    use super::super::{DiagnosisInput, diagnose};
    use super::*;

    fn filled(notes: Value) -> DiagnosisInput {
        let mut one = with_disk("d");
        one.claims = vec![object(json!({
            "metadata": {"name": "d", "annotations": notes}, "status": {"phase": "Bound"}}))];
        one
    }

    #[test]
    fn the_cause_of_a_populator_that_fails_is_reported() {
        for reason in FillFailure::ALL {
            let failing =
                filled(json!({PHASE: "Running", REASON: reason.as_str(), MESSAGE: "404"}));
            let severity = match reason {
                FillFailure::SourceInUse | FillFailure::SourceNotReady | FillFailure::NoSource => {
                    Severity::Warning
                }
                _ => Severity::Error,
            };
            first(&failing, severity, "The claim d", "404 (the node keeps", "describe pvc d");
        }
        let failed = filled(json!({PHASE: "Failed", REASON: "Error", MESSAGE: "no disk"}));
        first(&failed, Severity::Error, "cannot be filled from its source", "no disk", "pvc d");
        for notes in
            [json!({}), json!({PHASE: "Running"}), json!({PHASE: "Succeeded", MESSAGE: "m"})]
        {
            let found = diagnose(&filled(notes), now());
            assert!(!found.findings.iter().any(|own| own.what.contains("filled")), "{found:?}");
        }
    }
}
