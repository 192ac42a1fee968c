//! The parts of an object that must not leave the cluster in a support bundle. Pure.

use serde_json::Value;

const REDACTED: &str = "redacted";
/// Fields that hold secrets wherever they are, however they are capitalized: the settings of
/// containerd have `Password`.
const SECRET_FIELDS: [&str; 11] = [
    "userdata",
    "userdatabase64",
    "networkdata",
    "networkdatabase64",
    "password",
    "auth",
    "identitytoken",
    "secretaccesskey",
    "accesskeyid",
    "privatekey",
    "token",
];
/// The setting whose URL has a token in its path.
const REGISTRATION: &str = "cluster-registration-url";
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
    if object["kind"] == "Setting" && object["metadata"]["name"] == REGISTRATION {
        for field in ["value", "default"] {
            if object[field].as_str().is_some_and(|text| !text.is_empty()) {
                object[field] = REDACTED.into();
            }
        }
    }
    redact_fields(object);
}

fn redact_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let holds = SECRET_FIELDS.contains(&name.to_lowercase().as_str());
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
        Value::String(text) => {
            if let Some(plain) = without_credentials(text) {
                *text = plain;
            }
        }
        _ => {}
    }
}

/// A URL without its user and password; `None` if it has none.
fn without_credentials(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (_, host) = rest[..end].rsplit_once('@')?;
    Some(format!("{scheme}://{REDACTED}@{host}{}", &rest[end..]))
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
            json!({"kind": "Setting", "value":
                r#"{"Configs":{"docker.io":{"Auth":{"Username":"jane","Password":"hush"}}}}"#}),
            json!({"kind": "Setting", "value": r#"{"Configs":{"a":{"Auth":{"Auth":"hush"}}}}"#}),
            json!({"kind": "Setting", "metadata": {"name": "http-proxy"},
                "value": r#"{"httpProxy":"http://jane:hush@proxy:3128"}"#}),
            json!({"kind": "Setting", "metadata": {"name": "cluster-registration-url"},
                "value": "https://rancher/v3/import/hush.yaml"}),
            json!({"kind": "VirtualMachineImage", "spec": {"url": "https://u:hush@h/a.img?b"}}),
            json!({"metadata": {"annotations": {LAST_APPLIED: "hush"}, "managedFields": "hush"}}),
        ] {
            let mut object = object;
            redact(&mut object);
            assert!(!object.to_string().contains("hush"), "{object}");
        }
        let mut plain = json!({"kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": "c"}});
        plain["data"]["url"] = "https://h/user@host".into();
        plain["data"]["mail"] = "jane@example.org".into();
        let before = plain.clone();
        redact(&mut plain);
        assert_eq!(plain, before);
    }
}
