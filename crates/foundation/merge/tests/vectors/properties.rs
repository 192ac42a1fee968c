//! Properties that hold for every object, however unusual.

use merge::{
    Duplicates, MergeRequest, Set, apply, compare, extract_items, json_patch,
    merge as merge_values, merge_patch, reconcile_field_set_with_schema, remove_items,
    strategic_merge, to_field_set, track_update, validate,
};
use proptest::prelude::*;
use schema::Schema;
use serde_json::{Value, json};

use super::series::thing;

/// Any JSON, with the names that the schema knows so that it often fits.
fn anything() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "spec",
        "metadata",
        "ports",
        "disks",
        "tags",
        "name",
        "port",
        "zones",
        "pools",
        "free",
        "labels",
        "nested",
        "deep",
        "$patch",
        "managedFields",
        "fieldsV1",
        "f:spec",
        "unknown",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        Just(json!(1.0)),
        prop::sample::select(vec!["a", "b", "delete", "TCP"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|fields| fields.into_iter().collect::<Value>()),
        ]
    })
}

/// A specification that fits the schema. Neither it nor its lists are empty: a field that an apply
/// empties but another manager owns becomes null, as upstream has it, and is then set again.
fn spec() -> impl Strategy<Value = Value> {
    let some = |field: BoxedStrategy<Value>| prop::option::of(field);
    let names = || prop::sample::subsequence(vec!["a", "b", "c"], 1..=3);
    let disks = names().prop_flat_map(|names| {
        let disks: Vec<_> = names
            .into_iter()
            .map(|name| {
                (0..3_i64, names_set())
                    .prop_map(move |(size, tags)| json!({"name": name, "size": size, "tags": tags}))
            })
            .collect();
        disks.prop_map(Value::from)
    });
    let pools = names().prop_map(|names| {
        names.into_iter().map(|name| (name, json!({"size": 1}))).collect::<Value>()
    });
    (
        (0..3_i64).prop_map(Value::from),
        some(disks.boxed()),
        some(names_set().boxed()),
        some(names_set().boxed()),
        some(pools.boxed()),
    )
        .prop_map(|(replicas, disks, zones, args, pools)| {
            let fields = [
                ("replicas", Some(replicas)),
                ("disks", disks),
                ("zones", zones),
                ("args", args),
                ("pools", pools),
            ];
            let given = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
            given.collect::<Value>()
        })
}

fn names_set() -> impl Strategy<Value = Value> {
    prop::sample::subsequence(vec!["x", "y", "z"], 1..=3)
        .prop_shuffle()
        .prop_map(|names| names.into_iter().map(Value::from).collect())
}

fn whole(spec: Value) -> Value {
    json!({"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec})
}

fn request<'a>(manager: &'a str, schema: &'a Schema, nothing: &'a Set) -> MergeRequest<'a> {
    MergeRequest {
        manager,
        subresource: "",
        api_version: "g/v1",
        kind: "Thing",
        now: "2026-01-02T03:04:05Z",
        schema,
        reset: nothing,
        versions: &[],
        blank: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(left in anything(), right in anything()) {
        let (schema, nothing) = (thing(), Set::new());
        let set = to_field_set(&left, &schema);
        let _ = compare(&left, &right, &schema);
        let _ = merge_values(&left, &right, &schema);
        let _ = validate(&left, &schema, Duplicates::Refused);
        let _ = remove_items(&right, &set, &schema);
        let _ = extract_items(&right, &set, &schema);
        let _ = reconcile_field_set_with_schema(&set, &schema);
        let _ = strategic_merge(&left, &right, &schema);
        let _ = json_patch(&left, &json!([right.clone()]));
        let _ = merge_patch(&left, &right);
        let _ = Set::from_fields_v1(&left);
        let me = request("me", &schema, &nothing);
        let mut new = right.clone();
        track_update(Some(&left), &mut new, &me);
        let mut config = right;
        if let Value::Object(config) = &mut config {
            config.insert("apiVersion".into(), "g/v1".into());
            config.insert("kind".into(), "Thing".into());
        }
        let _ = apply(Some(&left), &config, &me, true);
    }

    #[test]
    fn a_set_value_is_read_back(spec in spec()) {
        let (schema, object) = (thing(), whole(spec));
        let leaves = to_field_set(&object, &schema).leaves();
        prop_assert_eq!(extract_items(&object, &leaves, &schema), object);
    }

    #[test]
    fn applies_are_idempotent_and_bring_what_they_say(
        first in spec(), second in spec(), third in spec()
    ) {
        let (schema, nothing) = (thing(), Set::new());
        let mut live = whole(first);
        track_update(None, &mut live, &request("creator", &schema, &nothing));
        let me = request("me", &schema, &nothing);
        for spec in [second, third] {
            let config = whole(spec);
            if let Some(applied) = apply(Some(&live), &config, &me, true).unwrap() {
                live = applied;
            }
            prop_assert_eq!(apply(Some(&live), &config, &me, false), Ok(None));
            let merged = merge_values(&live, &config, &schema).unwrap();
            prop_assert_eq!(merged.as_ref(), Some(&live));
        }
    }

    #[test]
    fn a_comparison_says_what_to_take_and_what_to_drop(old in spec(), new in spec()) {
        let (schema, old, new) = (thing(), whole(old), whole(new));
        prop_assert!(compare(&old, &old, &schema).unwrap().is_same());
        let there = compare(&old, &new, &schema).unwrap();
        let back = compare(&new, &old, &schema).unwrap();
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.removed, &back.added);
        prop_assert_eq!(&there.modified, &back.modified);
        prop_assert!(there.added.intersection(&there.modified).is_empty());
    }

    #[test]
    fn sets_obey_the_laws(left in spec(), right in spec()) {
        let schema = thing();
        let left = to_field_set(&whole(left), &schema);
        let right = to_field_set(&whole(right), &schema);
        let union = left.clone().union(&right);
        let common = left.intersection(&right);
        prop_assert_eq!(union.difference(&right), left.difference(&right));
        prop_assert_eq!(left.difference(&right).union(&common), left.clone());
        prop_assert_eq!(union.len() + common.len(), left.len() + right.len());
        prop_assert_eq!(Set::from_json(&union.to_json()).unwrap(), union);
    }
}
