//! Prevention of privilege escalation: a write that grants rights is refused if its user does not
//! hold them.

use auth::rbac::escalation::{self, EscalationError};
use http::StatusCode;
use serde_json::Value;

use super::Operation;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

pub(super) fn check(
    call: &Call<'_>,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if &*call.served.group != auth::rbac::GROUP || operation == Operation::Delete {
        return Ok(());
    }
    // They may grant anything; the policy need not be built to know that.
    if call.user.is_in(auth::user::MASTERS) {
        return Ok(());
    }
    let policy = crate::access::rights::policy(call.api);
    let namespace = call.namespace();
    let result = match &*call.served.kind {
        "Role" | "ClusterRole" => escalation::check_role(call.user, &policy, namespace, new, old),
        _ => escalation::check_binding(call.user, &policy, namespace, new, old),
    };
    result.map_err(|error| {
        let subject = call.served.subject(object::name(new));
        match error {
            EscalationError::Role(missing) => {
                ApiError::new(StatusCode::NOT_FOUND, "NotFound", missing.to_string())
            }
            other => ApiError::forbidden_because(subject, base::Chain(&other)),
        }
    })
}
