use serde_json::json;

use super::*;

fn find(path: &str, object: &Value) -> String {
    match JsonPath::parse(path) {
        Err(error) => format!("parse: {error}"),
        Ok(path) => match path.eval(object) {
            Err(error) => format!("eval: {error}"),
            Ok(found) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        },
    }
}

#[test]
fn paths_find_what_upstream_finds() {
    let object = json!({
        "metadata": {"labels": {"a.b/c": "dotted", "plain": "x"}},
        "spec": {"replicas": 3, "list": [1, 2, 3, 4], "ratio": 0.5},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Live", "status": "False", "n": 2},
        ]},
    });
    for (path, found) in [
        (".spec.replicas", "3"),
        (".spec.missing.deeper", ""),
        (".spec.list[0]", "1"),
        (".spec.list[-1]", "4"),
        (".spec.list[1:3]", "2 3"),
        (".spec.list[::2]", "1 3"),
        (".spec.list[*]", "1 2 3 4"),
        (".spec.list[0,2]", "1 3"),
        (".spec.list[9]", "eval: array index out of bounds: index 9, length 4"),
        (".spec[0]", "eval: not an array"),
        (r".metadata.labels['a\.b/c']", r#""dotted""#),
        (r".metadata.labels.a\.b/c", r#""dotted""#),
        (".metadata.labels['plain']", r#""x""#),
        (".metadata.labels.*", r#""dotted" "x""#),
        (r#".status.conditions[?(@.type=="Ready")].status"#, r#""True""#),
        (r#".status.conditions[?(@.type == "Ready")].status"#, r#""True""#),
        (".status.conditions[?(@.type=='Live')].status", r#""False""#),
        (".status.conditions[?(@.n>1)].type", r#""Live""#),
        (".status.conditions[?(@.missing)].type", ""),
        (".status.conditions[?(@.n)].type", r#""Ready" "Live""#),
        (".status.conditions[?(@.type>1)].type", "eval: incompatible types for comparison"),
        ("..type", r#""Ready" "Live""#),
    ] {
        assert_eq!(find(path, &object), found, "{path}");
    }
}

#[test]
fn broken_paths_are_named() {
    for (path, problem) in [
        (".spec[", "parse: unterminated array"),
        (".spec[?(@.a", "parse: unterminated filter"),
        (".spec[x]", "parse: invalid array index x"),
        (".a[?(@.b=~'c')]", "parse: unrecognized filter operator ="),
        (".a....b", "parse: invalid multiple recursive descent"),
        ("range", "parse: unrecognized identifier range"),
        ("'a", "parse: unterminated quoted string"),
        ("#", "parse: unrecognized character in action: '#'"),
    ] {
        assert_eq!(find(path, &Value::Null), problem, "{path}");
    }
}
