//! Requests that the node of a running instance answers.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::{InstanceAct, ObjectRoute};
use crate::{Body, Gateway, GatewayRequest, guard, machine, node, objects};

/// Options are small.
const BODY_LIMIT: usize = 1024 * 1024;

pub(crate) async fn answer(
    gateway: &Gateway,
    at: &ObjectRoute,
    act: InstanceAct,
    asked: GatewayRequest,
) -> GatewayResult {
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
        InstanceAct::Pause => (Method::PUT, "pause", AnswerKind::Nothing),
        InstanceAct::Unpause => (Method::PUT, "unpause", AnswerKind::Nothing),
        InstanceAct::Freeze => (Method::PUT, "freeze", AnswerKind::Nothing),
        InstanceAct::Unfreeze => (Method::PUT, "unfreeze", AnswerKind::Nothing),
        InstanceAct::Reset => (Method::PUT, "reset", AnswerKind::Nothing),
        InstanceAct::SoftReboot => (Method::PUT, "softreboot", AnswerKind::Nothing),
        InstanceAct::GuestOsInfo => (Method::GET, "guestosinfo", AnswerKind::Json),
        InstanceAct::UserList => (Method::GET, "userlist", AnswerKind::Json),
        InstanceAct::FilesystemList => (Method::GET, "filesystemlist", AnswerKind::Json),
        InstanceAct::Screenshot => (Method::GET, "screenshot", AnswerKind::Picture),
        InstanceAct::Log => (Method::GET, "log", AnswerKind::Text),
        InstanceAct::AddVolume | InstanceAct::RemoveVolume => {
            unreachable!("volumes were dealt with above")
        }
    };
    let mut path = format!("/v1/vmis/{}/{}/{word}", at.namespace, at.name);
    if act == InstanceAct::Screenshot && !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let reply =
        node::ask(gateway.requester().for_machine(&vmi), node_of(&vmi)?, method, &path, body)
            .await?;
    Ok(match kind {
        AnswerKind::Nothing => answer::empty(StatusCode::OK),
        AnswerKind::Json => answer::with_type(StatusCode::OK, "application/json", reply),
        AnswerKind::Text => answer::with_type(StatusCode::OK, "text/plain; charset=utf-8", reply),
        AnswerKind::Picture => answer::with_type(StatusCode::OK, "image/png", reply),
    })
}

/// The type of the node's answer.
enum AnswerKind {
    Nothing,
    Json,
    Picture,
    Text,
}

/// The node that runs an instance.
pub(crate) fn node_of(vmi: &Value) -> Result<&str, GatewayError> {
    vmi["status"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
        .ok_or_else(|| GatewayError::internal("the instance runs, but does not say on which node"))
}

pub(crate) async fn read(body: Body) -> Result<Bytes, GatewayError> {
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    body.map(|body| body.to_bytes()).map_err(|_| {
        GatewayError::bad_request("the request body could not be read, or is too large")
    })
}

/// The options of a request; none at all is as good as `{}`.
pub(crate) fn options(body: &[u8]) -> Result<Value, GatewayError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| GatewayError::body(&error))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        _ => Err(GatewayError::bad_request(
            "Can not unmarshal Request body to struct, error: expected an object",
        )),
    }
}

pub(crate) fn is_dry_run(options: &Value) -> bool {
    options["dryRun"].as_array().is_some_and(|list| list.iter().any(|mode| mode == "All"))
}
