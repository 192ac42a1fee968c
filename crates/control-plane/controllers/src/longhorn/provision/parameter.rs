//! The parameters of a storage class, applied to a volume: pure.
//!
//! Those that this driver does not know are left alone, as upstream's does: classes are
//! written for several versions of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::object;
use crate::record::fields;

/// The type of a parameter, and its form in the volume.
#[derive(Clone, Copy, Debug)]
enum ParameterType {
    Number(i64, i64),
    Bool,
    OneOf(&'static [&'static str]),
    /// Words apart by commas.
    Words,
    Text,
    /// Upstream takes it; this driver cannot do it.
    Nothing(&'static str),
}

use ParameterType::{Bool, Nothing, Number, OneOf, Text, Words};

const THREE_WAY: ParameterType = OneOf(&["ignored", "enabled", "disabled"]);
const LONG: i64 = i32::MAX as i64;

/// Parameter, field of a volume's spec (none if it is only checked here), what it takes.
const PARAMETERS: &[(&str, &str, ParameterType)] = &[
    ("numberOfReplicas", "numberOfReplicas", Number(1, 20)),
    ("staleReplicaTimeout", "staleReplicaTimeout", Number(0, LONG)),
    ("dataLocality", "dataLocality", OneOf(&["disabled", "best-effort", "strict-local"])),
    ("diskSelector", "diskSelector", Words),
    ("nodeSelector", "nodeSelector", Words),
    ("migratable", "migratable", Bool),
    ("encrypted", "encrypted", Bool),
    ("share", "", Bool),
    ("exclusive", "", Bool),
    ("backingImage", "backingImage", Text),
    (
        "replicaAutoBalance",
        "replicaAutoBalance",
        OneOf(&["ignored", "disabled", "least-effort", "best-effort"]),
    ),
    ("disableRevisionCounter", "revisionCounterDisabled", Bool),
    ("unmapMarkSnapChainRemoved", "unmapMarkSnapChainRemoved", THREE_WAY),
    ("replicaSoftAntiAffinity", "replicaSoftAntiAffinity", THREE_WAY),
    ("replicaZoneSoftAntiAffinity", "replicaZoneSoftAntiAffinity", THREE_WAY),
    ("replicaDiskSoftAntiAffinity", "replicaDiskSoftAntiAffinity", THREE_WAY),
    ("freezeFilesystemForSnapshot", "freezeFilesystemForSnapshot", THREE_WAY),
    (
        "snapshotDataIntegrity",
        "snapshotDataIntegrity",
        OneOf(&["ignored", "disabled", "enabled", "fast-check"]),
    ),
    ("cloneMode", "cloneMode", OneOf(&["", "full-copy", "linked-clone"])),
    ("dataEngine", "dataEngine", OneOf(&["v1"])),
    ("backupTargetName", "backupTargetName", Text),
    ("backupBlockSize", "backupBlockSize", OneOf(&["2097152", "16777216"])),
    ("fromBackup", "", Nothing("a class of volumes from one backup")),
];

fields! {
    struct JobParameter<'a> {
        recurring_job_selector: &'a str,
    }

    /// An entry of the selector, which is JSON in a text.
    struct JobChoice<'a> {
        name: &'a str,
        is_group: bool,
    }
}

/// Why no volume can be made by these parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterError {
    #[error("parameter {parameter} \"{value}\" is invalid: it must be {wants}")]
    Invalid { parameter: &'static str, value: String, wants: String },
    #[error("parameter {parameter} is not supported: {what} cannot be made yet")]
    Unsupported { parameter: &'static str, what: &'static str },
    #[error("parameter {parameter} is needed by an encrypted volume")]
    Missing { parameter: &'static str },
}

/// The part of a volume's spec that its class decides.
pub(super) fn spec(parameters: &Value) -> Result<Map<String, Value>, ParameterError> {
    let parameters: BTreeMap<&str, &str> = object::read(parameters);
    let mut spec = Map::new();
    for (parameter, field, takes) in PARAMETERS {
        let Some(text) = parameters.get(parameter) else { continue };
        let value = read(*takes, text, parameter)?;
        if !field.is_empty() {
            spec.insert((*field).to_owned(), value);
        }
    }
    if spec.get("dataLocality") == Some(&json!("strict-local"))
        && let Some(count) = spec.get("numberOfReplicas").filter(|count| **count != 1)
    {
        // A class that names no number gets that of the settings.
        return Err(ParameterError::Invalid {
            parameter: "numberOfReplicas",
            value: count.to_string(),
            wants: "1 where dataLocality is strict-local".into(),
        });
    }
    if spec.get("encrypted") == Some(&json!(true)) {
        for parameter in [STAGE_SECRET, STAGE_SECRET_NAMESPACE] {
            if parameters.get(parameter).is_none_or(|own| own.is_empty()) {
                return Err(ParameterError::Missing { parameter });
            }
        }
    }
    Ok(spec)
}

pub(super) const STAGE_SECRET: &str = "csi.storage.k8s.io/node-stage-secret-name";
pub(super) const STAGE_SECRET_NAMESPACE: &str = "csi.storage.k8s.io/node-stage-secret-namespace";

fn read(
    takes: ParameterType,
    text: &str,
    parameter: &'static str,
) -> Result<Value, ParameterError> {
    let invalid =
        |wants: String| ParameterError::Invalid { parameter, value: text.to_owned(), wants };
    match takes {
        Number(least, most) => match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(json!(number)),
            _ if most == LONG => Err(invalid(format!("a whole number from {least}"))),
            _ => Err(invalid(format!("a whole number from {least} to {most}"))),
        },
        Bool => match text {
            "true" => Ok(json!(true)),
            "false" => Ok(json!(false)),
            _ => Err(invalid("true or false".into())),
        },
        OneOf(words) if words.contains(&text) => Ok(json!(text)),
        OneOf(words) => Err(invalid(match words {
            [only] => (*only).to_owned(),
            words => format!("one of {}", words.join(", ")),
        })),
        Words => {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            Ok(words.collect::<Vec<_>>().into())
        }
        Text => Ok(json!(text)),
        Nothing(_) if text.is_empty() => Ok(Value::Null),
        Nothing(what) => Err(ParameterError::Unsupported { parameter, what }),
    }
}

