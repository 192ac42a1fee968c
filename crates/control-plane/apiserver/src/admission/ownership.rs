//! `OwnerReferencesPermissionEnforcement`: a user who sets an owner reference needs the right to
//! delete the object, and a user who sets one that blocks the deletion of the owner needs the
//! right to update the owner's finalizers. Off by default, as upstream.

use auth::{AccessTarget, Attributes, Decision, ResourceRequest};
use serde_json::Value;

use super::Operation;
use crate::access::authorize;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

pub(super) const PLUGIN: &str = "OwnerReferencesPermissionEnforcement";

pub(super) fn check(
    call: &Call<'_>,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if !changes(new, old) {
        return Ok(());
    }
    if operation != Operation::Create {
        let itself = ResourceRequest {
            group: call.path.group,
            version: call.path.version,
            resource: call.path.resource,
            subresource: call.path.subresource,
            namespace: call.namespace(),
            name: call.path.name,
        };
        if let Some(why) = denied(call, "delete", itself) {
            let text = format!("cannot set an ownerRef on a resource you can't delete: {why}");
            return Err(refuse(call, new, text));
        }
    }
    let blocking = newly_blocking(new, old);
    let anything = ResourceRequest {
        group: "*",
        version: "*",
        resource: "*",
        subresource: "finalizers",
        namespace: "",
        name: "*",
    };
    if blocking.is_empty() || denied(call, "update", anything).is_none() {
        return Ok(());
    }
    blocking.into_iter().try_for_each(|owner| may_block(call, new, owner))
}

/// Whether the caller may hold up the deletion of this owner.
fn may_block(call: &Call<'_>, new: &Value, owner: &Value) -> ApiResult<()> {
    let text = |field: &str| owner[field].as_str().unwrap_or("");
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let catalog = call.api.catalog.load();
    let Some(served) = catalog.find_kind(group, short, kind) else {
        let why = format!("no matches for kind {kind:?} in version {version:?}");
        return Err(refuse(
            call,
            new,
            format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: {why}"
            ),
        ));
    };
    let finalizers = ResourceRequest {
        group,
        version: short,
        resource: &served.plural,
        subresource: "finalizers",
        // An owner in a namespace is in that of what it owns.
        namespace: if served.namespaced { call.namespace() } else { "" },
        name: text("name"),
    };
    match denied(call, "update", finalizers) {
        None => Ok(()),
        Some(why) => Err(refuse(
            call,
            new,
            format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {why}"
            ),
        )),
    }
}

/// The reason as upstream prints it: its own, and an error that there is none of.
fn denied(call: &Call<'_>, verb: &str, request: ResourceRequest<'_>) -> Option<String> {
    let attributes = Attributes { verb, target: AccessTarget::Resource(request) };
    match authorize::decide(call.api, call.user, &attributes) {
        Decision::Allow(_) => None,
        Decision::NoOpinion(reason) => Some(format!("{reason}, <nil>")),
    }
}

fn refuse(call: &Call<'_>, new: &Value, why: String) -> ApiError {
    ApiError::forbidden_because(call.served.subject(object::name(new)), why)
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

fn changes(new: &Value, old: Option<&Value>) -> bool {
    owners(new) != old.map_or(&[][..], owners)
}

/// Owners whose deletion this object holds up and did not before.
fn newly_blocking<'a>(new: &'a Value, old: Option<&Value>) -> Vec<&'a Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let before = old.map_or(&[][..], owners);
    let did = |owner: &Value| before.iter().any(|it| it["uid"] == owner["uid"] && blocks(it));
    owners(new).iter().filter(|owner| blocks(owner) && !did(owner)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_owners_that_come_to_be_blocked_count() {
        let owned = |owners: Value| json!({"metadata": {"ownerReferences": owners}});
        let (free, held) = (json!({"uid": "a"}), json!({"uid": "a", "blockOwnerDeletion": true}));
        for (new, old, expected) in [
            (json!([held]), None, 1),
            (json!([free]), None, 0),
            (json!([held]), Some(json!([free])), 1),
            (json!([held]), Some(json!([held])), 0),
            (json!([held, {"uid": "b", "blockOwnerDeletion": true}]), Some(json!([held])), 1),
        ] {
            let (new, old) = (owned(new), old.map(owned));
            assert_eq!(newly_blocking(&new, old.as_ref()).len(), expected, "{new} {old:?}");
        }
        assert!(!changes(&owned(json!([free])), Some(&owned(json!([free])))));
        assert!(changes(&json!({}), Some(&owned(json!([free])))));
        assert!(!changes(&json!({}), None));
    }
}
