//! Fields that the server sets once the rest of an object is final: addresses and ports of
//! services, the user in a certificate request, the status of a definition or a policy.

use serde_json::{Value, json};

use super::{Operation, policy};
use crate::api::Api;
use crate::schemas::crd;
use crate::setup::service_ip;
use crate::status::ApiResult;
use crate::verbs::call::Call;
use crate::verbs::object;

/// Fills in what the server decides once the rest of the object is settled.
pub(crate) async fn complete(
    call: &Call<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> ApiResult<Reserved> {
    match &*call.served.table {
        "certificatesigningrequests" if operation == Operation::Create => {
            signed_by(object, call.user);
            Ok(Reserved::default())
        }
        crd::TABLE => {
            if operation == Operation::Create {
                object::metadata_mut(object).insert("finalizers".to_owned(), json!([crd::CLEANUP]));
            }
            check_definition(call, object);
            Ok(Reserved::default())
        }
        "validatingadmissionpolicies" => {
            object["status"] = policy::check_types(call.api, object);
            Ok(Reserved::default())
        }
        service_ip::SERVICES if !dry_run => {
            service_ip::assign_node_ports(call.api, object)?;
            let held = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or("");
            if !held.is_empty() && object["spec"]["clusterIP"] == held {
                return Ok(Reserved::default());
            }
            let address = service_ip::assign(call.api, object).await?;
            Ok(Reserved { address })
        }
        _ => Ok(Reserved::default()),
    }
}

/// The allocations of a write, released if the write fails.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    address: Option<String>,
}

impl Reserved {
    pub(crate) async fn settle(self, api: &Api, stored: bool) {
        if let (false, Some(address)) = (stored, self.address) {
            service_ip::release_address(api, &address).await;
        }
    }
}

/// The user in a certificate request is set by the server, never by the client.
fn signed_by(request: &mut Value, user: &auth::User) {
    let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), user.name.clone().into());
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}

/// A definition is judged as it is written, so that its kinds are served at once.
fn check_definition(call: &Call<'_>, definition: &mut Value) {
    let all = crate::schemas::refresh::entries(call.api, crd::TABLE);
    let taken = crd::Accepted::by_others(definition, &all);
    let now = base::clock::now_rfc3339();
    definition["status"] = crd::conditions(definition, &taken, &now);
}
