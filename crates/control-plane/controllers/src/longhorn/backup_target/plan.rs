//! The backup target of the setting, and the status of the target: pure.

use hci::cluster::is_witness;
use hci::longhorn::BACKUP_TARGET_SECRET;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::longhorn::record::BackupTargetFields;
use crate::object::{is_merged, label, name, read};
use crate::record::condition::of_type;
use crate::record::{fields, setting};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// How often a target is read unless the setting says otherwise.
const REFRESH_SECONDS: i64 = 60;

fields! {
    /// The value of the setting, which is JSON.
    struct TargetValue<'a> {
        kind as "type": &'a str,
        endpoint: &'a str,
        bucket_name: &'a str,
        bucket_region: &'a str,
        access_key_id: &'a str,
        secret_access_key: &'a str,
        cert: &'a str,
        virtual_hosted_style: bool,
        refresh_interval_in_seconds: Option<i64>,
    }
}

/// The fields of the value that move to the secret.
const KEYS: [&str; 2] = ["accessKeyId", "secretAccessKey"];

/// The target that a value of the setting describes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedTarget {
    pub(super) patch: Value,
    /// The content of the secret, if the value has keys.
    pub(super) secret: Option<Value>,
    /// The value without its keys, if it has some.
    pub(super) stripped: Option<String>,
}

/// Nothing if the value is none of a target: the target is for others to change then.
pub(super) fn target(value: &str) -> Option<WantedTarget> {
    let parsed: Value = match value {
        // A setting that was never used does not change a target that a user created.
        "" => return None,
        value => serde_json::from_str(value).ok()?,
    };
    let wanted: TargetValue<'_> = read(&parsed);
    let (url, credential) = match wanted.kind {
        "s3" => {
            let (bucket, region) = (wanted.bucket_name, wanted.bucket_region);
            (format!("s3://{bucket}@{region}/"), BACKUP_TARGET_SECRET)
        }
        "nfs" => {
            let endpoint = wanted.endpoint.strip_prefix("nfs://").unwrap_or(wanted.endpoint);
            (format!("nfs://{endpoint}"), "")
        }
        _ => (String::new(), ""),
    };
    let refresh = wanted.refresh_interval_in_seconds.unwrap_or(REFRESH_SECONDS);
    let patch = json!({"spec": {
        "backupTargetURL": url, "credentialSecret": credential,
        "pollInterval": format!("{}s", refresh.max(0)),
    }});
    let has_keys = !wanted.access_key_id.is_empty() && !wanted.secret_access_key.is_empty();
    if wanted.kind != "s3" || !has_keys {
        return Some(WantedTarget { patch, secret: None, stripped: None });
    }
    let secret = json!({
        "AWS_ACCESS_KEY_ID": wanted.access_key_id,
        "AWS_SECRET_ACCESS_KEY": wanted.secret_access_key,
        "AWS_ENDPOINTS": wanted.endpoint,
        "AWS_CERT": wanted.cert,
        "VIRTUAL_HOSTED_STYLE": wanted.virtual_hosted_style.to_string(),
    });
    let mut stripped = parsed;
    for key in KEYS {
        stripped[key] = json!("");
    }
    Some(WantedTarget { patch, secret: Some(secret), stripped: Some(stripped.to_string()) })
}

/// The node that manages the target: the one that does, if it is ready, or another.
pub(super) fn assignment(target: &Value, nodes: &[Value]) -> Option<Value> {
    let BackupTargetFields { spec, status } = read(target);
    let current = status.owner_id;
    if spec.url.is_empty() {
        return (!current.is_empty())
            .then(|| json!({"status": {"ownerID": "", "available": false}}));
    }
    let ready = |node: &&Value| condition::is(node, "Ready", "True") && !is_witness(node);
    let mut usable: Vec<&Value> = nodes.iter().filter(ready).collect();
    if usable.iter().any(|node| name(node) == current) {
        return None;
    }
    let is_worker = |node: &Value| label(node, CONTROL_PLANE).is_none();
    usable.sort_by_key(|node| (is_worker(node), name(node).to_owned()));
    let chosen = usable.first().map(|node| name(node))?;
    Some(json!({"status": {"ownerID": chosen}}))
}

