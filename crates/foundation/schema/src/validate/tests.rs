use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn texts(schema: &Value, value: &Value, old: Option<&Value>) -> String {
    let schema = crate::parse(schema).unwrap();
    let errors = validate(value, old, &schema);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks the errors of a field `f` with this schema and value.
fn check(schema: Value, value: Value, expect: Expect) {
    let schema = json!({"type": "object", "properties": {"f": schema}});
    expect.assert_eq(&texts(&schema, &json!({"f": value}), None));
}

fn accepts(schema: Value, values: &[Value]) {
    for value in values {
        let schema = json!({"type": "object", "properties": {"f": schema}});
        assert_eq!(texts(&schema, &json!({"f": value}), None), "", "{value}");
    }
}

#[test]
fn types() {
    accepts(json!({"type": "integer"}), &[json!(1), json!(-1), json!(1.0), json!(i64::MAX)]);
    accepts(json!({"type": "number"}), &[json!(1), json!(1.5)]);
    accepts(json!({}), &[json!(1), json!(null), json!({"a": 1})]);
    check(
        json!({"type": "integer"}),
        json!("x"),
        expect![[r#"f: Invalid value: "string": f in body must be of type integer: "string""#]],
    );
    check(
        json!({"type": "integer"}),
        json!(1.5),
        expect![[r#"
        f: Invalid value: "number": f in body must be of type integer: "number"
        <nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#]],
    );
    check(
        json!({"type": "string"}),
        json!(1),
        expect![[r#"f: Invalid value: "integer": f in body must be of type string: "integer""#]],
    );
    check(
        json!({"type": "boolean"}),
        json!("true"),
        expect![[r#"f: Invalid value: "string": f in body must be of type boolean: "string""#]],
    );
    check(
        json!({"type": "array"}),
        json!({}),
        expect![[r#"f: Invalid value: "object": f in body must be of type array: "object""#]],
    );
    check(
        json!({"type": "object"}),
        json!([]),
        expect![[r#"f: Invalid value: "array": f in body must be of type object: "array""#]],
    );
    check(
        json!({"type": "object"}),
        json!(null),
        expect![[r#"f: Invalid value: "null": f in body must be of type object: "null""#]],
    );
    check(
        json!({"type": "number"}),
        json!(true),
        expect![[r#"f: Invalid value: "boolean": f in body must be of type number: "boolean""#]],
    );
    expect![[r#"<nil>: Invalid value: "array":  in body must be of type object: "array""#]]
        .assert_eq(&texts(&json!({"type": "object"}), &json!([]), None));
}

#[test]
fn nullable() {
    accepts(json!({"type": "object", "nullable": true}), &[json!(null), json!({})]);
    check(
        json!({"type": "object", "nullable": true}),
        json!(true),
        expect![[r#"f: Invalid value: "boolean": f in body must be of type object: "boolean""#]],
    );
}

#[test]
fn int_or_string() {
    let schema = json!({"x-kubernetes-int-or-string": true, "nullable": true});
    accepts(schema.clone(), &[json!(1), json!("50%"), json!(null)]);
    check(
        schema.clone(),
        json!(true),
        expect![[
            r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#
        ]],
    );
    check(
        schema,
        json!(1.2),
        expect![[
            r#"f: Invalid value: "number": f in body must be of type integer,string: "number""#
        ]],
    );
    let pattern = json!({"anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true, "pattern": "^[0-9]+$"});
    accepts(pattern.clone(), &[json!(1), json!("5")]);
    check(
        pattern.clone(),
        json!("x"),
        expect![[r#"f: Invalid value: "x": f in body should match '^[0-9]+$'"#]],
    );
    check(
        pattern,
        json!(1.2),
        expect![[r#"
        f: Invalid value: "number": f in body must be of type integer,string: "number"
        <nil>: Invalid value: "": "f" must validate at least one schema (anyOf)
        f: Invalid value: "number": f in body must be of type integer: "number"
        <nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#]],
    );
    check(
        json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
        json!(1.2),
        expect![[r#"
            f: Invalid value: "number": f in body must be of type integer,string: "number"
            <nil>: Invalid value: "": "f" must validate at least one schema (anyOf)
            f: Invalid value: "number": f in body must be of type integer: "number"
            <nil>: Invalid value: "": Checked value must be of type integer (default format) in f
            <nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated"#]],
    );
}

#[test]
fn texts_have_lengths_in_characters_patterns_and_formats() {
    accepts(json!({"type": "string", "maxLength": 2, "minLength": 2}), &[json!("éé")]);
    check(
        json!({"type": "string", "minLength": 2}),
        json!("é"),
        expect![[r#"f: Invalid value: "é": f in body should be at least 2 chars long"#]],
    );
    check(
        json!({"type": "string", "maxLength": 2}),
        json!("abc"),
        expect!["f: Too long: may not be more than 2 bytes"],
    );
    check(
        json!({"type": "string", "pattern": "^a$"}),
        json!("b"),
        expect![[r#"f: Invalid value: "b": f in body should match '^a$'"#]],
    );
    check(
        json!({"type": "string", "pattern": "+"}),
        json!("b"),
        expect![[
            r#"f: Invalid value: "b": f in body should match '+, but pattern is invalid: error parsing regexp: missing argument to repetition operator: `+`'"#
        ]],
    );
    check(
        json!({"type": "string", "format": "date-time"}),
        json!("b"),
        expect![[r#"f: Invalid value: "b": f in body must be of type date-time: "b""#]],
    );
    check(
        json!({"type": "string", "format": "k8s-short-name"}),
        json!("a-"),
        expect![[r#"f: Invalid value: "a-": f in body must be of type k8s-short-name: "a-""#]],
    );
    check(
        json!({"type": "string", "format": "ipv4"}),
        json!(1),
        expect![[r#"f: Invalid value: "int64": f in body must be of type ipv4: "int64""#]],
    );
    accepts(json!({"type": "string", "format": "unheard-of"}), &[json!("b")]);
}

#[test]
fn numbers_have_bounds() {
    accepts(json!({"type": "integer", "minimum": 1, "maximum": 3}), &[json!(1), json!(3)]);
    check(
        json!({"type": "integer", "minimum": 1}),
        json!(0),
        expect!["f: Invalid value: 0: f in body should be greater than or equal to 1"],
    );
    check(
        json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
        json!(1),
        expect!["f: Invalid value: 1: f in body should be greater than 1"],
    );
    check(
        json!({"type": "integer", "maximum": 1}),
        json!(2),
        expect!["f: Invalid value: 2: f in body should be less than or equal to 1"],
    );
    check(
        json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
        json!(1.5),
        expect!["f: Invalid value: 1.5: f in body should be less than 1.5"],
    );
    check(
        json!({"type": "number", "maximum": 1e30}),
        json!(2e30),
        expect!["f: Invalid value: 2e+30: f in body should be less than or equal to 1e+30"],
    );
    check(
        json!({"type": "integer", "maximum": 1.5}),
        json!(1),
        expect![[
            r#"<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in f"#
        ]],
    );
    accepts(json!({"type": "number", "multipleOf": 0.1}), &[json!(0.3), json!(2.5)]);
    check(
        json!({"type": "integer", "multipleOf": 3}),
        json!(4),
        expect!["f: Invalid value: 4: f in body should be a multiple of 3"],
    );
    check(
        json!({"type": "number", "multipleOf": 0.5}),
        json!(0.75),
        expect!["f: Invalid value: 0.75: f in body should be a multiple of 0.5"],
    );
    check(
        json!({"type": "number", "multipleOf": -1.0}),
        json!(0.75),
        expect!["f: Invalid value: 0.75: factor MultipleOf declared for f must be positive: -1"],
    );
}

#[test]
fn numbers_fit_their_format() {
    accepts(json!({"type": "integer", "format": "int32"}), &[json!(i32::MIN), json!(i32::MAX)]);
    accepts(json!({"type": "integer", "format": "int64"}), &[json!(i64::MIN), json!(i64::MAX)]);
    accepts(json!({"type": "number", "format": "float"}), &[json!(f32::MAX)]);
    accepts(json!({"type": "number", "format": "double"}), &[json!(f64::MAX)]);
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(i64::from(i32::MAX) + 1),
        expect![[
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f"#
        ]],
    );
    check(
        json!({"type": "integer", "format": "int64"}),
        json!(9.3e18 * 1.1),
        expect![[r#"
        f: Invalid value: "float64": f in body must be of type int64: "float64"
        <nil>: Invalid value: "": Checked value must be of type integer with format int64 in f"#]],
    );
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(true),
        expect![[r#"f: Invalid value: "": f in body must be of type int32: """#]],
    );
    check(
        json!({"type": "number", "format": "float"}),
        json!(3.5e38),
        expect![[
            r#"<nil>: Invalid value: "": Checked value must be of type number with format float in f"#
        ]],
    );
}

#[test]
fn enumerations() {
    accepts(json!({"type": "integer", "enum": [1, 2]}), &[json!(1), json!(2.0)]);
    accepts(json!({"enum": [{"a": 1}]}), &[json!({"a": 1})]);
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("c"),
        expect![[r#"f: Unsupported value: "c": supported values: "a", "b""#]],
    );
    check(
        json!({"type": "integer", "enum": [1, 2]}),
        json!("x"),
        expect![[r#"
        f: Invalid value: "string": f in body must be of type integer: "string"
        f: Unsupported value: "x": supported values: "1", "2""#]],
    );
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!(true),
        expect![[r#"
        f: Invalid value: "boolean": f in body must be of type string: "boolean"
        f: Unsupported value: true: supported values: "a", "b""#]],
    );
    check(
        json!({"type": "string", "nullable": true, "enum": ["a"]}),
        json!(null),
        expect![[r#"f: Unsupported value: null: supported values: "a""#]],
    );
}

#[test]
fn lists_and_maps_have_sizes() {
    let list = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}});
    check(
        list.clone(),
        json!([]),
        expect!["f: Invalid value: 0: f in body should have at least 1 items"],
    );
    check(
        list,
        json!([1, 2, "3"]),
        expect![[r#"
        f[2]: Invalid value: "string": f[2] in body must be of type integer: "string"
        f: Too many: 3: must have at most 2 items"#]],
    );
    let map = json!({"type": "object", "minProperties": 1, "maxProperties": 1,
        "additionalProperties": {"type": "string"}});
    check(
        map.clone(),
        json!({}),
        expect!["f: Invalid value: 0: f in body should have at least 1 properties"],
    );
    check(
        map,
        json!({"a": "b", "c": 1}),
        expect![[r#"
        f: Too many: 2: must have at most 1 item
        f.c: Invalid value: "integer": f.c in body must be of type string: "integer""#]],
    );
    check(
        json!({"type": "array", "uniqueItems": true}),
        json!([1, 1]),
        expect![[r#"f: Invalid value: "": f in body shouldn't contain duplicates"#]],
    );
}

#[test]
fn required() {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["a", "b"]},
    }});
    expect!["spec: Required value"].assert_eq(&texts(&schema, &json!({}), None));
    expect!["spec.a: Required value"].assert_eq(&texts(
        &schema,
        &json!({"spec": {"b": null}}),
        None,
    ));
}

#[test]
fn junctors() {
    let ab = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let object = |junctor: &str| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, junctor: ab});
    accepts(object("anyOf"), &[json!({"a": 1}), json!({"a": 1, "b": 1})]);
    accepts(object("oneOf"), &[json!({"a": 1}), json!({"b": 1})]);
    accepts(object("allOf"), &[json!({"a": 1, "b": 1})]);
    check(
        object("anyOf"),
        json!({}),
        expect![[r#"
        <nil>: Invalid value: "": "f" must validate at least one schema (anyOf)
        f.a: Required value"#]],
    );
    check(
        object("oneOf"),
        json!({}),
        expect![[r#"
        <nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid
        f.a: Required value"#]],
    );
    check(
        object("oneOf"),
        json!({"a": 1, "b": 1}),
        expect![[
            r#"<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]],
    );
    check(
        object("allOf"),
        json!({"a": 1}),
        expect![[r#"
        f.b: Required value
        <nil>: Invalid value: "": "f" must validate all the schemas (allOf)"#]],
    );
    check(
        object("allOf"),
        json!({}),
        expect![[r#"
        f.a: Required value
        f.b: Required value
        <nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated"#]],
    );
    check(
        json!({"type": "string", "not": {"enum": ["x"]}}),
        json!("x"),
        expect![[r#"<nil>: Invalid value: "": "f" must not validate the schema (not)"#]],
    );
}

#[test]
fn the_best_fitting_alternative_explains_the_failure() {
    check(
        json!({"type": "object", "anyOf": [
            {"properties": {"a": {"minimum": 5}, "b": {"minimum": 5}}},
            {"properties": {"a": {"minimum": 1}, "b": {"minimum": 5}}, "required": ["c"]},
        ]}),
        json!({"a": 2, "b": 2, "c": 2}),
        expect![[r#"
            <nil>: Invalid value: "": "f" must validate at least one schema (anyOf)
            f.a: Invalid value: 2: f.a in body should be greater than or equal to 5
            f.b: Invalid value: 2: f.b in body should be greater than or equal to 5"#]],
    );
}

#[test]
fn sets_and_list_maps_have_no_duplicates() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {}});
    accepts(set.clone(), &[json!([]), json!([1, 2, "1"]), json!([{"a": 1}, {"a": 2}])]);
    check(
        set.clone(),
        json!([1, 2, 1, 1, 2]),
        expect![[r#"
        f[2]: Duplicate value: 1
        f[4]: Duplicate value: 2"#]],
    );
    check(
        set,
        json!([{"a": 1, "b": [1]}, {"b": [1], "a": 1}]),
        expect![[r#"f[1]: Duplicate value: {"a":1,"b":[1]}"#]],
    );
    let map = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a"], "items": {"type": "object", "nullable": true}});
    accepts(map.clone(), &[json!([{"a": 1}, {"a": 2}, {}]), json!([{"a": 1}, null])]);
    check(
        map.clone(),
        json!([{"a": 1}, {"a": 1, "b": 2}]),
        expect![[r#"f[1]: Duplicate value: {"a":1}"#]],
    );
    check(map.clone(), json!([{"b": 1}, null]), expect!["f[1]: Duplicate value: {}"]);
    check(
        map,
        json!([{"a": 1}, 5]),
        expect![[r#"
        f[1]: Invalid value: "integer": f[1] in body must be of type object: "integer"
        f[1]: Invalid value: 5: must be an object for an array of list-type map"#]],
    );
    let two = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object"}});
    accepts(two.clone(), &[json!([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1}])]);
    check(
        two,
        json!([{"a": 1, "b": 1}, {"a": 1, "b": 1}]),
        expect![[r#"f[1]: Duplicate value: {"a":1,"b":1}"#]],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "array",
            "x-kubernetes-list-type": "set", "items": {}}}),
        json!({"k": [1, 1]}),
        expect!["f[k][1]: Duplicate value: 1"],
    );
}

fn update(schema: &Value, old: Value, new: Value, expect: Expect) {
    expect.assert_eq(&texts(schema, &new, Some(&old)));
}

#[test]
fn unchanged_failures_are_forgiven() {
    let small = json!({"type": "number", "maximum": 50});
    let object = json!({"type": "object", "required": ["x"], "properties": {
        "small": small, "other": {"type": "string"},
    }});
    let schema = json!({"type": "object", "properties": {"nested": object, "small": small}});
    update(&schema, json!({"small": 500}), json!({"small": 500}), expect![[""]]);
    update(
        &schema,
        json!({"small": 501}),
        json!({"small": 500}),
        expect!["small: Invalid value: 500: small in body should be less than or equal to 50"],
    );
    let nested = |other: &str, small: i32| json!({"nested": {"small": small, "other": other}});
    update(&schema, nested("a", 500), nested("a", 500), expect![[""]]);
    update(&schema, nested("a", 500), nested("b", 500), expect!["nested.x: Required value"]);
    update(
        &schema,
        nested("a", 500),
        nested("b", 501),
        expect![[r#"
        nested.small: Invalid value: 501: nested.small in body should be less than or equal to 50
        nested.x: Required value"#]],
    );
    update(
        &schema,
        json!({}),
        json!({"small": 500}),
        expect!["small: Invalid value: 500: small in body should be less than or equal to 50"],
    );
}

#[test]
fn items_correlate_by_the_keys_of_list_maps_only() {
    let item = json!({"type": "object", "properties": {
        "k": {"type": "string"}, "v": {"type": "integer", "maximum": 5},
    }});
    let map = json!({"type": "object", "properties": {"f": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}}});
    let old = json!({"f": [{"k": "a", "v": 9}, {"k": "b", "v": 1}]});
    update(
        &map,
        old.clone(),
        json!({"f": [{"k": "b", "v": 2}, {"k": "a", "v": 9}]}),
        expect![[""]],
    );
    update(
        &map,
        old.clone(),
        json!({"f": [{"k": "c", "v": 9}]}),
        expect!["f[0].v: Invalid value: 9: f[0].v in body should be less than or equal to 5"],
    );
    let atomic = json!({"type": "object", "properties": {"f": {"type": "array", "items": item}}});
    update(&atomic, old.clone(), old.clone(), expect![[""]]);
    update(
        &atomic,
        old,
        json!({"f": [{"k": "a", "v": 9}]}),
        expect!["f[0].v: Invalid value: 9: f[0].v in body should be less than or equal to 5"],
    );
}

#[test]
fn forgiving_reaches_into_junctors() {
    let schema = json!({"type": "object", "properties": {"f": {"type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "allOf": [{"properties": {"a": {"maximum": 5}}}],
    }}});
    update(&schema, json!({"f": {"a": 9, "b": 1}}), json!({"f": {"a": 9, "b": 2}}), expect![[""]]);
    update(
        &schema,
        json!({"f": {"a": 9}}),
        json!({"f": {"a": 8}}),
        expect![[r#"
        f.a: Invalid value: 8: f.a in body should be less than or equal to 5
        <nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated"#]],
    );
}

#[test]
fn the_type_of_the_object_is_never_forgiven() {
    let schema = json!({"type": "object", "properties": {"kind": {"type": "string", "enum": ["A"]},
        "spec": {"type": "string", "enum": ["A"]}, "x": {"type": "integer"}}});
    let object = |x: i32| json!({"kind": "B", "spec": "B", "x": x});
    update(
        &schema,
        object(1),
        object(2),
        expect![[r#"kind: Unsupported value: "B": supported values: "A""#]],
    );
}

#[test]
fn stored_duplicates_do_not_block_updates() {
    let schema = json!({"type": "object", "properties": {"f": {"type": "array",
        "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}});
    update(&schema, json!({"f": [1, 1]}), json!({"f": [2, 2]}), expect![[""]]);
    update(&schema, json!({"f": [1]}), json!({"f": [2, 2]}), expect!["f[1]: Duplicate value: 2"]);
}

#[test]
fn hostile_objects_have_a_bounded_number_of_errors() {
    let schema = crate::parse(&json!({"items": {"type": "string"}})).unwrap();
    let value = Value::Array(vec![json!(1); 100_000]);
    assert_eq!(validate(&value, None, &schema).len(), MAX_ERRORS);
}
