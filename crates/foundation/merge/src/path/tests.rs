use serde_json::json;

use super::*;

#[test]
fn elements_are_written_in_two_forms() {
    let key = PathElement::key([("protocol", json!("TCP")), ("port", json!(80))]);
    let table = [
        (PathElement::field("spec"), "f:spec", ".spec"),
        (PathElement::field("a.b/c"), "f:a.b/c", ".a.b/c"),
        (key, r#"k:{"port":80,"protocol":"TCP"}"#, r#"[port=80,protocol="TCP"]"#),
        (PathElement::value("x"), r#"v:"x""#, r#"[="x"]"#),
        (PathElement::value(1), "v:1", "[=1]"),
        (PathElement::value(1.5), "v:1.5", "[=1.5]"),
        (PathElement::value(true), "v:true", "[=true]"),
        (PathElement::Value(Box::new(Value::Null)), "v:null", "[=null]"),
        (PathElement::Index(3), "i:3", "[3]"),
    ];
    for (element, encoded, shown) in table {
        assert_eq!(element.encode(), encoded);
        assert_eq!(element.to_string(), shown);
        assert_eq!(PathElement::parse(encoded), Ok(element));
    }
}

#[test]
fn texts_that_are_no_elements_say_why() {
    let bad = |text: &str| PathElementError::BadValue(text.to_owned());
    let table = [
        ("", PathElementError::TooShort),
        ("f", PathElementError::TooShort),
        ("foo", PathElementError::MissingColon("foo".to_owned())),
        ("x:foo", PathElementError::UnknownType),
        ("v:{", bad("v:{")),
        ("k:[1]", bad("k:[1]")),
        ("k:{\"a\":1} 2", bad("k:{\"a\":1} 2")),
        ("i:x", bad("i:x")),
    ];
    for (text, error) in table {
        assert_eq!(PathElement::parse(text), Err(error), "{text}");
    }
}

#[test]
fn elements_have_an_order() {
    let sorted = [
        "f:a",
        "f:aa",
        "f:b",
        r#"k:{"a":1}"#,
        r#"k:{"a":1,"b":1}"#,
        r#"k:{"a":2}"#,
        r#"k:{"b":1}"#,
        "v:1",
        "v:1.5",
        "v:2",
        r#"v:"a""#,
        r#"v:"b""#,
        "v:false",
        "v:true",
        "v:null",
        "i:0",
        "i:2",
        "i:10",
    ];
    let elements: Vec<PathElement> =
        sorted.iter().map(|text| PathElement::parse(text).unwrap()).collect();
    for pair in elements.windows(2) {
        assert!(pair[0] < pair[1], "{} before {}", pair[0], pair[1]);
    }
}

#[test]
fn numbers_are_equal_by_what_they_are_worth() {
    assert_eq!(PathElement::value(1), PathElement::value(1.0));
    assert!(same_value(&json!({"a": [1, {"b": 2.0}]}), &json!({"a": [1.0, {"b": 2}]})));
    assert!(!same_value(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
}

#[test]
fn quotes_are_those_of_go() {
    assert_eq!(GoQuoted("a\"b\\c\n\u{1}é'").to_string(), r#""a\"b\\c\n\x01é'""#);
}
