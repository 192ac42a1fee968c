use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn texts(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn check(schema: Value, expect: Expect) {
    expect.assert_eq(&texts(&check_structural(&schema, &Path::Root)));
}

/// The schema of the field `f`, in an otherwise good schema.
fn check_field(schema: Value, expect: Expect) {
    check(json!({"type": "object", "properties": {"f": schema}}), expect);
}

#[test]
fn good_schemas_are_accepted() {
    check(
        json!({"type": "object", "description": "d", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
            "spec": {"type": "object", "required": ["a"], "properties": {
                "a": {"type": "integer", "format": "int32", "minimum": 1, "default": 1},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true,
                    "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a$"},
                "percent": {"x-kubernetes-int-or-string": true,
                    "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maxLength": 5}]},
                "list": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                    "required": ["k"], "properties": {"k": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true,
                    "default": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}},
            }, "oneOf": [{"required": ["a"]}, {"properties": {"any": {"not": {}}}}]},
        }}),
        expect![[""]],
    );
}

#[test]
fn paths_start_where_the_caller_says() {
    let root = Path::Root;
    let (spec, schema) = (root.field("spec"), "schema.openAPIV3Schema");
    let versions = spec.field("versions");
    let version = versions.index(0);
    let at = version.field(schema);
    let errors = check_structural(&json!({"type": "object", "properties": {"spec": {}}}), &at);
    expect!["spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields"].assert_eq(&texts(&errors));
}