/// The condition of the setting, if it does not say what the target does.
pub(super) fn setting_status(setting: &Value, target: &Value, now: Timestamp) -> Option<Value> {
    let value = setting::value(setting);
    if value.is_empty() && condition::of(setting).is_empty() {
        return None;
    }
    let status = read::<BackupTargetFields<'_>>(target).status;
    let why = of_type(&status.conditions, "Unavailable").map_or("", |own| own.message);
    let wanted = match status.available {
        _ if matches!(value, "" | "{}") => Condition::new("configured", "False"),
        Some(true) => Condition::new("configured", "True").because("Completed", ""),
        Some(false) => Condition::new("configured", "False")
            .because("Unavailable", format!("failed to connect to backup target, reason: {why}")),
        None => Condition::new("configured", "False")
            .because("Connecting", "the backup target was not reached yet"),
    };
    let mut conditions = condition::of(setting);
    condition::set(&mut conditions, &wanted, now);
    let patch = json!({"status": {"conditions": conditions}});
    (!is_merged(setting, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    #[test]
    fn keys_move_from_the_setting_to_the_secret() {
        let value = r#"{"type":"s3","endpoint":"http://h:1","accessKeyId":"a",
            "secretAccessKey":"s","bucketName":"b","bucketRegion":"r","virtualHostedStyle":true}"#;
        let own = target(value).unwrap();
        assert_eq!(own.patch["spec"]["backupTargetURL"], "s3://b@r/");
        assert_eq!(own.patch["spec"]["credentialSecret"], BACKUP_TARGET_SECRET);
        let secret = own.secret.unwrap();
        assert_eq!(secret["AWS_SECRET_ACCESS_KEY"], "s");
        assert_eq!(secret["VIRTUAL_HOSTED_STYLE"], "true");
        let stripped = own.stripped.unwrap();
        assert!(!stripped.contains("\"s\"") && stripped.contains("http://h:1"), "{stripped}");
        let again = target(&stripped).unwrap();
        assert_eq!((again.secret, again.stripped), (None, None));
        assert_eq!(again.patch, own.patch);
    }

    #[test]
    fn a_share_needs_no_secret_and_an_empty_object_resets_the_target() {
        let own = target(r#"{"type":"nfs","endpoint":"h:/x","refreshIntervalInSeconds":5}"#);
        let spec = own.unwrap().patch["spec"].clone();
        assert_eq!(spec["backupTargetURL"], "nfs://h:/x");
        assert_eq!((&spec["pollInterval"], &spec["credentialSecret"]), (&json!("5s"), &json!("")));
        assert_eq!(target("{}").unwrap().patch["spec"]["backupTargetURL"], "");
        assert_eq!(target(""), None);
    }

    #[test]
    fn a_ready_node_manages_the_target_and_keeps_doing_so() {
        let node = |name: &str, ready: &str, labels: Value| {
            json!({"metadata": {"name": name, "labels": labels},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let nodes = [
            node("a", "True", json!({})),
            node("b", "True", json!({CONTROL_PLANE: "true"})),
            node("c", "False", json!({CONTROL_PLANE: "true"})),
        ];
        let target = |owner: &str| json!({"spec": {"backupTargetURL": "s3://b@r/"}, "status": {"ownerID": owner}});
        let chosen = |owner: &str| assignment(&target(owner), &nodes);
        assert_eq!(chosen("").unwrap()["status"]["ownerID"], "b");
        assert_eq!(chosen("c").unwrap()["status"]["ownerID"], "b");
        assert_eq!(chosen("a"), None);
        assert_eq!(assignment(&json!({}), &nodes), None);
        let witness = [node("d", "True", json!({hci::cluster::WITNESS_ROLE: "true"}))];
        assert_eq!(assignment(&target(""), &witness), None);
    }

    #[test]
    fn the_setting_says_why_the_target_cannot_be_reached() {
        let setting = json!({"value": "{\"type\":\"nfs\"}"});
        let message = |target: Value| {
            let patch = setting_status(&setting, &target, Timestamp::UNIX_EPOCH).unwrap();
            let own = patch["status"]["conditions"][0].clone();
            (text(&own, "/status").to_owned(), text(&own, "/message").to_owned())
        };
        let down = json!({"status": {"available": false, "conditions":
            [{"type": "Unavailable", "status": "True", "message": "no route"}]}});
        let (status, why) = message(down);
        assert_eq!(status, "False");
        assert_eq!(why, "failed to connect to backup target, reason: no route");
        assert_eq!(message(json!({"status": {"available": true}})).0, "True");
    }
}
