//! Rules of kinds that others brought along.

use serde_json::Value;

use super::Operation;
use crate::call::Call;
use crate::extension::{Act, Review};
use crate::object;
use crate::status::{ApiError, ApiResult};

pub(super) fn mutate(call: &Call<'_>, operation: Operation, object: &mut Value) {
    let name = object::name(object).to_owned();
    let review = review(call, operation, &name);
    for rules in &call.api.extensions.rules {
        if rules.concern(review.group, review.resource) {
            rules.complete(&review, object);
        }
    }
}

/// The warnings of those who agree, or the first who does not.
pub(super) fn validate(
    call: &Call<'_>,
    operation: Operation,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<Vec<String>> {
    let name = object.or(old).map_or("", object::name);
    let review = review(call, operation, name);
    let mut warnings = Vec::new();
    for rules in &call.api.extensions.rules {
        if rules.concern(review.group, review.resource) {
            warnings.extend(rules.judge(&review, object, old).map_err(ApiError::denied)?);
        }
    }
    Ok(warnings)
}

fn review<'a>(call: &'a Call<'_>, operation: Operation, name: &'a str) -> Review<'a> {
    Review {
        act: match operation {
            Operation::Create => Act::Create,
            Operation::Update => Act::Update,
            Operation::Delete => Act::Delete,
        },
        group: &call.served.group,
        version: &call.served.version,
        resource: &call.served.plural,
        subresource: call.path.subresource,
        namespace: call.namespace(),
        name,
        user: call.user,
    }
}
