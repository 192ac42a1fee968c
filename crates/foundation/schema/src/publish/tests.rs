use super::*;

/// The published schema of the field `f`.
fn field(schema: Value, version: OpenApiVersion) -> Value {
    let schema = json!({"type": "object", "properties": {"f": schema}});
    let published = match version {
        OpenApiVersion::V2 => to_openapi_v2(&schema),
        OpenApiVersion::V3 => to_openapi_v3(&schema),
    };
    published["properties"]["f"].clone()
}

#[test]
fn no_schema_is_any_object() {
    assert_eq!(to_openapi_v2(&Value::Null), json!({"type": "object"}));
    assert_eq!(to_openapi_v3(&Value::Null), json!({"type": "object"}));
}

#[test]
fn the_root_gets_type_and_metadata() {
    let schema = json!({"type": "object", "description": "d", "properties": {
        "metadata": {"type": "object"}, "spec": {"type": "object"}}});
    let v3 = to_openapi_v3(&schema);
    assert_eq!(v3["description"], "d");
    assert_eq!(v3["properties"]["kind"]["type"], "string");
    let version = v3["properties"]["apiVersion"]["description"].as_str().unwrap();
    assert!(version.starts_with("APIVersion defines"), "{version}");
    let metadata = &v3["properties"]["metadata"];
    assert_eq!(metadata["allOf"][0]["$ref"], format!("#/components/schemas/{OBJECT_META}"));
    assert!(metadata["description"].as_str().unwrap().starts_with("Standard object's metadata"));
    let v2 = to_openapi_v2(&schema);
    assert_eq!(v2["properties"]["metadata"]["$ref"], format!("#/definitions/{OBJECT_META}"));
    assert_eq!(v2["properties"]["spec"], json!({"type": "object"}));
}

#[test]
fn a_preserving_root_says_nothing_in_v2() {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    assert_eq!(to_openapi_v2(&schema), json!({"type": "object"}));
    assert_eq!(to_openapi_v3(&schema)["properties"]["spec"], json!({"type": "object"}));
}

#[test]
fn v3_keeps_validations() {
    let schema = json!({"type": "object", "nullable": true, "required": ["a"],
        "properties": {"a": {"type": "string", "maxLength": 5, "default": "x"}},
        "oneOf": [{"required": ["a"]}], "not": {"required": ["b"]},
        "x-kubernetes-validations": [{"rule": "true"}]});
    assert_eq!(field(schema.clone(), OpenApiVersion::V3), schema);
}

#[test]
fn v3_spells_out_int_or_string() {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let check = |schema: Value, published: Value| {
        assert_eq!(field(schema, OpenApiVersion::V3), published);
    };
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": either}),
    );
    check(
        json!({"x-kubernetes-int-or-string": true, "anyOf": either}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": either}),
    );
    check(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"pattern": "a"}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"pattern": "a"}],
            "allOf": [{"anyOf": either}]}),
    );
}

#[test]
fn v2_drops_what_it_cannot_say() {
    let check = |schema: Value, published: Value| {
        assert_eq!(field(schema, OpenApiVersion::V2), published);
    };
    check(
        json!({"type": "object", "allOf": [{}], "anyOf": [{}], "oneOf": [{}], "not": {},
            "minProperties": 1}),
        json!({"type": "object", "minProperties": 1}),
    );
    check(json!({"x-kubernetes-int-or-string": true}), json!({"x-kubernetes-int-or-string": true}));
    check(
        json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}}),
        json!({}),
    );
    check(
        json!({"type": "array", "nullable": true, "items": {"type": "string"}, "description": "d"}),
        json!({"description": "d"}),
    );
    check(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"type": "string"}}}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    );
    check(
        json!({"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "string"}}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
    );
    check(
        json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true}, "b": {"type": "string"}}}),
        json!({"type": "object", "required": ["b"], "properties": {
            "a": {}, "b": {"type": "string"}}}),
    );
    check(
        json!({"type": "object", "required": ["a"],
            "additionalProperties": {"type": "string", "nullable": true}}),
        json!({"type": "object", "additionalProperties": {}}),
    );
}

#[test]
fn embedded_resources_are_resources() {
    let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"spec": {"type": "object"}}, "required": ["kind"]});
    for version in [OpenApiVersion::V2, OpenApiVersion::V3] {
        let published = field(schema.clone(), version);
        assert_eq!(published["required"], json!(["kind", "apiVersion"]));
        assert!(published["properties"]["metadata"].is_object());
    }
    let preserving = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let published = field(preserving.clone(), OpenApiVersion::V2);
    assert_eq!(published.get("properties"), None);
    assert!(
        field(preserving, OpenApiVersion::V3)["properties"]["metadata"]["allOf"][0]["$ref"]
            .is_string()
    );
}

#[test]
fn unknown_keywords_are_not_published() {
    assert_eq!(
        field(json!({"type": "string", "foo": 1}), OpenApiVersion::V3),
        json!({"type": "string"})
    );
}
