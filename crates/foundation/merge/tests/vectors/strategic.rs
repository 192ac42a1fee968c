//! `strategic.txt`: strategic merge patches of one type that has every strategy.

use merge::strategic_merge;
use schema::Schema;
use serde_json::{Value, json};

use super::form::schema;
use super::json as parse;

/// A type that contains itself, unrolled a few times.
fn item(depth: usize) -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "values": text});
    let integers = json!({"type": "array", "items": {"type": "number"}});
    let mut fields = json!({
        "name": text, "value": text, "other": text, "simpleMap": texts,
        "mergingIntList": integers, "nonMergingIntList": integers,
        "jsonItem": {"type": "object", "properties": {"Raw": text}},
        "replacingItem": {"replace": true},
    });
    fields["mergingIntList"]["merge"] = true.into();
    if depth > 0 {
        let deeper = item(depth - 1);
        let list = json!({"type": "array", "items": deeper});
        fields["nonMergingList"] = list.clone();
        fields["mergingList"] = list.clone();
        fields["mergingList"]["merge"] = "name".into();
        fields["retainKeysMergingList"] = fields["mergingList"].clone();
        fields["retainKeysMergingList"]["retainKeys"] = true.into();
        fields["mergeItemPtr"] = deeper.clone();
        fields["mergeItemPtr"]["merge"] = "name".into();
        // The tables also use it as a list.
        fields["mergeItemPtr"]["items"] = deeper.clone();
        fields["retainKeysMap"] = deeper;
        fields["retainKeysMap"]["retainKeys"] = true.into();
    }
    json!({"type": "object", "properties": fields})
}

#[test]
fn strategic_merge_patches_do_what_upstream_does() {
    let schema: Schema = schema(&item(3));
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in include_str!("strategic.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<&str> = line.split(" | ").collect();
        let [target, patch, expected] = columns.as_slice() else { panic!("{line}") };
        let found = match strategic_merge(&parse(target), &parse(patch), &schema) {
            Ok(result) => result.to_string(),
            Err(_) => "error".to_owned(),
        };
        let expected = match *expected {
            "error" => "error".to_owned(),
            expected => parse(expected).to_string(),
        };
        checked += 1;
        if found != expected {
            wrong.push(format!("{line}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(checked > 100, "only {checked} facts");
    assert!(wrong.is_empty(), "{} of {checked} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
