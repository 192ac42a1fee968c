//! The parts of an object that must not leave the cluster in a support bundle. Pure.

use serde_json::Value;

const REDACTED: &str = "redacted";
/// Fields that hold secrets wherever they are.
const SECRET_FIELDS: [&str; 9] = [
    "userData",
    "userDataBase64",
    "networkData",
    "networkDataBase64",
    "password",
    "secretAccessKey",
    "accessKeyId",
    "privateKey",
    "token",
];
/// Copies of whole objects, which may hold secrets.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes secrets from an object.
pub(super) fn redact(object: &mut Value) {
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
        metadata.remove("managedFields");
    }
    let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
    for field in ["data", "stringData"] {
        if !is_secret {
            break;
        }
        if let Some(Value::Object(fields)) = object.get_mut(field) {
            fields.values_mut().for_each(|value| *value = REDACTED.into());
        }
    }
    redact_fields(object);
}

fn redact_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let holds = SECRET_FIELDS.contains(&name.as_str());
                match field {
                    Value::String(text) if holds && !text.is_empty() => {
                        *field = REDACTED.into();
                    }
                    // Settings are JSON in a text.
                    Value::String(text) if text.starts_with('{') || text.starts_with('[') => {
                        if let Ok(mut parsed) = serde_json::from_str::<Value>(text) {
                            redact_fields(&mut parsed);
                            *text = parsed.to_string();
                        }
                    }
                    _ => redact_fields(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_fields),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_do_not_leave_the_cluster() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "hush"}}),
            json!({"kind": "Token", "token": "hush", "userName": "jane"}),
            json!({"kind": "Setting", "value": r#"{"type":"s3","secretAccessKey":"hush"}"#}),
            json!({"kind": "VirtualMachine", "spec": {"volumes": [
                {"cloudInitNoCloud": {"userData": "hush"}}]}}),
            json!({"metadata": {"annotations": {LAST_APPLIED: "hush"}, "managedFields": "hush"}}),
        ] {
            let mut object = object;
            redact(&mut object);
            assert!(!object.to_string().contains("hush"), "{object}");
        }
        let mut plain = json!({"kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": "c"}});
        let before = plain.clone();
        redact(&mut plain);
        assert_eq!(plain, before);
    }
}
