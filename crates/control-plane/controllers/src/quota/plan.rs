//! The usage of a quota, and whether its status is correct: pure. [`kinds::quota`] has the usage
//! of one object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{Catalog, CatalogKind, Verb};
use jiff::Timestamp;
use kinds::quota::{self, Amounts};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use types::Quantity;

use crate::object::read;
use crate::record::fields;

fields! {
    /// The names that a quota limits.
    struct LimitFields<'a> {
        spec: LimitSpec<'a>,
    }

    struct LimitSpec<'a> {
        hard: BTreeMap<&'a str, IgnoredAny>,
    }

    /// Amounts, which [`kinds::quota`] reads, and which are copied.
    struct QuotaFields {
        spec: QuotaSpec,
        status: QuotaStatus,
    }

    struct QuotaSpec {
        hard: Value,
    }

    struct QuotaStatus {
        hard: Value,
        used: Value,
    }
}

/// Whether more than the existence of an object counts, so that metadata is not enough.
pub(crate) fn is_read_whole(group: &str, plural: &str) -> bool {
    group.is_empty() && matches!(plural, "pods" | "services" | "persistentvolumeclaims")
}

/// The kinds whose objects some of the quotas count.
pub(crate) fn counted_kinds(quotas: &[Value], catalog: &Catalog) -> Vec<Arc<CatalogKind>> {
    let names = quotas.iter().flat_map(limited_names);
    let kinds: BTreeSet<&Arc<CatalogKind>> =
        names.filter_map(|name| counted(name, catalog)).collect();
    kinds.into_iter().map(Arc::clone).collect()
}

/// Nothing used of each name that can be counted here.
pub(crate) fn zero(quota: &Value, catalog: &Catalog) -> Amounts {
    let tracked = limited_names(quota).filter(|name| counted(name, catalog).is_some());
    tracked.map(|name| (name.to_owned(), Quantity::ZERO)).collect()
}

/// The names in `spec.hard`.
fn limited_names(quota: &Value) -> impl Iterator<Item = &str> {
    read::<LimitFields<'_>>(quota).spec.hard.into_keys()
}

/// Adds what `object` uses of the names in `used`.
pub(crate) fn charge(
    used: &mut Amounts,
    quota: &Value,
    kind: &CatalogKind,
    object: &Value,
    now: Timestamp,
) {
    if !quota::in_scope(quota, &kind.group, &kind.plural, object) {
        return;
    }
    let mut amounts = quota::usage(&kind.group, &kind.plural, object, now);
    amounts.retain(|name, _| used.contains_key(name));
    quota::add(used, &amounts);
}

/// Whether less is used of something than the quota's status says.
pub(crate) fn gives_back(quota: &Value, used: &Amounts) -> bool {
    let known = quota::amounts(Some(&read::<QuotaFields>(quota).status.used));
    known.iter().any(|(name, amount)| used.get(name).is_some_and(|own| own < amount))
}

/// The quota with its status as it should be; nothing if it is so already.
pub(crate) fn updated(mut quota: Value, used: &Amounts) -> Option<Value> {
    let amounts = |part: &Value| quota::amounts(Some(part));
    let QuotaFields { spec, status } = read(&quota);
    let hard = amounts(&spec.hard);
    if amounts(&status.hard) == hard && amounts(&status.used) == *used {
        return None;
    }
    let text = |amounts: &Amounts| -> Value {
        amounts.iter().map(|(name, own)| (name.clone(), json!(own.to_string()))).collect()
    };
    let hard = if spec.hard.is_null() { text(&hard) } else { spec.hard };
    quota.as_object_mut()?.insert("status".into(), json!({"hard": hard, "used": text(used)}));
    Some(quota)
}

