//! A machine with its instance type and preference written out.

use std::cell::RefCell;

use http::StatusCode;
use serde_json::Value;
use virt::ClusterConfig;
use virt::admit::Objects;
use virt::instancetype::{self, ExpandError};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::{Gateway, GatewayRequest, instance, objects};

/// A machine that was sent, not stored.
pub(crate) async fn sent(
    gateway: &Gateway,
    namespace: &str,
    asked: GatewayRequest,
) -> GatewayResult {
    let body = instance::read(asked.body).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(GatewayError::bad_request("empty request body"));
    }
    let mut vm = instance::options(&body)?;
    if vm["kind"] != "VirtualMachine" {
        return Err(GatewayError::bad_request("Object is not a valid VirtualMachine"));
    }
    let given = vm["metadata"]["namespace"].as_str().unwrap_or("");
    if !given.is_empty() && given != namespace {
        return Err(GatewayError::bad_request(format!(
            "VM namespace must be empty or {namespace}, found {given}"
        )));
    }
    vm["metadata"]["namespace"] = namespace.into();
    machine(gateway, vm).await
}

pub(crate) async fn machine(gateway: &Gateway, vm: Value) -> GatewayResult {
    let namespace = vm["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
    let (there, name) = virt::KUBEVIRT;
    let path = format!("/{}/namespaces/{there}/kubevirts/{name}", objects::MACHINES);
    let kubevirt = objects::find(&gateway.client, &path).await?.unwrap_or(Value::Null);
    let config = ClusterConfig::new(&kubevirt, "");
    let known = References::fetch(gateway, &vm, &namespace).await?;
    match instancetype::expand(&vm, &namespace, &known, &config) {
        Ok(expanded) => Ok(answer::json(StatusCode::OK, &expanded)),
        Err(error @ ExpandError::NotFound { .. }) => {
            Err(GatewayError::with_message(StatusCode::NOT_FOUND, error.to_string()))
        }
        Err(error) => Err(GatewayError::with_message(StatusCode::CONFLICT, error.to_string())),
    }
}

/// The objects that a machine refers to, fetched in advance.
#[derive(Default)]
struct References(Vec<(String, Value)>);

impl References {
    async fn fetch(gateway: &Gateway, vm: &Value, namespace: &str) -> Result<Self, GatewayError> {
        // A referenced object may refer to others: fetch until none is missing.
        let mut known = Self::default();
        loop {
            let paths = known.missing(vm, namespace);
            if paths.is_empty() {
                return Ok(known);
            }
            for path in paths {
                let found = objects::find(&gateway.client, &path).await?.unwrap_or(Value::Null);
                known.0.push((path, found));
            }
        }
    }

    /// The paths of referenced objects that were not fetched yet.
    fn missing(&self, vm: &Value, namespace: &str) -> Vec<String> {
        let wanted = MissingReferences::default();
        let _ = instancetype::Sizing::find(
            vm,
            namespace,
            &ExpandedObjects { known: self, wanted: &wanted },
        );
        wanted.0.into_inner()
    }

    fn find(&self, path: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == path).map(|(_, object)| object)
    }
}

fn path(group: &str, plural: &str, namespace: &str, name: &str) -> String {
    let version = if group == "instancetype.kubevirt.io" { "v1beta1" } else { "v1" };
    match namespace {
        "" => format!("/apis/{group}/{version}/{plural}/{name}"),
        _ => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

impl Objects for References {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.find(&path(group, plural, namespace, name))?;
        (!found.is_null()).then(|| found.clone())
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }
}

/// Notes what is missing.
#[derive(Default)]
struct MissingReferences(RefCell<Vec<String>>);

struct ExpandedObjects<'a> {
    known: &'a References,
    wanted: &'a MissingReferences,
}

impl Objects for ExpandedObjects<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let path = path(group, plural, namespace, name);
        if self.known.find(&path).is_none() {
            self.wanted.0.borrow_mut().push(path);
        }
        self.known.get(group, plural, namespace, name)
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }
}
