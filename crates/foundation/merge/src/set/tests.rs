use super::*;

fn set(text: &str) -> Set {
    Set::from_json(text).unwrap()
}

#[test]
fn fields_survive_being_written_and_read() {
    let texts = [
        "{}",
        r#"{"f:a":{}}"#,
        r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#,
        r#"{"f:a":{},"k:{\"name\":\"first\"}":{},"k:{\"port\":443,\"protocol\":\"tcp\"}":{},"v:1":{},"v:\"aa\"":{},"v:true":{},"i:1":{},"i:10":{}}"#,
        r#"{"f:spec":{".":{},"k:{\"name\":\" app-💻\"}":{".":{},"f:image":{}}}}"#,
    ];
    for text in texts {
        assert_eq!(set(text).to_json(), text);
        assert_eq!(Set::from_fields_v1(&set(text).to_fields_v1()).unwrap(), set(text));
    }
}

#[test]
fn irregular_sets_are_read_as_well() {
    let table = [
        // A member, since nothing that is known lies below.
        (r#"{"f:a":{"x:future":{}},"f:b":{"f:c":{}}}"#, r#"{"f:a":{},"f:b":{"f:c":{}}}"#),
        (r#"{"v: 3":{},"k:{ \"b\":1,\"a\":2}":{}}"#, r#"{"k:{\"a\":2,\"b\":1}":{},"v:3":{}}"#),
        (r#"{"i:2":{},"f:b":{},"f:a":{}}"#, r#"{"f:a":{},"f:b":{},"i:2":{}}"#),
        ("null", "{}"),
    ];
    for (text, regular) in table {
        assert_eq!(set(text).to_json(), regular);
    }
}

#[test]
fn an_invalid_set_says_why() {
    assert_eq!(Set::from_json("[]"), Err(SetError::NotAnObject));
    assert_eq!(Set::from_json(r#"{"f:a":1}"#), Err(SetError::NotAnObject));
    assert!(matches!(Set::from_json(r#"{"bad":{}}"#), Err(SetError::Element(_))));
    assert!(matches!(Set::from_json("{"), Err(SetError::Syntax(_))));
}

#[test]
fn sets_combine() {
    let left = r#"{"f:a":{},"f:b":{".":{},"f:x":{},"f:y":{}},"f:c":{"f:z":{}}}"#;
    let right = r#"{"f:b":{"f:y":{},"f:z":{}},"f:c":{},"f:d":{}}"#;
    let (left, right) = (set(left), set(right));
    let check = |found: Set, expected: &str| assert_eq!(found.to_json(), expected);
    check(
        left.clone().union(&right),
        r#"{"f:a":{},"f:b":{".":{},"f:x":{},"f:y":{},"f:z":{}},"f:c":{".":{},"f:z":{}},"f:d":{}}"#,
    );
    check(left.intersection(&right), r#"{"f:b":{"f:y":{}}}"#);
    check(left.difference(&right), r#"{"f:a":{},"f:b":{".":{},"f:x":{}},"f:c":{"f:z":{}}}"#);
    check(left.clone().recursive_difference(&right), r#"{"f:a":{},"f:b":{".":{},"f:x":{}}}"#);
    check(left.leaves(), r#"{"f:a":{},"f:b":{"f:x":{},"f:y":{}},"f:c":{"f:z":{}}}"#);
    assert!(left.intersection(&right).is_within(&left));
    assert!(!left.is_within(&right));
}

#[test]
fn members_of_a_level_come_before_what_lies_below() {
    let set = set(r#"{"f:b":{"f:c":{}},"f:z":{},"k:{\"name\":\"x\"}":{".":{},"f:a":{}}}"#);
    assert_eq!(set.to_string(), ".z\n[name=\"x\"]\n.b.c\n[name=\"x\"].a");
    assert_eq!(set.len(), 4);
    assert!(set.has(&[PathElement::field("b"), PathElement::field("c")]));
    assert!(!set.has(&[PathElement::field("b")]));
    assert_eq!(set.paths().into_iter().collect::<Set>(), set);
}

#[test]
fn a_path_does_not_bring_its_parents() {
    let mut set = Set::of_fields(&[&["a", "b"]]);
    set.insert(&[]);
    assert_eq!(set.to_json(), r#"{"f:a":{"f:b":{}}}"#);
    assert_eq!(set.below(&PathElement::field("a")).unwrap().to_json(), r#"{"f:b":{}}"#);
    assert_eq!(set.below(&PathElement::field("b")), None);
}
