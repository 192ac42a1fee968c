//! Paths of Harvester that are no resources: the health of the backup target, facts of the
//! cluster, its readiness, the sources of the dashboard, and preferences of users.

use hci::cluster_setting::effective;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::{Steve, route::SteveRoute};

pub(crate) const BACKUP_TARGET: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";

/// Answers for the path, or nothing if it is not one of these.
pub(crate) async fn answer(
    steve: &Steve,
    asked: &RequestHead,
    route: &SteveRoute,
) -> Option<SteveResult> {
    let rest: Vec<&str> = route.rest.iter().map(String::as_str).collect();
    let link = asked.parameter("link").unwrap_or_default();
    let answer = match (&*route.type_name, rest.as_slice(), &*link) {
        ("backuptarget", ["healthz"], _) => backup_target(steve).await,
        ("cluster", ["local"], "machineTypes") | ("cluster", ["local", "machineTypes"], _) => {
            Ok(reply::json(StatusCode::OK, &json!(machine_types())))
        }
        ("cluster", ["local"], "deviceCapacity") | ("cluster", ["local", "deviceCapacity"], _) => {
            device_capacity(steve).await
        }
        ("ui-info", [], _) => ui_info(steve).await,
        ("readyz", [], _) => readiness(steve).await,
        ("userpreferences" | "userpreference", rest, _) => preferences(asked, route, rest),
        _ => return None,
    };
    if matches!(asked.parts.method, Method::GET | Method::HEAD) {
        return Some(answer);
    }
    Some(Err(SteveError::method_not_allowed(&asked.parts.method)))
}

fn machine_types() -> &'static [&'static str] {
    if cfg!(target_arch = "aarch64") { &["virt"] } else { &["q35"] }
}

/// Read as the server, as Harvester does: nothing of single machines is shown.
async fn device_capacity(steve: &Steve) -> SteveResult {
    let nodes = steve.setting("/api/v1/nodes").await?;
    let machines = steve.setting("/apis/kubevirt.io/v1/virtualmachines").await?;
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let capacity = hci::device_capacity::capacity(&items(&nodes), &items(&machines));
    Ok(reply::json(StatusCode::OK, &json!(capacity)))
}

/// Which files the dashboard is made of: always those of the program.
async fn ui_info(steve: &Steve) -> SteveResult {
    let mut info = json!({"ui-plugin-bundled-version": ""});
    for name in ["ui-source", "ui-index", "ui-plugin-index"] {
        let path = format!("/apis/harvesterhci.io/v1beta1/settings/{name}");
        let setting = steve.setting(&path).await?;
        info[name] = effective(name, Some(&setting)).into();
    }
    if info["ui-source"] == "auto" {
        info["ui-source"] = "bundled".into();
    }
    Ok(reply::json(StatusCode::OK, &info))
}

async fn readiness(steve: &Steve) -> SteveResult {
    let parts = [
        steve.setting("/api/v1/nodes").await?,
        steve.setting("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/nodes").await?,
        steve.setting("/apis/kubevirt.io/v1/kubevirts").await?,
    ];
    let mut shown = json!({"timestamp": base::clock::rfc3339(base::clock::now())});
    let failure = unready(&parts);
    shown["ready"] = failure.is_none().into();
    if let Some(message) = failure {
        shown["msg"] = message.into();
    }
    Ok(reply::json(StatusCode::OK, &shown))
}

/// The first part of the cluster that is not ready, in Harvester's words: the nodes, the storage
/// nodes, and the installation of KubeVirt.
fn unready([nodes, storage, kubevirt]: &[Value; 3]) -> Option<&'static str> {
    let has = |object: &Value, name: &str| {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|own| own["type"] == name && own["status"] == "True")
    };
    let any = |list: &Value, name: &str| {
        list["items"].as_array().is_some_and(|all| all.iter().any(|own| has(own, name)))
    };
    match () {
        () if !any(nodes, "Ready") => Some("rkeControlPlane is not ready"),
        () if !any(storage, "Ready") => Some("longhorn-manager pods not ready"),
        () if !any(kubevirt, "Available") => Some("virt-controller pods not ready"),
        () => None,
    }
}

