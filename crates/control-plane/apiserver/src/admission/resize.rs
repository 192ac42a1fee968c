//! A claim grows only once it is bound, and only if its class lets it.

use serde_json::Value;
use types::Quantity;

use super::Operation;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn validate(
    call: &Call<'_>,
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    let is_claim = &*call.served.table == "persistentvolumeclaims";
    let Some(old) = old.filter(|_| is_claim && operation == Operation::Update) else {
        return Ok(());
    };
    if !call.path.subresource.is_empty() || !grows(new, old) {
        return Ok(());
    }
    let class = call.api.store.get("storageclasses", class_of(old)).map(|it| it.item.to_value());
    match refusal(new, old, class.as_ref()) {
        None => Ok(()),
        Some(why) => Err(ApiError::forbidden_because(call.served.subject(object::name(new)), why)),
    }
}

fn grows(new: &Value, old: &Value) -> bool {
    let size = |claim: &Value| {
        Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"]).ok()
    };
    match (size(new), size(old)) {
        (Some(new), Some(old)) => new > old,
        _ => false,
    }
}

fn class_of(claim: &Value) -> &str {
    let annotated = claim["metadata"]["annotations"][CLASS].as_str();
    annotated.or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or("")
}

fn refusal(new: &Value, old: &Value, class: Option<&Value>) -> Option<&'static str> {
    if old["status"]["phase"] != "Bound" {
        return Some("Only bound persistent volume claims can be expanded");
    }
    let same = !class_of(new).is_empty() && class_of(new) == class_of(old);
    let allowed = class.is_some_and(|class| class["allowVolumeExpansion"] == true);
    (!same || !allowed).then_some(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(size: &str, phase: &str) -> Value {
        json!({
            "spec": {"storageClassName": "c", "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn only_growth_of_bound_claims_of_a_willing_class_passes() {
        let (open, closed) = (json!({"allowVolumeExpansion": true}), json!({}));
        let new = claim("2Gi", "Bound");
        assert!(grows(&new, &claim("1Gi", "Bound")) && !grows(&new, &claim("2048Mi", "Bound")));
        assert_eq!(refusal(&new, &claim("1Gi", "Bound"), Some(&open)), None);
        let pending = refusal(&new, &claim("1Gi", "Pending"), Some(&open));
        assert_eq!(pending, Some("Only bound persistent volume claims can be expanded"));
        for class in [Some(&closed), None] {
            assert!(refusal(&new, &claim("1Gi", "Bound"), class).is_some());
        }
    }
}
