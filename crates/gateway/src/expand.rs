//! A machine with its instance type and preference written out.

use http::StatusCode;
use serde_json::Value;

use crate::answer::{self, Failure, Outcome};
use crate::{Asked, Gateway, instance};

/// A machine that was sent, not stored.
pub(crate) async fn sent(gateway: &Gateway, namespace: &str, asked: Asked) -> Outcome {
    let body = instance::read(asked.body).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::bad_request("empty request body"));
    }
    let mut vm = instance::options(&body)?;
    if vm["kind"] != "VirtualMachine" {
        return Err(Failure::bad_request("Object is not a valid VirtualMachine"));
    }
    let given = vm["metadata"]["namespace"].as_str().unwrap_or("");
    if !given.is_empty() && given != namespace {
        return Err(Failure::bad_request(format!(
            "VM namespace must be empty or {namespace}, found {given}"
        )));
    }
    vm["metadata"]["namespace"] = namespace.into();
    machine(gateway, vm).await
}

pub(crate) async fn machine(_gateway: &Gateway, vm: Value) -> Outcome {
    Ok(answer::json(StatusCode::OK, &vm))
}