/// Preferences of the caller, of which there are none: the dashboard keeps its own in the browser.
fn preferences(asked: &RequestHead, route: &SteveRoute, rest: &[&str]) -> SteveResult {
    let user = asked.caller.as_ref().map_or("", |caller| &caller.name);
    let origin = asked.origin();
    let base = format!("{origin}{}/userpreferences", route.prefix);
    let own = json!({
        "id": user, "type": "userpreference", "links": {"self": format!("{base}/{user}")},
        "data": {},
    });
    match rest {
        [] => Ok(reply::json(
            StatusCode::OK,
            &json!({
                "type": "collection", "links": {"self": base}, "createTypes": {}, "actions": {},
                "resourceType": "userpreference", "count": 1, "data": [own],
            }),
        )),
        [name] if *name == user => Ok(reply::json(StatusCode::OK, &own)),
        _ => Err(SteveError::not_found(format!("userpreferences {rest:?} not found"))),
    }
}

async fn backup_target(steve: &Steve) -> SteveResult {
    match judge(&steve.setting(BACKUP_TARGET).await?) {
        Ok(()) => Ok(reply::empty(StatusCode::OK)),
        Err(error) => Err(SteveError::invalid("InvalidState", error.to_string())),
    }
}

/// Why the backup target cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BackupTargetError {
    #[error("backup-target setting is not set")]
    NotSet,
    #[error("can't connect to backup target {endpoint}, error: {reason}")]
    Unreachable { endpoint: String, reason: String },
}

fn judge(setting: &Value) -> Result<(), BackupTargetError> {
    let value = setting["value"].as_str().unwrap_or_default();
    if matches!(value, "" | "{}") {
        return Err(BackupTargetError::NotSet);
    }
    let target: Value = serde_json::from_str(value).unwrap_or_default();
    let endpoint = target["endpoint"].as_str().unwrap_or_default().to_owned();
    let conditions = setting["status"]["conditions"].as_array().into_iter().flatten();
    let configured = conditions.into_iter().find(|own| own["type"] == "configured");
    if configured.is_some_and(|own| own["status"] == "True") {
        return Ok(());
    }
    let reason =
        configured.and_then(|own| own["message"].as_str()).unwrap_or("it was not reached yet");
    Err(BackupTargetError::Unreachable { endpoint, reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_that_is_not_ready_is_reported() {
        let ready = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        let list =
            |status: &str| json!({"items": [ready("Ready", "False"), ready("Ready", status)]});
        for (nodes, storage, kubevirt, expected) in [
            ("True", "True", "True", None),
            ("False", "False", "True", Some("rkeControlPlane is not ready")),
            ("True", "False", "True", Some("longhorn-manager pods not ready")),
            ("True", "True", "False", Some("virt-controller pods not ready")),
        ] {
            let kubevirts = json!({"items": [ready("Available", kubevirt)]});
            let parts = [list(nodes), list(storage), kubevirts];
            assert_eq!(unready(&parts), expected);
        }
        let none = [Value::Null, Value::Null, Value::Null];
        assert_eq!(unready(&none), Some("rkeControlPlane is not ready"));
    }

    #[test]
    fn a_target_that_is_not_set_is_distinguished() {
        for (setting, part) in [
            (Value::Null, "backup-target setting is not set"),
            (json!({"value": "{}"}), "backup-target setting is not set"),
            (json!({"value": r#"{"type":"nfs","endpoint":"nfs://a:/b"}"#}), "nfs://a:/b"),
        ] {
            assert!(judge(&setting).unwrap_err().to_string().contains(part), "{setting}");
        }
        let setting = |status: &str| {
            json!({"value": "{\"type\":\"s3\"}", "status": {"conditions":
                [{"type": "configured", "status": status, "message": "no route"}]}})
        };
        assert_eq!(judge(&setting("True")), Ok(()));
        assert!(judge(&setting("False")).unwrap_err().to_string().contains("no route"));
    }
}
