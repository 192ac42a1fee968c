//! Templates of machines, processed by the server: the group `subresources.template.kubevirt.io`.

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;
use virt::api::template::VirtualMachineTemplate;

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::ObjectRoute;
use crate::{Gateway, GatewayRequest, instance, objects};

/// Answers the machine that a template and parameters make.
pub(crate) async fn process(
    gateway: &Gateway,
    at: &ObjectRoute,
    asked: GatewayRequest,
) -> GatewayResult {
    let processed = processed(gateway, at, asked).await?;
    Ok(answer::json(StatusCode::OK, &processed))
}

/// Creates that machine as well, as the caller: a template must not lend a user the rights of
/// this server, which could clone the disks of other namespaces.
pub(crate) async fn create(
    gateway: &Gateway,
    at: &ObjectRoute,
    asked: GatewayRequest,
) -> GatewayResult {
    let forbidden = |message: String| GatewayError::with_message(StatusCode::FORBIDDEN, message);
    let caller = asked.caller.clone().unwrap_or_default();
    let headers = caller.headers().map_err(|error| forbidden(error.to_string()))?;
    let mut processed = processed(gateway, at, asked).await?;
    let machine = &mut processed["virtualMachine"];
    let path = format!("/{}/namespaces/{}/virtualmachines", objects::MACHINES, at.namespace);
    let made = objects::post_as(&gateway.impersonator, headers, &path, machine).await;
    *machine = made.map_err(|mut failure| {
        failure.message = format!("error creating VirtualMachine: {}", failure.message);
        failure
    })?;
    Ok(answer::json(StatusCode::OK, &processed))
}

async fn processed(
    gateway: &Gateway,
    at: &ObjectRoute,
    asked: GatewayRequest,
) -> Result<Value, GatewayError> {
    let body = instance::read(asked.body).await?;
    let options = instance::options(&body)?;
    let parameters = match &options["parameters"] {
        Value::Null => json!({}),
        given => given.clone(),
    };
    let given = serde_json::from_value(parameters).map_err(|error| GatewayError::body(&error))?;
    let path = format!(
        "/apis/template.kubevirt.io/v1beta1/namespaces/{}/virtualmachinetemplates/{}",
        at.namespace, at.name
    );
    let found = objects::find(&gateway.client, &path).await?;
    let found = found.ok_or_else(|| GatewayError::not_found("virtualmachinetemplate", &at.name))?;
    let reference = json!({
        "apiVersion": "template.kubevirt.io/v1beta1", "kind": "VirtualMachineTemplate",
        "namespace": at.namespace, "name": at.name, "uid": found["metadata"]["uid"],
    });
    let template: VirtualMachineTemplate =
        serde_json::from_value(found).map_err(GatewayError::internal)?;
    let made = virt::template::process(&template, &given, &mut random).map_err(|failure| {
        GatewayError::with_message(StatusCode::UNPROCESSABLE_ENTITY, failure.to_string())
    })?;
    let mut processed = json!({
        "apiVersion": "subresources.template.kubevirt.io/v1beta1",
        "kind": "ProcessedVirtualMachineTemplate",
        "templateRef": reference,
        "virtualMachine": made.machine,
    });
    if !made.message.is_empty() {
        processed["message"] = made.message.into();
    }
    Ok(processed)
}

/// A random number below `below`.
fn random(below: usize) -> usize {
    let number = Uuid::new_v4().as_u128() >> 64;
    usize::try_from(number % (below.max(1) as u128)).unwrap_or_default()
}
