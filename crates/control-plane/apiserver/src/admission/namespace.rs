//! Nothing is made in a namespace that is absent or on its way out, and the namespaces
//! that the system needs stay.

use serde_json::Value;

use super::Operation;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;

const NAMESPACES: &str = "namespaces";
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) async fn exists(call: &Call<'_>, object: &Value) -> ApiResult<()> {
    let namespace = call.namespace();
    if namespace.is_empty() {
        return Ok(());
    }
    let mut found = call.api.store.get(NAMESPACES, namespace);
    if found.is_none() {
        // Made a moment ago through another server, perhaps.
        let _ = call.api.store.fence().await;
        found = call.api.store.get(NAMESPACES, namespace);
    }
    let Some(found) = found else {
        return Err(ApiError::not_found(StatusSubject {
            group: "",
            resource: NAMESPACES,
            name: namespace,
        }));
    };
    if object::is_deleting(&found.item.to_value()) {
        let subject = call.served.subject(object::name(object));
        return Err(ApiError::namespace_terminating(subject, namespace));
    }
    Ok(())
}

pub(super) fn protected(
    call: &Call<'_>,
    operation: Operation,
    old: Option<&Value>,
) -> ApiResult<()> {
    if operation != Operation::Delete || &*call.served.table != NAMESPACES {
        return Ok(());
    }
    let name = old.map_or("", object::name);
    if UNDELETABLE.contains(&name) {
        let subject = call.served.subject(name);
        return Err(ApiError::forbidden_because(subject, "this namespace may not be deleted"));
    }
    Ok(())
}