/// The labels by which a volume takes part in recurring jobs.
pub(super) fn job_labels(parameters: &Value) -> Result<Map<String, Value>, ParameterError> {
    let mut labels = Map::new();
    let text = object::read::<JobParameter<'_>>(parameters).recurring_job_selector;
    if text.is_empty() {
        return Ok(labels);
    }
    let invalid = || ParameterError::Invalid {
        parameter: "recurringJobSelector",
        value: text.to_owned(),
        wants: r#"a list such as [{"name":"nightly","isGroup":false}]"#.into(),
    };
    let Ok(Value::Array(jobs)) = serde_json::from_str(text) else { return Err(invalid()) };
    for job in &jobs {
        let JobChoice { name, is_group } = object::read(job);
        if name.is_empty() {
            return Err(invalid());
        }
        let kind = if is_group { "recurring-job-group" } else { "recurring-job" };
        labels.insert(format!("{kind}.longhorn.io/{name}"), json!("enabled"));
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_fields() {
        let parameters = json!({
            "numberOfReplicas": "2", "staleReplicaTimeout": "30", "migratable": "true",
            "diskSelector": "ssd, fast", "dataLocality": "best-effort", "encrypted": "false",
            "fsType": "ext4", "fromBackup": "", "foreignParameter": "x",
        });
        let expected = json!({
            "numberOfReplicas": 2, "staleReplicaTimeout": 30, "migratable": true,
            "diskSelector": ["ssd", "fast"], "dataLocality": "best-effort", "encrypted": false,
        });
        assert_eq!(Value::Object(spec(&parameters).unwrap()), expected);
    }

    #[test]
    fn a_wrong_parameter_is_named_with_what_would_be_right() {
        for (parameters, expected) in [
            (
                json!({"numberOfReplicas": "0"}),
                "parameter numberOfReplicas \"0\" is invalid: it must be a whole number from 1 to 20",
            ),
            (
                json!({"staleReplicaTimeout": "soon"}),
                "parameter staleReplicaTimeout \"soon\" is invalid: it must be a whole number from 0",
            ),
            (
                json!({"migratable": "yes"}),
                "parameter migratable \"yes\" is invalid: it must be true or false",
            ),
            (json!({"dataEngine": "v2"}), "parameter dataEngine \"v2\" is invalid: it must be v1"),
            (
                json!({"replicaAutoBalance": "a"}),
                "parameter replicaAutoBalance \"a\" is invalid: it must be one of ignored, \
                 disabled, least-effort, best-effort",
            ),
            (
                json!({"fromBackup": "s3://b@r/"}),
                "parameter fromBackup is not supported: a class of volumes from one backup cannot be made yet",
            ),
            (
                json!({"dataLocality": "strict-local", "numberOfReplicas": "3"}),
                "parameter numberOfReplicas \"3\" is invalid: it must be 1 where dataLocality is \
                 strict-local",
            ),
            (
                json!({"encrypted": "true"}),
                "parameter csi.storage.k8s.io/node-stage-secret-name is needed by an encrypted \
                 volume",
            ),
        ] {
            assert_eq!(spec(&parameters).unwrap_err().to_string(), expected);
        }
        let local = spec(&json!({"dataLocality": "strict-local"})).unwrap();
        assert_eq!(Value::Object(local), json!({"dataLocality": "strict-local"}));
    }

    #[test]
    fn recurring_jobs_become_labels() {
        let chosen = |text: &str| job_labels(&json!({"recurringJobSelector": text}));
        let labels = chosen(r#"[{"name":"a","isGroup":true},{"name":"b"}]"#).unwrap();
        let expected = json!({
            "recurring-job-group.longhorn.io/a": "enabled",
            "recurring-job.longhorn.io/b": "enabled",
        });
        assert_eq!(Value::Object(labels), expected);
        assert!(chosen("a,b").is_err() && chosen(r#"[{"isGroup":true}]"#).is_err());
    }
}
