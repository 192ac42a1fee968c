//! Settings of Rancher's, under `/v3/settings`: clients read `first-login` and write `server-url`
//! when they set a server up. The API server authorizes in the caller's name.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{collection, fields};
use crate::caller::Session;
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::{Body, RequestHead};

const SETTINGS: &str = "/apis/management.cattle.io/v3/settings";
/// The address of this server, which clients of guest clusters are given.
const SERVER_URL: &str = "server-url";

/// Answers for all settings, or for the one of a name.
pub(super) async fn answer(
    session: &Session<'_>,
    asked: &RequestHead,
    body: Body,
    name: Option<&str>,
) -> SteveResult {
    let base = format!("{}/v3/settings", asked.origin());
    let Some(name) = name else {
        return match asked.parts.method {
            Method::GET | Method::HEAD => list(session, asked, &base).await,
            ref other => Err(SteveError::method_not_allowed(other)),
        };
    };
    if name.contains(['/', '?', '%', '#']) {
        return Err(no_setting(name));
    }
    let stored = match asked.parts.method {
        Method::GET | Method::HEAD => session.find(&format!("{SETTINGS}/{name}")).await?,
        Method::PUT | Method::PATCH => Some(write(session, asked, body, name).await?),
        ref other => return Err(SteveError::method_not_allowed(other)),
    };
    let stored = stored.or_else(|| (name == SERVER_URL).then(|| unset(&asked.origin())));
    let setting = stored.ok_or_else(|| no_setting(name))?;
    Ok(reply::json(StatusCode::OK, &shown(&setting, &base)))
}

fn no_setting(name: &str) -> SteveError {
    SteveError::not_found(format!("settings {name:?} not found"))
}

async fn list(session: &Session<'_>, asked: &RequestHead, base: &str) -> SteveResult {
    let mut stored = session.get(SETTINGS).await?;
    let Value::Array(mut all) = stored["items"].take() else { return Err(no_setting("")) };
    if !all.iter().any(|own| own["metadata"]["name"] == SERVER_URL) {
        all.push(unset(&asked.origin()));
    }
    let data = all.iter().map(|own| shown(own, base)).collect();
    Ok(collection("setting", base, data))
}

/// Stores a value; the object may not exist yet.
async fn write(
    session: &Session<'_>,
    asked: &RequestHead,
    body: Body,
    name: &str,
) -> Result<Value, SteveError> {
    let fields = fields(asked, body).await?;
    let Some(value) = fields.get("value").and_then(Value::as_str) else {
        return Err(SteveError::invalid("MissingRequired", "value is required"));
    };
    let change = json!({"value": value});
    match session.merge(&format!("{SETTINGS}/{name}"), &change).await {
        Err(error) if error.status == StatusCode::NOT_FOUND && name == SERVER_URL => {
            let setting = json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Setting",
                "metadata": {"name": name}, "value": value, "default": "",
            });
            session.post(SETTINGS, &setting).await
        }
        written => written,
    }
}

/// The address by which the client has reached the server.
fn unset(origin: &str) -> Value {
    json!({"metadata": {"name": SERVER_URL}, "value": "", "default": origin})
}

/// A setting as Rancher shows it: the value is the default if none was set.
fn shown(setting: &Value, base: &str) -> Value {
    let text = |field: &str| setting[field].as_str().unwrap_or_default();
    let name = setting["metadata"]["name"].as_str().unwrap_or_default();
    let (own, default) = (text("value"), text("default"));
    let link = format!("{base}/{name}");
    json!({
        "id": name, "name": name, "type": "setting", "baseType": "setting",
        "links": {"self": link, "update": link}, "actions": {},
        "created": setting["metadata"]["creationTimestamp"], "uuid": setting["metadata"]["uid"],
        "value": if own.is_empty() { default } else { own }, "default": default,
        "customized": !own.is_empty() && own != default, "source": text("source"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_shows_its_default_until_it_has_a_value() {
        let base = "https://h/v3/settings";
        let url = shown(&unset("https://h"), base);
        assert_eq!((&url["value"], &url["customized"]), (&json!("https://h"), &json!(false)));
        assert_eq!(url["links"]["self"], "https://h/v3/settings/server-url");
        let set = json!({"metadata": {"name": "server-url", "uid": "7"}, "value": "https://x"});
        let set = shown(&set, base);
        assert_eq!((&set["value"], &set["customized"]), (&json!("https://x"), &json!(true)));
        assert_eq!(
            (&set["id"], &set["type"], &set["uuid"]),
            (&json!("server-url"), &json!("setting"), &json!("7"))
        );
    }
}
