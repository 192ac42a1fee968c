use serde_json::json;

use super::*;

#[test]
fn keywords_become_a_node() {
    let schema = parse(&json!({
        "type": "object",
        "description": "left behind",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "maxLength": 5, "pattern": "^a$", "format": "date", "default": "x"},
            "b": {"x-kubernetes-int-or-string": true, "nullable": true},
            "c": {
                "type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"},
            },
            "d": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
            "e": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": true},
            "f": {"type": "string", "format": "unheard-of", "enum": ["x"]},
        },
        "x-kubernetes-validations": [{"rule": "self.a == 'x'", "optionalOldSelf": true}],
    }))
    .unwrap();
    let validation = |name: &str| schema.property(name).unwrap().validation.clone().unwrap();
    assert_eq!(schema.ty, Type::Object);
    assert_eq!(*schema.validation.as_ref().unwrap().required, ["a".into()]);
    assert_eq!(schema.validation.as_ref().unwrap().description, None);
    assert!(schema.validation.as_ref().unwrap().rules[0].optional_old_self);
    assert_eq!(validation("a").max_length, Some(5));
    assert_eq!(validation("a").format.as_deref(), Some("date"));
    assert_eq!(schema.property("a").unwrap().default.as_deref(), Some(&json!("x")));
    assert_eq!(schema.property("b").unwrap().ty, Type::IntOrString);
    assert!(schema.property("b").unwrap().nullable);
    assert_eq!(schema.property("c").unwrap().list, ListType::Map(["k".into()].into()));
    assert!(matches!(&schema.property("d").unwrap().additional,
        Additional::Of(values) if values.ty == Type::Integer));
    assert_eq!(schema.property("e").unwrap().map, MapType::Atomic);
    assert_eq!(schema.property("e").unwrap().additional, Additional::Anything);
    assert_eq!(validation("f").format, None);
}

#[test]
fn keywords_of_the_wrong_type_are_named() {
    let check = |raw: Value, texts: &[&str]| {
        let errors = parse(&raw).unwrap_err();
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found, texts);
    };
    check(json!(1), &[": Invalid value: 1: must be a schema object"]);
    check(
        json!({"properties": {"a": {"type": 5}, "b": true}}),
        &[
            "properties[a].type: Invalid value: 5: must be a string",
            "properties[b]: Invalid value: true: must be a schema object",
        ],
    );
    check(
        json!({"items": {"maxLength": 1.5}}),
        &["items.maxLength: Invalid value: 1.5: must be an integer"],
    );
    check(
        json!({"allOf": [{}, {"required": [1]}]}),
        &["allOf[1].required: Invalid value: 1: must be a list of strings"],
    );
    check(
        json!({"x-kubernetes-validations": [{"rule": {}}]}),
        &["x-kubernetes-validations[0].rule: Invalid value: {}: must be a string"],
    );
}

#[test]
fn nulls_are_unset() {
    let schema =
        parse(&json!({"type": null, "default": null, "items": null, "not": null})).unwrap();
    assert_eq!(*schema, SchemaNode::default());
}

fn nested(depth: usize) -> Value {
    (1..depth).fold(
        json!({"type": "object"}),
        |inner, _| json!({"type": "object", "properties": {"a": inner}}),
    )
}

#[test]
fn depth_is_bounded() {
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    let error = parse(&nested(MAX_DEPTH + 1)).unwrap_err()[0].to_string();
    assert!(
        error.ends_with("Forbidden: schemas must not nest more than 100 levels deep"),
        "{error}"
    );
}

#[test]
fn equal_subtrees_are_one_allocation() {
    let pod = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string", "maxLength": 5},
    }});
    let schema = parse(&json!({"properties": {
        "x": pod, "y": {"items": pod}, "z": {"type": "string", "maxLength": 6},
    }}))
    .unwrap();
    let x = schema.property("x").unwrap();
    assert!(Arc::ptr_eq(x, schema.property("y").unwrap().items.as_ref().unwrap()));
    assert!(!Arc::ptr_eq(x.property("b").unwrap(), schema.property("z").unwrap()));
}

#[test]
fn unknown_keywords_are_found_everywhere() {
    let unknown = unknown_fields(&json!({
        "type": "object",
        "foo": 1,
        "default": {"bar": 1},
        "properties": {"properties": {"bar": 1, "items": {"baz": 1}}, "foo": {}},
        "allOf": [{}, {"not": {"qux": 1}}],
        "additionalProperties": true,
        "x-kubernetes-validations": [{"rule": "true", "msg": ""}],
        "externalDocs": {"link": ""},
        "x-kubernetes-foo": 1,
    }));
    assert_eq!(
        unknown,
        [
            "allOf[1].not.qux",
            "externalDocs.link",
            "foo",
            "properties.properties.bar",
            "properties.properties.items.baz",
            "x-kubernetes-foo",
            "x-kubernetes-validations[0].msg",
        ]
    );
}
