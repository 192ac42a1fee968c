use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(resource: Value, expect: Expect) {
    let schema = crate::parse(&json!({"properties": {"template": {
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    }}}))
    .unwrap();
    let errors = validate(&json!({"template": resource}), &schema, &Path::Root);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    expect.assert_eq(&texts.join("\n"));
}

#[test]
fn type_is_required_and_well_formed() {
    check(json!({"apiVersion": "v1", "kind": "Foo"}), expect![[""]]);
    check(
        json!({}),
        expect![[r#"
        template.apiVersion: Required value
        template.kind: Required value"#]],
    );
    check(
        json!({"apiVersion": "", "kind": ""}),
        expect![[r#"
        template.apiVersion: Invalid value: "": must not be empty
        template.kind: Invalid value: "": must not be empty"#]],
    );
    check(
        json!({"apiVersion": 1, "kind": true}),
        expect![[r#"
        template.apiVersion: Invalid value: 1: must be a string
        template.kind: Invalid value: true: must be a string"#]],
    );
    check(
        json!({"apiVersion": "a/b/c", "kind": "a.b"}),
        expect![[r#"
        template.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
        template.kind: Invalid value: "a.b": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]],
    );
}

#[test]
fn metadata_is_that_of_an_object() {
    let resource =
        |metadata: Value| json!({"apiVersion": "v1", "kind": "Foo", "metadata": metadata});
    check(
        resource(json!({"name": "a", "labels": {"a.b/c": "d"}, "finalizers": ["a/b"]})),
        expect![[""]],
    );
    check(
        resource(json!({"name": ".."})),
        expect![[r#"template.metadata.name: Invalid value: "..": may not be '..'"#]],
    );
    check(
        resource(json!({"name": "a/b", "generation": -1})),
        expect![[r#"
        template.metadata.name: Invalid value: "a/b": may not contain '/'
        template.metadata.generation: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    check(
        resource(json!({"name": 1})),
        expect![[
            r#"template.metadata: Invalid value: {"name":1}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"#
        ]],
    );
    check(
        resource(json!({"labels": {"": "a", "/a": "-", "a/b/c": "", "A_/b": ""}})),
        expect![[r#"
            template.metadata.labels: Invalid value: "": name part must be non-empty
            template.metadata.labels: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            template.metadata.labels: Invalid value: "/a": prefix part must be non-empty
            template.metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            template.metadata.labels: Invalid value: "A_/b": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            template.metadata.labels: Invalid value: "a/b/c": a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#]],
    );
    check(
        resource(json!({"annotations": {"a": "b".repeat(262_144)}})),
        expect!["template.metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}
