//! Bringing a bootstrap role or binding that exists up to date: missing rights are added, extra
//! ones are kept, and objects with `autoupdate: "false"` are not changed.

use serde_json::{Map, Value};

use super::escalation::covers;
use super::policy::text;
use super::rule::PolicyRule;

/// Opting out: an object with this annotation set to `"false"` is never touched.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The change to an object that differs from the wanted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    /// Write this over it.
    Update(Value),
    /// Delete it and create this: the role of a binding cannot be changed.
    Recreate(Value),
}

/// The change to `existing` so that it grants at least the rights of `wanted`; `None` if it does
/// already.
pub fn reconcile(existing: &Value, wanted: &Value) -> Option<Reconciled> {
    if text(&existing["metadata"]["annotations"], AUTO_UPDATE) == "false" {
        return None;
    }
    let is_binding = wanted.get("roleRef").is_some();
    if is_binding && role_ref(existing) != role_ref(wanted) {
        return Some(Reconciled::Recreate(wanted.clone()));
    }
    let mut updated = existing.clone();
    let fields = updated.as_object_mut()?;
    let metadata = entry(fields, "metadata");
    for field in ["annotations", "labels"] {
        add_missing_entries(metadata, field, wanted["metadata"].get(field));
    }
    match is_binding {
        true => add_missing_subjects(fields, existing, wanted),
        false => {
            add_missing_rules(fields, existing, wanted);
            align_aggregation(fields, existing, wanted);
        }
    }
    (updated != *existing).then_some(Reconciled::Update(updated))
}

fn role_ref(binding: &Value) -> [&str; 3] {
    ["apiGroup", "kind", "name"].map(|field| text(&binding["roleRef"], field))
}

/// Values that exist stay, even if others are wanted.
fn add_missing_entries(metadata: &mut Value, field: &str, wanted: Option<&Value>) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    for (key, value) in wanted.and_then(Value::as_object).into_iter().flatten() {
        if let Some(own) = entry(metadata, field).as_object_mut() {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn add_missing_rules(role: &mut Map<String, Value>, existing: &Value, wanted: &Value) {
    let missing = covers(&PolicyRule::list(existing), &PolicyRule::list(wanted));
    append(role, "rules", missing.iter().map(PolicyRule::to_value).collect());
}

fn add_missing_subjects(binding: &mut Map<String, Value>, existing: &Value, wanted: &Value) {
    let key = |subject: &Value| {
        ["kind", "apiGroup", "name", "namespace"].map(|field| text(subject, field).to_owned())
    };
    let existing = list(existing, "subjects");
    let missing = list(wanted, "subjects").iter();
    let missing = missing.filter(|subject| !existing.iter().any(|own| key(own) == key(subject)));
    append(binding, "subjects", missing.cloned().collect());
}

fn align_aggregation(role: &mut Map<String, Value>, existing: &Value, wanted: &Value) {
    let given = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    if !given(wanted) {
        if given(existing) {
            role.remove("aggregationRule");
        }
        return;
    }
    let selectors = "clusterRoleSelectors";
    let existing = list(&existing["aggregationRule"], selectors);
    let missing = list(&wanted["aggregationRule"], selectors).iter();
    let missing: Vec<Value> = missing.filter(|own| !existing.contains(own)).cloned().collect();
    if !missing.is_empty()
        && let Some(rule) = entry(role, "aggregationRule").as_object_mut()
    {
        append(rule, selectors, missing);
    }
}

/// The object under `field`, made if there is none.
fn entry<'a>(fields: &'a mut Map<String, Value>, field: &str) -> &'a mut Value {
    let value = fields.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value
}

fn append(fields: &mut Map<String, Value>, field: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match fields.get_mut(field) {
        Some(Value::Array(values)) => values.extend(more),
        _ => {
            fields.insert(field.to_owned(), Value::Array(more));
        }
    }
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(rules: Value) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": "r", "labels": {"a": "b"}}, "rules": rules})
    }

    fn updated(existing: &Value, wanted: &Value) -> Value {
        match reconcile(existing, wanted) {
            Some(Reconciled::Update(updated)) => updated,
            other => panic!("no update but {other:?}"),
        }
    }

    fn pods(verbs: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]})
    }

    #[test]
    fn missing_rules_are_added_and_extra_ones_kept() {
        let existing = role(json!([pods(&["get", "delete"])]));
        let wanted = role(json!([pods(&["get", "list", "watch"])]));
        assert_eq!(
            updated(&existing, &wanted)["rules"],
            json!([pods(&["get", "delete"]), pods(&["list"]), pods(&["watch"])])
        );
        assert_eq!(reconcile(&role(json!([pods(&["*"])])), &wanted), None);
        assert_eq!(
            updated(&role(Value::Null), &role(json!([pods(&["get"])])))["rules"],
            json!([pods(&["get"])])
        );
    }

    #[test]
    fn labels_that_exist_win_over_wanted_ones() {
        let mut existing = role(json!([]));
        existing["metadata"]["labels"] = json!({"a": "mine"});
        let mut wanted = role(json!([]));
        wanted["metadata"]["labels"] = json!({"a": "b", "c": "d"});
        wanted["metadata"]["annotations"] = json!({AUTO_UPDATE: "true"});
        let updated = updated(&existing, &wanted);
        assert_eq!(updated["metadata"]["labels"], json!({"a": "mine", "c": "d"}));
        assert_eq!(updated["metadata"]["annotations"], json!({AUTO_UPDATE: "true"}));
    }

    #[test]
    fn whoever_opted_out_is_left_alone() {
        let mut existing = role(json!([]));
        existing["metadata"]["annotations"] = json!({AUTO_UPDATE: "false"});
        assert_eq!(reconcile(&existing, &role(json!([pods(&["get"])]))), None);
    }

    #[test]
    fn aggregation_is_added_joined_or_removed() {
        let sum = |selectors: Value| {
            let mut role = role(json!([]));
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            role
        };
        let (a, b) = (json!({"matchLabels": {"a": "1"}}), json!({"matchLabels": {"b": "1"}}));
        let plain = role(json!([]));
        assert_eq!(updated(&plain, &sum(json!([a]))), sum(json!([a])));
        assert_eq!(updated(&sum(json!([b])), &sum(json!([a]))), sum(json!([b, a])));
        assert_eq!(reconcile(&sum(json!([a, b])), &sum(json!([a]))), None);
        assert_eq!(updated(&sum(json!([a])), &plain), plain);
    }

    #[test]
    fn missing_subjects_are_added_and_another_role_means_starting_over() {
        let subject =
            |name: &str| json!({"kind": "User", "apiGroup": super::super::GROUP, "name": name});
        let binding = |role: &str, subjects: Value| {
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "subjects": subjects,
                "roleRef": {"apiGroup": super::super::GROUP, "kind": "ClusterRole", "name": role}})
        };
        let existing = binding("r", json!([subject("mine")]));
        let wanted = binding("r", json!([subject("a"), subject("mine")]));
        let joined = binding("r", json!([subject("mine"), subject("a")]));
        assert_eq!(updated(&existing, &wanted), joined);
        assert_eq!(reconcile(&joined, &wanted), None);
        let other = binding("other", json!([]));
        assert_eq!(reconcile(&existing, &other), Some(Reconciled::Recreate(other.clone())));
    }
}
