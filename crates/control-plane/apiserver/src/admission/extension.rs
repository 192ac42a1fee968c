//! Rules of kinds that others brought along.

use auth::{AccessTarget, Attributes, Decision, ResourceRequest, User};
use serde_json::Value;

use super::Operation;
use crate::access::authorize;
use crate::api::Api;
use crate::extension::{Access, Attempt, ExtensionOperation, Lookup, Review};
use crate::schemas::refresh;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

pub(super) fn mutate(
    call: &Call<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    let name = object::name(object).to_owned();
    let review = review(call, operation, &name);
    // Rules set fields where the schema has them. Objects of another shape are left to validation,
    // which refuses them.
    if !call.served.has_shape(object) {
        return Ok(());
    }
    for rules in &call.api.extensions.rules {
        if rules.concern(review.group, review.resource) {
            rules.complete(&review, object, old).map_err(ApiError::denied)?;
        }
    }
    Ok(())
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
            warnings.extend(rules.validate(&review, object, old).map_err(ApiError::denied)?);
        }
    }
    Ok(warnings)
}

fn review<'a>(call: &'a Call<'_>, operation: Operation, name: &'a str) -> Review<'a> {
    Review {
        act: match operation {
            Operation::Create => ExtensionOperation::Create,
            Operation::Update => ExtensionOperation::Update,
            Operation::Delete => ExtensionOperation::Delete,
        },
        group: &call.served.group,
        version: &call.served.version,
        resource: &call.served.plural,
        subresource: call.path.subresource,
        namespace: call.namespace(),
        name,
        user: call.user,
        objects: call.api,
        access: call.api,
    }
}

/// Straight from memory: a rule may read as much as it needs.
impl Lookup for Api {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let catalog = self.catalog.load();
        let served = catalog.preferred(group, plural)?;
        let entry = self.store.get(&served.table, &served.key(namespace, name))?;
        Some(served.live(&entry))
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let catalog = self.catalog.load();
        let Some(served) = catalog.preferred(group, plural) else { return Vec::new() };
        refresh::entries(self, &served.table)
            .iter()
            .map(|entry| served.live(entry))
            .filter(|object| namespace.is_empty() || object::namespace(object) == namespace)
            .collect()
    }
}

impl Access for Api {
    fn may(&self, user: &User, attempt: &Attempt<'_>) -> bool {
        let Attempt { verb, group, plural, subresource, namespace, name } = *attempt;
        let catalog = self.catalog.load();
        let version = catalog.preferred(group, plural).map(|served| served.version.clone());
        let request = ResourceRequest {
            group,
            version: version.as_deref().unwrap_or("*"),
            resource: plural,
            subresource,
            namespace,
            name,
        };
        let attributes = Attributes { verb, target: AccessTarget::Resource(request) };
        user.is_in(auth::user::MASTERS)
            || matches!(authorize::decide(self, user, &attributes), Decision::Allow(_))
    }
}
