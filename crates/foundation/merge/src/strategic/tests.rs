use serde_json::json;

use super::*;
use crate::form::schema;

fn item() -> Schema {
    let list = json!({"type": "array", "merge": "name", "items": {"type": "object"}});
    let integers = json!({"type": "array", "merge": true, "items": {"type": "number"}});
    schema(&json!({"type": "object", "properties": {
        "list": list,
        "keyless": {"type": "array", "merge": true, "items": {"type": "object"}},
        "integers": integers,
        "strategy": {"type": "object", "retainKeys": true},
        "raw": {"type": "object", "replace": true},
    }}))
}

#[test]
fn bad_patches_say_why_and_whose_fault_it_is() {
    let table = [
        (
            json!({"list": [{"a": 1}]}),
            Fault::Internal,
            r#"map: map[a:1] does not contain declared merge key: name"#,
        ),
        (
            json!({"list": [{"$patch": "delete"}]}),
            Fault::Internal,
            r#"map: map[$patch:delete] does not contain declared merge key: name"#,
        ),
        (
            json!({"list": [{"$patch": "merge", "name": "a"}]}),
            Fault::Internal,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"list": [{"$patch": "x", "name": "a"}]}),
            Fault::Internal,
            "unknown patch type: x in map: map[$patch:x name:a]",
        ),
        (
            json!({"strategy": {"$patch": "x"}}),
            Fault::Internal,
            "unknown patch type: x in map: map[$patch:x]",
        ),
        (
            json!({"keyless": [{"a": 1}]}),
            Fault::Internal,
            "cannot merge lists without merge key for struct",
        ),
        (
            json!({"list": [1]}),
            Fault::Internal,
            r#"list element types are not identical: [[{"name":"a"}],[1]]"#,
        ),
        (
            json!({"list": [[1]]}),
            Fault::Internal,
            r#"list element types are not identical: [[{"name":"a"}],[[1]]]"#,
        ),
        (json!({"integers": [[1]]}), Fault::Unprocessable, "lists of lists are not supported"),
        (json!({"$retainKeys": 1}), Fault::BadRequest, "invalid patch format of retainKeys"),
        (
            json!({"strategy": {"$retainKeys": ["a"], "b": 1}}),
            Fault::BadRequest,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$deleteFromPrimitiveListX": [1]}),
            Fault::BadRequest,
            "invalid patch format of primitive list",
        ),
        (
            json!({"$setElementOrderX": [1]}),
            Fault::BadRequest,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"$setElementOrder/list": 1}),
            Fault::Internal,
            "expected a []interface {}, but received a int64",
        ),
        (
            json!({"$setElementOrder/integers": [2, 1], "integers": [1, 2]}),
            Fault::Internal,
            "The order in patch list:\n[1,2]\n doesn't match $setElementOrder list:\n[2,1]\n",
        ),
    ];
    let target =
        json!({"list": [{"name": "a"}], "keyless": [{}], "integers": [], "strategy": {"z": 1}});
    for (patch, fault, text) in table {
        let error = strategic_merge(&target, &patch, &item()).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.fault()), (text, fault), "{patch}");
    }
    let error = strategic_merge(&target, &json!([]), &item()).unwrap_err();
    assert_eq!(error, StrategicError::NotAnObject);
}

#[test]
fn fields_unknown_to_the_schema_merge_like_json() {
    let target = json!({"other": {"a": 1, "l": [1], "b": 2}, "raw": {"a": 1}});
    let patch = json!({"other": {"a": null, "l": [2], "c": {"x": null}}, "raw": {"b": 1}});
    let expected = json!({"other": {"l": [2], "b": 2, "c": {}}, "raw": {"b": 1}});
    assert_eq!(strategic_merge(&target, &patch, &item()), Ok(expected));
}
