//! Paths of Harvester that are no resources: the health of the backup target, facts of the
//! cluster, and the namespaces of a support bundle.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::{Steve, bundle, route::SteveRoute};

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
            Ok(reply::json(StatusCode::OK, &json!({})))
        }
        ("namespaces", [], "supportbundle") => {
            Ok(reply::json(StatusCode::OK, &json!({"data": bundle::NAMESPACES})))
        }
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

async fn backup_target(steve: &Steve) -> SteveResult {
    match judge(&steve.setting(BACKUP_TARGET).await?) {
        Ok(()) => Ok(reply::empty(StatusCode::OK)),
        Err(message) => Err(SteveError::invalid("InvalidState", message)),
    }
}

fn judge(setting: &Value) -> Result<(), String> {
    let value = setting["value"].as_str().unwrap_or_default();
    if matches!(value, "" | "{}") {
        return Err("backup-target setting is not set".to_owned());
    }
    let target: Value = serde_json::from_str(value).unwrap_or_default();
    let endpoint = target["endpoint"].as_str().unwrap_or_default();
    let conditions = setting["status"]["conditions"].as_array().into_iter().flatten();
    let told = conditions.into_iter().find(|own| own["type"] == "configured");
    if told.is_some_and(|own| own["status"] == "True") {
        return Ok(());
    }
    let why = told.and_then(|own| own["message"].as_str()).unwrap_or("it was not reached yet");
    Err(format!("can't connect to backup target {endpoint}, error: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_set_is_told_apart() {
        for (setting, part) in [
            (Value::Null, "backup-target setting is not set"),
            (json!({"value": "{}"}), "backup-target setting is not set"),
            (json!({"value": r#"{"type":"nfs","endpoint":"nfs://a:/b"}"#}), "nfs://a:/b"),
        ] {
            assert!(judge(&setting).unwrap_err().contains(part), "{setting}");
        }
        let told = |status: &str| {
            json!({"value": "{\"type\":\"s3\"}", "status": {"conditions":
                [{"type": "configured", "status": status, "message": "no route"}]}})
        };
        assert_eq!(judge(&told("True")), Ok(()));
        assert!(judge(&told("False")).unwrap_err().contains("no route"));
    }
}
