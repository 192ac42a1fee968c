use serde_json::json;

use super::*;

#[test]
fn patches_that_are_no_lists_or_too_long_are_refused() {
    let document = json!({});
    for patch in [json!({}), json!("x"), json!([1])] {
        assert!(matches!(json_patch(&document, &patch), Err(PatchError::Malformed(_))), "{patch}");
    }
    let operation = json!({"op": "test", "path": "/a", "value": null});
    let long = Value::from(vec![operation; MOST_OPERATIONS + 1]);
    let error = json_patch(&document, &long).unwrap_err();
    assert_eq!(error, PatchError::TooManyOperations(10_001));
    assert_eq!(
        error.to_string(),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn merge_patches_follow_the_rfc_and_upstream() {
    let table = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
        (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
        (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
    ];
    for (target, patch, expected) in table {
        assert_eq!(merge_patch(&target, &patch), expected, "{target} {patch}");
    }
}

#[test]
fn copies_of_copies_are_bounded() {
    let operations: Vec<Value> = (0..60)
        .map(|number| json!({"op": "copy", "from": "/data", "path": format!("/data/k{number}")}))
        .collect();
    let refused = json_patch(&json!({"data": {"a": "b"}}), &Value::Array(operations)).unwrap_err();
    assert!(refused.to_string().contains("exceeding the limit 3145728"), "{refused}");
}