#[test]
fn every_field_has_a_type() {
    check(json!({}), expect!["type: Required value: must not be empty at the root"]);
    check(
        json!({"type": "array", "items": {}}),
        expect![[r#"
        items.type: Required value: must not be empty for specified array items
        type: Invalid value: "array": must be object at the root"#]],
    );
    check_field(
        json!({}),
        expect![
            "properties[f].type: Required value: must not be empty for specified object fields"
        ],
    );
    check_field(
        json!({"type": "array"}),
        expect!["properties[f].items: Required value: must be specified"],
    );
    check_field(
        json!({"type": "array", "items": {}}),
        expect![
            "properties[f].items.type: Required value: must not be empty for specified array items"
        ],
    );
    check_field(
        json!({"type": "object", "additionalProperties": {}}),
        expect![
            "properties[f].additionalProperties.type: Required value: must not be empty for specified object fields"
        ],
    );
    check_field(
        json!({"type": "foo"}),
        expect![[
            r#"properties[f].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string""#
        ]],
    );
    check_field(
        json!({"type": "null"}),
        expect![[r#"
        properties[f].type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string"
        properties[f].type: Forbidden: type cannot be set to null, use nullable as an alternative"#]],
    );
}

#[test]
fn the_root_is_a_plain_object() {
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        expect!["additionalProperties: Forbidden: must not be used at the root"],
    );
    check(
        json!({"type": "object", "nullable": true}),
        expect!["nullable: Forbidden: nullable cannot be true at the root"],
    );
    check(
        json!({"type": "object", "default": {"a": 1}}),
        expect![[r#"default: Invalid value: {"a":1}: must not have unknown fields"#]],
    );
}

#[test]
fn metadata_belongs_to_the_server() {
    let with = |name: &str, schema: Value| json!({"type": "object", "properties": {name: schema}});
    check(
        with("metadata", json!({"type": "string"})),
        expect![[r#"properties[metadata].type: Invalid value: "string": must be object"#]],
    );
    check(
        with("metadata", json!({"type": "object", "description": "x"})),
        expect![
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ],
    );
    check(
        with("metadata", json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        expect![
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ],
    );
    check(
        with("kind", json!({"type": "integer"})),
        expect![[r#"properties[kind].type: Invalid value: "integer": must be string"#]],
    );
    check(
        with("apiVersion", json!({"type": "string", "default": "v1"})),
        expect![
            "properties[apiVersion].default: Forbidden: must not be set in top-level apiVersion"
        ],
    );
    check(
        json!({"type": "object", "allOf": [{"properties": {"metadata": {}}}]}),
        expect![[r#"
        allOf[0].properties[metadata]: Forbidden: must not be specified in a nested context
        properties[metadata]: Required value: because it is defined in allOf[0].properties[metadata]"#]],
    );
}

#[test]
fn junctors_only_narrow_values() {
    for junctor in ["allOf", "anyOf", "oneOf"] {
        let schema = json!({"type": "object", junctor: [{"type": "object"}]});
        let errors = check_structural(&schema, &Path::Root);
        assert_eq!(
            texts(&errors),
            format!("{junctor}[0].type: Forbidden: must be empty to be structural")
        );
    }
    check(
        json!({"type": "object", "not": {
            "additionalProperties": {"type": "string"}, "default": 1, "title": "t",
            "description": "d", "nullable": true, "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-embedded-resource": true, "x-kubernetes-int-or-string": true,
            "x-kubernetes-list-map-keys": ["a"], "x-kubernetes-list-type": "map",
            "x-kubernetes-map-type": "atomic", "x-kubernetes-validations": [{"rule": "true"}],
        }}),
        expect![[r#"
            not.additionalProperties: Forbidden: must be undefined to be structural
            not.default: Forbidden: must be undefined to be structural
            not.description: Forbidden: must be empty to be structural
            not.nullable: Forbidden: must be false to be structural
            not.title: Forbidden: must be empty to be structural
            not.x-kubernetes-embedded-resource: Forbidden: must be false to be structural
            not.x-kubernetes-int-or-string: Forbidden: must be false to be structural
            not.x-kubernetes-list-map-keys: Forbidden: must be empty to be structural
            not.x-kubernetes-list-type: Forbidden: must be undefined to be structural
            not.x-kubernetes-map-type: Forbidden: must be undefined to be structural
            not.x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural
            not.x-kubernetes-validations: Forbidden: must be empty to be structural
            not.type: Required value: must be object if x-kubernetes-map-type is specified
            not.type: Required value: must be array if x-kubernetes-list-type is specified
            not.items: Required value: must have a schema if x-kubernetes-list-type is map"#]],
    );
    check_field(
        json!({"type": "string", "anyOf": [{"pattern": "+"}, {"format": "date"}]}),
        expect![[
            r#"properties[f].anyOf[0].pattern: Invalid value: "+": must be a valid regular expression, but isn't: error parsing regexp: missing argument to repetition operator: `+`"#
        ]],
    );
}

#[test]
fn fields_that_junctors_narrow_exist() {
    check(
        json!({"type": "object", "allOf": [
            {"properties": {"a": {"minimum": 1}}},
            {"not": {"properties": {"b": {"items": {"minimum": 1}}}}},
        ], "properties": {"b": {"type": "string"}}}),
        expect![[r#"
            properties[a]: Required value: because it is defined in allOf[0].properties[a]
            properties[b].items: Required value: because it is defined in allOf[1].not.properties[b].items"#]],
    );
}

#[test]
fn extensions_do_not_contradict_each_other() {
    check_field(
        json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        expect![
            "properties[f].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true"
        ],
    );
    check_field(
        json!({"x-kubernetes-embedded-resource": true}),
        expect![[r#"
        properties[f].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
        properties[f].type: Required value: must be object if x-kubernetes-embedded-resource is true"#]],
    );
    check_field(
        json!({"type": "string", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}),
        expect![[
            r#"properties[f].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true"#
        ]],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true, "additionalProperties": {"type": "string"}}),
        expect![
            "properties[f].additionalProperties: Forbidden: must not be used if x-kubernetes-embedded-resource is set"
        ],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
        expect![
            "properties[f].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"
        ],
    );
    check_field(
        json!({"type": "string", "x-kubernetes-map-type": "foo"}),
        expect![[r#"
        properties[f].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified
        properties[f].x-kubernetes-map-type: Unsupported value: "foo": supported values: "atomic", "granular""#]],
    );
    check_field(
        json!({"type": "object", "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"}}),
        expect![
            "properties[f].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        ],
    );
    check_field(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        expect![
            "properties[f].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        ],
    );
}

#[test]
fn unsupported_keywords_are_named() {
    check_field(
        json!({"type": "object", "id": "x", "$ref": "y", "additionalItems": true,
            "patternProperties": {"a": {}}, "definitions": {"a": {}}, "dependencies": {"a": {}}}),
        expect![[r#"
            properties[f].id: Forbidden: id is not supported
            properties[f].additionalItems: Forbidden: additionalItems is not supported
            properties[f].patternProperties: Forbidden: patternProperties is not supported
            properties[f].definitions: Forbidden: definitions is not supported
            properties[f].dependencies: Forbidden: dependencies is not supported
            properties[f].$ref: Forbidden: $ref is not supported"#]],
    );
    check_field(
        json!({"type": "array", "items": [{"type": "string"}]}),
        expect!["properties[f].items: Forbidden: items must be a schema object and not an array"],
    );
    check_field(
        json!({"type": "object", "$schema": "x"}),
        expect![[r#": Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#]],
    );
}

#[test]
fn list_maps_have_keys_that_identify() {
    let list = |extra: Value| {
        let mut schema = json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}}}});
        for (key, value) in extra.as_object().unwrap() {
            schema[key] = value.clone();
        }
        schema
    };
    check_field(list(json!({})), expect![[""]]);
    check_field(
        list(json!({"x-kubernetes-list-map-keys": []})),
        expect![
            "properties[f].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        ],
    );
    check_field(
        list(json!({"x-kubernetes-list-map-keys": ["k", "k", "x"]})),
        expect![[r#"
        properties[f].x-kubernetes-list-map-keys: Invalid value: ["k","k","x"]: must not contain duplicate entries
        properties[f].x-kubernetes-list-map-keys: Invalid value: ["k","k","x"]: entries must all be names of item properties"#]],
    );
    check_field(
        list(json!({"x-kubernetes-list-type": "set"})),
        expect![[r#"
        properties[f].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set
        properties[f].x-kubernetes-list-type: Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty"#]],
    );
    check_field(
        list(json!({"x-kubernetes-list-type": "foo"})),
        expect![[r#"
        properties[f].x-kubernetes-list-type: Unsupported value: "foo": supported values: "atomic", "set", "map"
        properties[f].x-kubernetes-list-type: Invalid value: "foo": must be map if x-kubernetes-list-map-keys is non-empty"#]],
    );
    check_field(
        list(json!({"x-kubernetes-list-type": null})),
        expect![
            "properties[f].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"
        ],
    );
    check_field(
        list(json!({"items": {"type": "string"}})),
        expect![[
            r#"properties[f].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#
        ]],
    );
    check_field(
        list(json!({"items": {"type": "object", "nullable": true,
            "properties": {"k": {"type": "string", "nullable": true}}}})),
        expect![[r#"
            properties[f].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map
            properties[f].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property
            properties[f].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable"#]],
    );
    check_field(
        list(json!({"items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "object"}}}})),
        expect![[
            r#"properties[f].items.properties[k].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#
        ]],
    );
    check_field(
        json!({"type": "string", "x-kubernetes-list-type": "atomic"}),
        expect![[
            r#"properties[f].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#
        ]],
    );
    check_field(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "array",
            "x-kubernetes-list-type": "set", "items": {"type": "string"}}}),
        expect![[
            r#"properties[f].items.x-kubernetes-list-type: Invalid value: "set": must be atomic as item of a list with x-kubernetes-list-type=set"#
        ]],
    );
}

#[test]
fn defaults_are_valid_and_pruned() {
    check_field(
        json!({"type": "integer", "default": "x"}),
        expect![[
            r#"properties[f].default: Invalid value: "string":  in body must be of type integer: "string""#
        ]],
    );
    check_field(
        json!({"type": "object", "default": {"a": "x", "b": 1},
            "properties": {"a": {"type": "integer"}}}),
        expect![[r#"
            properties[f].default: Invalid value: {"a":"x","b":1}: must not have unknown fields
            properties[f].default.a: Invalid value: "string": a in body must be of type integer: "string""#]],
    );
    check_field(
        json!({"type": "string", "default": "x", "enum": ["a"]}),
        expect![[r#"properties[f].default: Unsupported value: "x": supported values: "a""#]],
    );
    check_field(json!({"type": "string", "nullable": true, "default": null}), expect![[""]]);
    let embedded = |metadata: Value| {
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "metadata": metadata, "spec": {"type": "object"}}})
    };
    check_field(embedded(json!({"type": "object", "default": {"name": "ok"}})), expect![[""]]);
    check_field(
        embedded(json!({"type": "object", "default": {"name": ".."}})),
        expect![[
            r#"properties[f].properties[metadata].default: Invalid value: {"name":".."}: must result in valid metadata: metadata.name: Invalid value: "..": may not be '..'"#
        ]],
    );
    check_field(
        embedded(json!({"type": "object", "properties": {
            "finalizers": {"type": "array", "items": {"type": "string", "default": "a b"}}}})),
        expect![[
            r#"properties[f].properties[metadata].properties[finalizers].items.default: Invalid value: "a b": must result in valid metadata: metadata.finalizers: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true, "default": {"kind": "X"}}),
        expect!["properties[f].default.apiVersion: Required value"],
    );
    check_field(
        json!({"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]}),
        expect!["properties[f].default: Invalid value: 1: failed rule: self > 1"],
    );
}

#[test]
fn rules_are_complete() {
    let rule = |rule: Value| {
        json!({"type": "object", "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [rule]})
    };
    check_field(
        rule(json!({"rule": " "})),
        expect![
            "properties[f].x-kubernetes-validations[0].rule: Required value: rule is not specified"
        ],
    );
    check_field(
        rule(json!({"rule": "true", "message": " "})),
        expect![[
            r#"properties[f].x-kubernetes-validations[0].message: Invalid value: " ": must be non-empty if specified"#
        ]],
    );
    check_field(
        rule(json!({"rule": "true", "message": "a\nb"})),
        expect![[
            r#"properties[f].x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks"#
        ]],
    );
    check_field(
        rule(json!({"rule": "true\n&& true"})),
        expect![
            "properties[f].x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks"
        ],
    );
    check_field(
        rule(json!({"rule": "true", "messageExpression": " "})),
        expect![
            "properties[f].x-kubernetes-validations[0].messageExpression: Required value: messageExpression must be non-empty if specified"
        ],
    );
    check_field(
        rule(json!({"rule": "true", "reason": "Foo"})),
        expect![[
            r#"properties[f].x-kubernetes-validations[0].reason: Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#
        ]],
    );
    check_field(
        rule(json!({"rule": "true", "fieldPath": ".b"})),
        expect![[
            r#"properties[f].x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path"#
        ]],
    );
    check_field(rule(json!({"rule": "true", "fieldPath": ".a"})), expect![[""]]);
}

#[test]
fn wrong_shapes_are_reported_with_their_path() {
    check_field(
        json!({"type": 5}),
        expect!["properties[f].type: Invalid value: 5: must be a string"],
    );
}

#[test]
fn status_restricts_the_root() {
    let check = |schema: Value, expect: Expect| {
        expect.assert_eq(&texts(&check_status_root(&schema, &Path::Root)));
    };
    check(json!({"type": "object", "properties": {}, "required": ["spec"]}), expect![[""]]);
    check(
        json!({"type": "string"}),
        expect![[
            r#"type: Invalid value: "string": only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#
        ]],
    );
    check(
        json!({"type": "object", "oneOf": [{"required": ["a"]}]}),
        expect![[
            r#": Invalid value: "": only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled"#
        ]],
    );
}
