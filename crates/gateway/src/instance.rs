//! Requests that the node of a running instance answers.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use crate::answer::{self, Failure, Outcome};
use crate::route::{At, InstanceAct};
use crate::{Asked, Body, Gateway, guard, machine, node, objects};

/// Options are small.
const BODY_LIMIT: usize = 1024 * 1024;

pub(crate) async fn answer(gateway: &Gateway, at: &At, act: InstanceAct, asked: Asked) -> Outcome {
    let query = asked.parts.uri.query().unwrap_or("").to_owned();
    let body = read(asked.body).await?;
    if matches!(act, InstanceAct::AddVolume | InstanceAct::RemoveVolume) {
        return machine::volume_of_instance(gateway, at, act, &body).await;
    }
    let options = options(&body)?;
    let vmi = objects::instance(&gateway.client, at).await?;
    let owner = match act {
        InstanceAct::Unpause => objects::find(&gateway.client, &objects::machine_path(at)).await?,
        _ => None,
    };
    guard::act(&vmi, owner.as_ref(), act)?;
    if is_dry_run(&options) {
        return Ok(answer::empty(StatusCode::OK));
    }
    let (method, word, kind) = match act {
        InstanceAct::Pause => (Method::PUT, "pause", Kind::Nothing),
        InstanceAct::Unpause => (Method::PUT, "unpause", Kind::Nothing),
        InstanceAct::Freeze => (Method::PUT, "freeze", Kind::Nothing),
        InstanceAct::Unfreeze => (Method::PUT, "unfreeze", Kind::Nothing),
        InstanceAct::Reset => (Method::PUT, "reset", Kind::Nothing),
        InstanceAct::SoftReboot => (Method::PUT, "softreboot", Kind::Nothing),
        InstanceAct::GuestOsInfo => (Method::GET, "guestosinfo", Kind::Json),
        InstanceAct::UserList => (Method::GET, "userlist", Kind::Json),
        InstanceAct::FilesystemList => (Method::GET, "filesystemlist", Kind::Json),
        InstanceAct::Screenshot => (Method::GET, "screenshot", Kind::Picture),
        InstanceAct::Log => (Method::GET, "log", Kind::Text),
        InstanceAct::AddVolume | InstanceAct::RemoveVolume => {
            unreachable!("volumes were dealt with above")
        }
    };
    let mut path = format!("/v1/vmis/{}/{}/{word}", at.namespace, at.name);
    if act == InstanceAct::Screenshot && !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let told = node::ask(&*gateway.nodes, node_of(&vmi)?, method, &path, body).await?;
    Ok(match kind {
        Kind::Nothing => answer::empty(StatusCode::OK),
        Kind::Json => answer::with_type(StatusCode::OK, "application/json", told),
        Kind::Text => answer::with_type(StatusCode::OK, "text/plain; charset=utf-8", told),
        Kind::Picture => answer::with_type(StatusCode::OK, "image/png", told),
    })
}

/// What the node's answer is.
enum Kind {
    Nothing,
    Json,
    Picture,
    Text,
}

/// The node that runs an instance.
pub(crate) fn node_of(vmi: &Value) -> Result<&str, Failure> {
    vmi["status"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
        .ok_or_else(|| Failure::internal("the instance runs, but does not say on which node"))
}

pub(crate) async fn read(body: Body) -> Result<Bytes, Failure> {
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    body.map(|body| body.to_bytes())
        .map_err(|_| Failure::bad_request("the request body could not be read, or is too large"))
}

/// The options of a request; none at all is as good as `{}`.
pub(crate) fn options(body: &[u8]) -> Result<Value, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| Failure::body(&error))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        _ => Err(Failure::bad_request(
            "Can not unmarshal Request body to struct, error: expected an object",
        )),
    }
}

pub(crate) fn is_dry_run(options: &Value) -> bool {
    options["dryRun"].as_array().is_some_and(|list| list.iter().any(|mode| mode == "All"))
}
