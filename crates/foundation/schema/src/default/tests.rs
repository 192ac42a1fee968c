use serde_json::json;

use super::*;

fn check(schema: Value, mut value: Value, filled: Value) {
    let schema = crate::parse(&schema).unwrap();
    default(&mut value, &schema);
    assert_eq!(value, filled);
}

#[test]
fn only_absent_fields_of_present_objects_are_filled() {
    let ab = json!({"a": {"default": "A"}, "b": {"default": "B"}});
    check(json!({"default": "foo"}), json!(4), json!(4));
    check(json!({"items": {"default": "foo"}}), json!([1, 2]), json!([1, 2]));
    check(
        json!({"items": {"properties": ab}}),
        json!([{"a": 1}, {"b": 1}, {}]),
        json!([{"a": 1, "b": "B"}, {"a": "A", "b": 1}, {"a": "A", "b": "B"}]),
    );
    check(
        json!({"properties": {
            "array": {"items": {"properties": ab}},
            "object": {"properties": ab},
            "map": {"additionalProperties": {"properties": ab}},
            "absent": {"properties": ab},
            "foo": {"default": "bar"},
        }}),
        json!({"array": [{"a": 1}], "object": {"a": 1}, "map": {"x": {"b": 2}}}),
        json!({
            "array": [{"a": 1, "b": "B"}],
            "object": {"a": 1, "b": "B"},
            "map": {"x": {"a": "A", "b": 2}},
            "foo": "bar",
        }),
    );
}

#[test]
fn defaults_are_themselves_filled() {
    check(
        json!({"properties": {"outer": {
            "default": {}, "properties": {"inner": {"default": 5}},
        }}}),
        json!({}),
        json!({"outer": {"inner": 5}}),
    );
}

#[test]
fn empty_is_not_absent() {
    check(
        json!({"items": {"properties": {"a": {"default": "A"}}}}),
        json!([{"a": 0}, {"a": 0.0}, {"a": ""}, {"a": []}, {"a": {}}, {"a": false}]),
        json!([{"a": 0}, {"a": 0.0}, {"a": ""}, {"a": []}, {"a": {}}, {"a": false}]),
    );
}

#[test]
fn null_is_replaced_dropped_or_kept() {
    check(
        json!({"items": {"properties": {
            "a": {"default": "A"},
            "b": {"nullable": true},
            "c": {"default": "C", "nullable": true},
            "d": {},
        }}}),
        json!([{"a": null, "c": 1}, {"b": null, "a": 1, "c": null}, {"d": null, "a": 1, "c": 1, "e": null}]),
        json!([{"a": "A", "c": 1}, {"b": null, "a": 1, "c": null}, {"a": 1, "c": 1, "e": null}]),
    );
    check(json!({"items": {"default": "A"}}), json!([null]), json!(["A"]));
    check(json!({"items": {"default": "A", "nullable": true}}), json!([null]), json!([null]));
    check(json!({"items": {}}), json!([null]), json!([null]));
    check(json!({"additionalProperties": {"default": "A"}}), json!({"a": null}), json!({"a": "A"}));
    check(
        json!({"additionalProperties": {"default": "A", "nullable": true}}),
        json!({"a": null}),
        json!({"a": null}),
    );
    check(json!({"additionalProperties": {}}), json!({"a": null}), json!({}));
    check(json!({"additionalProperties": true}), json!({"a": null}), json!({"a": null}));
}
