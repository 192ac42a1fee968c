use serde_json::json;

use super::*;
use crate::form::schema;

#[test]
fn faults_name_their_place() {
    let schema = schema(&json!({"type": "object", "properties": {
        "list": {"type": "array", "keys": ["name"], "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "size": {"type": "number"},
        }}},
        "set": {"type": "array", "set": true, "items": {"type": "string"}},
        "on": {"type": "boolean"},
        "text": {"type": "string"},
        "map": {"type": "object", "values": {"type": "string"}},
    }}));
    let table = [
        (
            json!({"list": [{"name": "a"}, {"name": "a"}]}),
            ".list: duplicate entries for key [name=\"a\"]",
        ),
        (json!({"set": ["a", "b", "a"]}), ".set: duplicate entries for key [=\"a\"]"),
        (json!({"more": 1}), ".more: field not declared in schema"),
        (
            json!({"list": [{"size": 1}]}),
            ".list: element 0: associative list with keys has an element that omits all key \
             fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            json!({"list": [{"name": "a", "size": "x"}]}),
            ".list[name=\"a\"].size: expected numeric (int or float), got string",
        ),
        (json!({"text": 1}), ".text: expected string, got &value.valueUnstructured{Value:1}"),
        (
            json!({"list": {}, "on": 1}),
            "errors:\n  .list: expected list, got &{map[]}\n  .on: expected boolean, got 1",
        ),
        (
            json!({"set": [null]}),
            ".set: element 0: associative list without keys has an element \
            that's an explicit null",
        ),
    ];
    for (value, text) in table {
        let faults = validate(&value, &schema, Duplicates::Refused).unwrap_err();
        assert_eq!(faults.to_string(), text, "{value}");
    }
    let doubled = json!({"set": ["a", "a"], "map": null});
    assert_eq!(validate(&doubled, &schema, Duplicates::Allowed), Ok(()));
}