/// Kinds that are not served, or cannot be listed, count for nothing.
fn counted<'a>(name: &str, catalog: &'a Catalog) -> Option<&'a Arc<CatalogKind>> {
    let (group, plural) = quota::counted(name)?;
    catalog.resource(group, plural).filter(|kind| kind.namespaced && kind.can(Verb::List))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let resource = |plural: &str| {
            json!({"resource": plural, "scope": "Namespaced", "responseKind": {"kind": plural},
                "verbs": ["list"]})
        };
        let list = json!({"items": [
            {"versions": [{"version": "v1", "resources": [
                resource("pods"), resource("services"), resource("configmaps")]}]},
            {"metadata": {"name": "a.io"},
             "versions": [{"version": "v1", "resources": [resource("things")]}]}]});
        Catalog::read(&[serde_json::from_value(list).unwrap()])
    }

    /// `used` after counting `objects`, given as group, plural and object.
    fn used(spec: Value, objects: &[(&str, &str, Value)]) -> Value {
        let (catalog, quota) = (catalog(), json!({"spec": spec}));
        let mut used = zero(&quota, &catalog);
        for (group, plural, object) in objects {
            let kind = catalog.resource(group, plural).unwrap();
            charge(&mut used, &quota, kind, object, Timestamp::UNIX_EPOCH);
        }
        updated(quota, &used).unwrap()["status"]["used"].clone()
    }

    #[test]
    fn only_what_is_limited_is_counted_and_nothing_is_zero() {
        let spec = json!({"hard": {"configmaps": "5", "count/things.a.io": "2", "pods": "1",
            "unheard": "1", "count/absent.b.io": "3"}});
        let objects = [
            ("", "configmaps", Value::Null),
            ("", "configmaps", Value::Null),
            ("a.io", "things", Value::Null),
            ("", "services", json!({})),
        ];
        let expected = json!({"configmaps": "2", "count/things.a.io": "1", "pods": "0"});
        assert_eq!(used(spec, &objects), expected);
    }

    #[test]
    fn amounts_of_pods_add_up_and_scopes_leave_others_out() {
        let pod = |cpu: &str| json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let objects = [
            ("", "pods", pod("250m")),
            ("", "pods", pod("1")),
            ("", "pods", json!({"spec": {"containers": [{}]}})),
            ("", "services", json!({})),
        ];
        let hard = json!({"pods": "9", "requests.cpu": "4", "services": "3"});
        let expected = json!({"pods": "3", "requests.cpu": "1250m", "services": "1"});
        assert_eq!(used(json!({"hard": hard}), &objects), expected);
        let scoped = json!({"hard": hard, "scopes": ["NotBestEffort"]});
        let expected = json!({"pods": "2", "requests.cpu": "1250m", "services": "0"});
        assert_eq!(used(scoped, &objects), expected);
    }

    #[test]
    fn a_right_status_is_not_written_again_however_it_is_spelled() {
        let quota = json!({"spec": {"hard": {"memory": "1Gi"}},
            "status": {"hard": {"memory": "1024Mi"}, "used": {"memory": "0"}}});
        let used = zero(&quota, &catalog());
        assert_eq!(updated(quota, &used), None);
    }

    #[test]
    fn a_change_of_the_limit_is_copied() {
        let quota = json!({"spec": {"hard": {"pods": "2"}},
            "status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}});
        let used = zero(&quota, &catalog());
        let status = updated(quota, &used).unwrap()["status"].clone();
        assert_eq!(status, json!({"hard": {"pods": "2"}, "used": {"pods": "0"}}));
    }

    #[test]
    fn each_counted_kind_is_read_once() {
        let quota = |names: &[&str]| {
            let hard: Value = names.iter().map(|name| ((*name).to_owned(), json!("1"))).collect();
            json!({"spec": {"hard": hard}})
        };
        let quotas = [quota(&["pods", "cpu", "count/pods"]), quota(&["cpu", "configmaps"])];
        let kinds = counted_kinds(&quotas, &catalog());
        let names: Vec<&str> = kinds.iter().map(|kind| &*kind.plural).collect();
        assert_eq!(names, ["configmaps", "pods"]);
    }

    #[test]
    fn less_than_was_known_is_given_back() {
        let quota = json!({"status": {"used": {"pods": "2", "cpu": "1"}}});
        for (used, expected) in [
            (json!({"pods": "2", "cpu": "1"}), false),
            (json!({"pods": "3", "cpu": "1"}), false),
            (json!({"pods": "3", "cpu": "900m"}), true),
            (json!({"secrets": "1"}), false),
        ] {
            assert_eq!(gives_back(&quota, &quota::amounts(Some(&used))), expected, "{used}");
        }
    }
}
