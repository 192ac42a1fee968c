//! Actions on resources: `POST …?action=NAME`. The objects to write are decided by pure functions
//! (`possible`, `machine_change`, `volume_object`); the rest sends it in the caller's name.
//!
//! Failures are plain text, which Harvester's clients search for words.

mod declared;
mod key_pair;
mod machine;
mod machine_change;
mod machine_device;
mod migration;
mod node;
mod node_selector;
mod possible;
mod quota;
mod required;
mod storage_migration;
mod template;
mod volume;
mod volume_export;
mod volume_object;

pub(crate) use declared::{
    ActionInput, INPUTS, of_collection as collection_actions, of_resources as resource_actions,
};
pub(crate) use node::preview as maintenance_preview;

use client::CatalogKind;
use http::StatusCode;
use serde_json::{Map, Value};

use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveReply, SteveResult};
use crate::request::{self, Body, RequestHead};

pub(crate) use possible::{has_data, is_downloadable, possible};
pub(crate) use required::ActionRights;

/// The actions of the collection of a type.
pub(crate) fn collection_names(kind: &CatalogKind) -> &'static [&'static str] {
    if kind.is("harvesterhci.io", "keypairs") { &["keygen"] } else { &[] }
}

/// Whether an action only patches this object: the right to patch it is enough then.
pub(crate) fn is_patch(kind: &CatalogKind, action: &str, object: &Value) -> bool {
    kind.is("kubevirt.io", "virtualmachines")
        && match action {
            "start" => machine_change::start(object).is_some(),
            "stop" => machine_change::stop(object).is_some(),
            _ => false,
        }
}

/// The object that an action is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActionTarget<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Its path in the Kubernetes API.
    pub(crate) path: &'a str,
}

/// The parameters in the body of an action.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    fields: Map<String, Value>,
    /// Whether the request had no body.
    is_absent: bool,
}

impl Input {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A whole number, which some clients send as a text; 0 if it is missing.
    pub(crate) fn number(&self, name: &str) -> i64 {
        match self.fields.get(name) {
            Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
            Some(Value::String(text)) => text.parse().unwrap_or(0),
            _ => 0,
        }
    }

    /// A flag, which some clients send as a text.
    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.fields.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }
}

/// Carries an action out; nothing if resources of the type do not have it.
pub(crate) async fn answer(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    body: Body,
    target: ActionTarget<'_>,
    action: &str,
) -> Option<SteveResult> {
    let known = possible::names(call.kind);
    if !known.contains(&action) {
        return None;
    }
    let input = match read(asked, body).await {
        Ok(input) => input,
        Err(error) => return Some(Err(error)),
    };
    // Its parameters are optional, but as upstream the body is not.
    if action == "migrate" && input.is_absent {
        return Some(Err(invalid("Failed to decode request body: EOF")));
    }
    let outcome = match (&*call.kind.group, &*call.kind.plural) {
        ("kubevirt.io", "virtualmachines") => machine::run(call, target, action, &input).await,
        ("", "namespaces") => quota::run(call, target, action, &input).await,
        ("", "nodes") => node::run(call, target, action, &input).await,
        _ => volume::run(call, target, action, &input).await,
    };
    Some(outcome.map_err(|error| SteveError { is_text: true, ..error }))
}

/// Carries out an action of a collection; nothing if the type does not have it.
pub(crate) async fn of_collection(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    body: Body,
    action: &str,
) -> Option<SteveResult> {
    if !collection_names(call.kind).contains(&action) {
        return None;
    }
    let outcome = match read(asked, body).await {
        Ok(input) => key_pair::generate(call, &input).await,
        Err(error) => Err(error),
    };
    Some(outcome.map_err(|error| SteveError { is_text: true, ..error }))
}

async fn read(asked: &RequestHead, body: Body) -> Result<Input, SteveError> {
    let bytes = request::read(body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Input { is_absent: true, ..Input::default() });
    }
    let parsed = request::parse(&asked.parts, &bytes);
    parsed.map(|fields| Input { fields, is_absent: false }).map_err(|error| {
        let message = format!("Failed to decode request body: {}", error.message);
        invalid(&message)
    })
}

/// A parameter is missing or wrong: `InvalidBodyContent 422: …`.
fn invalid(message: &str) -> SteveError {
    let message = format!("InvalidBodyContent 422: {message}");
    SteveError { is_text: true, ..SteveError::invalid("InvalidBodyContent", message) }
}

/// The action cannot be done now. Harvester answers 500 to all of these.
fn impossible(message: impl Into<String>) -> SteveError {
    SteveError::new(StatusCode::INTERNAL_SERVER_ERROR, "ServerError", message)
}

fn done() -> SteveReply {
    reply::empty(StatusCode::NO_CONTENT)
}

/// A suffix that makes a name unique.
fn suffix() -> String {
    crate::login::token::random_text(5)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_read_leniently() {
        let Value::Object(fields) = json!({"name": "a", "force": "true", "withData": true, "n": 1})
        else {
            unreachable!("it is an object")
        };
        let input = Input { fields, is_absent: false };
        assert_eq!((input.text("name"), input.text("n"), input.text("x")), ("a", "", ""));
        assert!(input.flag("force") && input.flag("withData") && !input.flag("name"));
    }

    #[test]
    fn wrong_parameters_are_reported_as_text() {
        let error = invalid("Parameter `name` is required");
        assert_eq!(error.message, "InvalidBodyContent 422: Parameter `name` is required");
        assert!(error.is_text && error.status == 422);
    }
}
